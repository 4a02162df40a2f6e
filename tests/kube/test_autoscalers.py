"""Autoscalers as the API server sends them: defaults, validation, options, and the status that is written back."""

import json
from typing import Any

import pytest
from support.autoscalers import autoscaler

from hpad.api.autoscaler import with_texts
from hpad.api.hpa import HorizontalPodAutoscalerStatus, OwnQuery
from hpad.api.metadata import Key
from hpad.kube import hpas


def raw(body: dict[str, Any]) -> bytes:
    metadata = {"namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 3, **body["metadata"]}
    return json.dumps({**body, "metadata": metadata}).encode()


def read(**spec: Any) -> Any:
    return hpas.decode(raw(autoscaler("web", "web", **spec)), hpas.AUTOSCALER)


def test_an_autoscaler_stands_beside_an_hpa_of_the_same_name() -> None:
    assert read().key == Key("shop", "web", "autoscaler") != Key("shop", "web")
    assert Key.parse("shop/autoscaler/web") == read().key
    assert str(Key.of(*read().key)) == "shop/autoscaler/web"


@pytest.mark.parametrize("text", ["web", "shop/", "shop/hpa/web", "shop/autoscaler/", "a/autoscaler/b/c", "shop//web"])
def test_other_forms_of_a_key_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="namespace/name"):
        Key.parse(text)


def test_defaults_are_applied_when_it_is_read() -> None:
    spec = read(metrics=[], behavior={"scaleUp": {"stabilizationWindowSeconds": 5}}).value.spec
    assert spec.min_replicas == 1
    assert spec.metrics[0].resource.target.average_utilization == 80
    assert spec.behavior.scale_up.select_policy == "Max"


def test_options_become_annotations_and_win_over_them() -> None:
    body = autoscaler("web", "web", options={"mode": "shadow"})
    body["metadata"]["annotations"] = {"hpad.io/mode": "active", "hpad.io/keep-busy": "true", "other": "x"}
    found = hpas.decode(raw(body), hpas.AUTOSCALER).value
    assert found.metadata.annotations == {"hpad.io/mode": "shadow", "hpad.io/keep-busy": "true"}


def test_queries_are_kept() -> None:
    queries = [{"name": "orders", "source": "prom", "parameters": {"query": "sum(orders)"}}]
    assert read(queries=queries).value.spec.queries == (OwnQuery("orders", "prom", {"query": "sum(orders)"}),)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"minReplicas": 4, "maxReplicas": 3}, "spec.maxReplicas: Invalid value: 3"),
        ({"maxReplicas": 0}, "spec.maxReplicas: Required value"),
        ({"metrics": [{"type": "Resource"}]}, "spec.metrics[0].resource: Required value"),
    ],
)
def test_what_the_api_server_refuses_in_an_hpa_is_invalid(spec: dict[str, Any], message: str) -> None:
    assert message in read(**spec).value.spec.invalid


def test_the_status_is_written_with_its_texts_and_unknown_fields_survive() -> None:
    body = autoscaler("web", "web", options={"mode": "active"})
    body["status"] = {"currentReplicas": 1, "decision": "old", "targets": "old", "later": {"a": 1}}
    found = hpas.decode(raw(body), hpas.AUTOSCALER)
    status = with_texts(HorizontalPodAutoscalerStatus(current_replicas=2, desired_replicas=3), "scale", "cpu: 1%/50%")
    sent = json.loads(hpas.body(found.original, "7", hpas.encode(status), hpas.AUTOSCALER))
    assert (sent["apiVersion"], sent["kind"], sent["spec"]) == ("hpad.io/v1", "Autoscaler", body["spec"])
    assert sent["status"] == {
        "currentReplicas": 2, "desiredReplicas": 3,
        "decision": "scale", "targets": "cpu: 1%/50%", "later": {"a": 1},
    }  # fmt: skip

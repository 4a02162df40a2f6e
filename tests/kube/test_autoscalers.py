"""Autoscalers as the API server sends them: defaults, validation, options, and the status that is written back."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from support.autoscalers import autoscaler
from support.kube_caches import names, page
from support.scripted_server import QUICK, Script, failure, says, streams, until

from hpad.api.autoscaler import with_texts
from hpad.api.hpa import HorizontalPodAutoscalerStatus, OwnQuery
from hpad.api.metadata import Key
from hpad.kube import hpas
from hpad.kube.cache import HpaCache, WatchedKinds
from hpad.kube.client import Client
from hpad.kube.reflector import WatchScope


def nested(levels: int) -> dict[str, Any]:
    """Returns an Autoscaler whose query has parameters of so many levels."""
    value: Any = 0
    for _ in range(levels - 1):
        value = [value]
    query = {"name": "orders", "source": "prom", "parameters": {"query": value}}
    made = autoscaler(f"nested-{levels}", "web", queries=[query])
    return {**made, "metadata": {**made["metadata"], "namespace": "shop", "resourceVersion": "7", "uid": "u"}}


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


LIST = "/apis/hpad.io/v1/autoscalers"
ABSENT = says(failure(404, "NotFound", "the server could not find the requested resource"), 404)


async def test_a_kind_that_the_server_cannot_list_holds_up_no_hpas(
    script: Script, client: Client, running: Any
) -> None:
    """Its conversion fails, and it is a problem; a kind that is removed afterwards, without any objects, is none."""
    cache = HpaCache(WatchScope(client, options=QUICK), hpas.AUTOSCALER, optional=True)
    script.on("GET", LIST, says(failure(500, "InternalError", "conversion webhook failed"), 500))
    running(cache.run())
    await asyncio.wait_for(WatchedKinds({"autoscaler": cache}).wait_synced(), 60)
    assert cache.trouble == "autoscalers.hpad.io: conversion webhook failed"
    script.replace("GET", LIST, page())
    script.on("GET", f"{LIST}?watch", ABSENT)
    await until(cache.synced.is_set)
    script.replace("GET", LIST, ABSENT)
    await until(lambda: script.asked[-3:] == [("GET", LIST, script.asked[-1][2])] * 3)
    assert cache.trouble is None


async def test_a_kind_that_hpad_acts_on_alone_has_to_be_installed(script: Script, client: Client, running: Any) -> None:
    cache = HpaCache(WatchScope(client, options=QUICK), hpas.AUTOSCALER)
    script.on("GET", LIST, ABSENT)
    running(cache.run())
    await until(lambda: cache.trouble is not None)
    assert "the kind Autoscaler is not installed: kubectl apply -f config/crd" in str(cache.trouble)


@pytest.mark.parametrize(("levels", "refused"), [(16, ""), (17, "spec.queries[0].parameters has too many levels")])
def test_parameters_of_many_levels_are_refused(levels: int, refused: str) -> None:
    assert hpas.decode(raw(nested(levels)), hpas.AUTOSCALER).value.spec.refused.startswith(refused)


async def test_objects_too_deep_to_be_decoded_hide_no_others(script: Script, client: Client, running: Any) -> None:
    """The API server takes objects of 10,000 levels, and anybody who may create one chooses them."""
    deep = raw(nested(900)).replace(b"[" * 899, b"[" * 9_900).replace(b"]" * 899, b"]" * 9_900)
    items = b",".join([deep.replace(b"nested-900", b"listed"), raw(nested(17)), raw(nested(1))])

    async def lists(request: web.Request) -> web.Response:
        body = b'{"metadata":{"resourceVersion":"10"},"items":[%b]}' % items
        return web.Response(body=body, content_type="application/json")

    cache = HpaCache(WatchScope(client, options=QUICK), hpas.AUTOSCALER)
    changed = deep.replace(b"nested-900", b"nested-1").replace(b'"7"', b'"11"')
    script.on("GET", LIST, lists)
    script.on("GET", f"{LIST}?watch", streams(b'{"type":"MODIFIED","object":%b}\n' % changed, then="hang"))
    running(cache.run())
    await asyncio.wait_for(cache.synced.wait(), 60)
    assert "nested-17" in names(cache)
    await until(lambda: names(cache) == ["nested-17"])  # the edited one cannot be read any more
    assert cache.trouble is None


async def test_a_kind_that_is_refused_while_objects_are_known_is_a_problem(
    script: Script, client: Client, running: Any
) -> None:
    cache = HpaCache(WatchScope(client, options=QUICK), hpas.AUTOSCALER, optional=True)
    script.on("GET", LIST, page(json.loads(raw(autoscaler("web", "web")))))
    script.on("GET", f"{LIST}?watch", says(failure(403, "Forbidden", "no rights"), 403))
    running(cache.run())
    await until(lambda: cache.trouble == "autoscalers.hpad.io: no rights")
    assert len(cache) == 1

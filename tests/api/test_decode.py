"""Errors of documents that are not valid HPAs."""

from typing import Any

import pytest

from hpad.api import decode
from hpad.api import hpa as v2

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def document(version: str = "v2", metadata: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata if metadata is not None else {"name": "web"},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec},
    }


def complaint(value: Any) -> str:
    """Returns the only error of the document."""
    [error] = decode.read(value).errors
    return error.message


def metric(kind: str, **source: Any) -> list[dict[str, Any]]:
    return [{"type": kind, kind[:1].lower() + kind[1:]: source}]


@pytest.mark.parametrize("version", ["v1", "v2beta1", "v2beta2", "v2"])
def test_every_version_is_read_as_v2(version: str) -> None:
    """Scenario 25."""
    read = decode.decode(document(version))
    assert (read.api_version, read.kind, read.spec.max_replicas) == ("autoscaling/v2", "HorizontalPodAutoscaler", 3)


def test_an_unknown_field_names_its_neighbour() -> None:
    assert complaint(document(maxReplica=10)) == (
        'spec.maxReplica: strict decoding error: unknown field "spec.maxReplica": did you mean "maxReplicas"?'
    )
    assert complaint(document(behaviour={})).endswith('did you mean "behavior"?')
    assert complaint({**document(), "Spec": {}}).endswith('did you mean "spec"?')


def test_an_unknown_field_without_a_neighbour_names_what_there_is() -> None:
    assert complaint(document(x=1)).endswith("known here: scaleTargetRef, minReplicas, maxReplicas, metrics, behavior")


def test_what_else_could_be_read_is_read_beside_an_unknown_field() -> None:
    reading = decode.read(document(maxReplica=10))
    assert reading.hpa is not None
    assert reading.hpa.spec.max_replicas == 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"maxReplicas": "ten"}, 'spec.maxReplicas: Invalid value: "ten": must be a whole number, such as 10'),
        (
            {"maxReplicas": "10"},
            'spec.maxReplicas: Invalid value: "10": must be a whole number: write 10 without quotes',
        ),
        ({"maxReplicas": True}, "spec.maxReplicas: Invalid value: true: must be a whole number, such as 10"),
        ({"maxReplicas": 1.5}, "spec.maxReplicas: Invalid value: 1.5: must be a whole number, such as 10"),
        (
            {"maxReplicas": 2**31},
            "spec.maxReplicas: Invalid value: 2147483648: must be a whole number from -2147483648 to 2147483647",
        ),
        ({"metrics": {}}, "spec.metrics: Invalid value: {}: must be a list"),
        (
            {"behavior": {"scaleUp": {"policies": ["fast"]}}},
            'spec.behavior.scaleUp.policies[0]: Invalid value: "fast": '
            "must be an object with the fields type, value, periodSeconds",
        ),
        (
            {"scaleTargetRef": {**TARGET, "name": 7}},
            'spec.scaleTargetRef.name: Invalid value: 7: must be text: write "7" in quotes',
        ),
        (
            {"scaleTargetRef": {**TARGET, "name": False}},
            'spec.scaleTargetRef.name: Invalid value: false: must be text: write "false" in quotes',
        ),
    ],
)
def test_a_wrong_type_says_what_would_be_right(spec: dict[str, Any], message: str) -> None:
    assert complaint(document(**spec)) == message
    assert decode.read(document(**spec)).hpa is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[("200mm", "200m"), ("15MI", "15Mi"), ("1K", "1k"), ("2GB", "2G"), ("10 m", "10m"), ("0.5g", "0.5G")],
        *[("15MiB", "15Mi"), ("15mb", "15M"), ("500 millicores", "500m"), ("2 gigabytes", "2G")],
        *[("30 messages", "30"), ("80 mesages", "80")],
    ],
)
def test_a_wrong_unit_says_which_was_meant(written: str, meant: str) -> None:
    value = document(metrics=metric("Resource", name="cpu", target={"type": "AverageValue", "averageValue": written}))
    message = complaint(value)
    assert message.startswith(f'spec.metrics[0].resource.target.averageValue: Invalid value: "{written}": ')
    assert message.endswith(f'; did you mean "{meant}"?')


@pytest.mark.parametrize("written", ["30s", "30 minutes", "50%", "3nb", "1..5MB", "1.2.3 messages", "many"])
def test_where_nothing_was_plainly_meant_nothing_is_suggested(written: str) -> None:
    value = document(metrics=metric("Resource", name="cpu", target={"type": "AverageValue", "averageValue": written}))
    assert "did you mean" not in complaint(value)


@pytest.mark.parametrize("written", ["", "much", True, [], float("inf")])
def test_what_is_no_quantity_at_all_gets_examples(written: Any) -> None:
    value = document(metrics=metric("Resource", name="cpu", target={"type": "AverageValue", "averageValue": written}))
    assert "such as 10, 200m, 1500m or 15Mi" in complaint(value)


@pytest.mark.parametrize(
    ("value", "field", "advice"),
    [
        (
            document("v1", metrics=[]),
            "spec.metrics",
            "autoscaling/v1 has no metrics: write apiVersion: autoscaling/v2, or for a CPU target alone "
            "targetCPUUtilizationPercentage: 50",
        ),
        (
            document("v1", behavior={}),
            "spec.behavior",
            "autoscaling/v1 has no behavior: write apiVersion: autoscaling/v2",
        ),
        (
            document(targetCPUUtilizationPercentage=70),
            "spec.targetCPUUtilizationPercentage",
            "targetCPUUtilizationPercentage is autoscaling/v1: in autoscaling/v2 write metrics: [{type: Resource, "
            "resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]",
        ),
        (
            document(metrics=metric("Resource", name="cpu", targetAverageUtilization=80)),
            "spec.metrics[0].resource.targetAverageUtilization",
            "targetAverageUtilization is autoscaling/v2beta1: in autoscaling/v2 write "
            "target: {type: Utilization, averageUtilization: 80}",
        ),
        (
            document("v2beta1", metrics=metric("Resource", name="cpu", target={})),
            "spec.metrics[0].resource.target",
            "target is autoscaling/v2: write apiVersion: autoscaling/v2, or in autoscaling/v2beta1 "
            "targetAverageUtilization: 50 (or targetAverageValue: 200m) beside name",
        ),
        (
            document("v2beta2", behavior={"scaleUp": {"tolerance": "0.05"}}),
            "spec.behavior.scaleUp.tolerance",
            "autoscaling/v2beta2 has no tolerance: write apiVersion: autoscaling/v2",
        ),
    ],
)
def test_fields_of_another_version_are_named_with_what_to_write(value: Any, field: str, advice: str) -> None:
    """Scenario 25."""
    assert complaint(value) == f"{field}: Forbidden: {advice}"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("queue=worker_tasks", {"matchLabels": {"queue": "worker_tasks"}}),
        ("a=1,b==2", {"matchLabels": {"a": "1", "b": "2"}}),
        ("a!=1", {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
        (
            "a in (x,y),!b",
            {
                "matchExpressions": [
                    {"key": "a", "operator": "In", "values": ["x", "y"]},
                    {"key": "b", "operator": "DoesNotExist"},
                ]
            },
        ),
        ("", {}),
    ],
)
def test_a_selector_may_be_text(text: str, wanted: Any) -> None:
    source = {"metric": {"name": "q", "selector": text}, "target": {"type": "AverageValue", "averageValue": 30}}
    [read] = decode.decode(document(metrics=metric("External", **source))).spec.metrics
    assert read.external is not None
    assert v2.to_builtins(read.external.metric.selector) == wanted


@pytest.mark.parametrize("text", ["queue=", "a > 1", "queue worker"])
def test_a_selector_that_has_no_object_form_is_refused_or_empty(text: str) -> None:
    source = {"metric": {"name": "q", "selector": text}, "target": {"type": "AverageValue", "averageValue": 30}}
    reading = decode.read(document(metrics=metric("External", **source)))
    if text == "queue=":
        assert not reading.errors
    else:
        assert reading.errors[0].field == "spec.metrics[0].external.metric.selector"
        assert 'a selector reads like "queue=worker_tasks"' in reading.errors[0].message


def test_null_is_absent() -> None:
    value = {**document(minReplicas=None, metrics=None, behavior={"scaleUp": None}), "status": None}
    read = decode.decode(value)
    assert (read.spec.min_replicas, read.spec.metrics) == (None, ())
    assert read.spec.behavior == v2.HorizontalPodAutoscalerBehavior()


def test_metadata_that_decisions_do_not_need_is_known() -> None:
    metadata = {"name": "web", "managedFields": [{}], "finalizers": ["x"], "selfLink": "/", "labels": {"a": "b"}}
    assert decode.decode(document(metadata=metadata)).metadata.labels == {"a": "b"}
    assert complaint(document(metadata={"name": "web", "label": {}})).endswith('did you mean "labels"?')
    assert complaint(document(metadata={"name": "web", "labels": {"a": 1}})) == (
        'metadata.labels[a]: Invalid value: 1: must be text: write "1" in quotes'
    )


def test_what_aliases_blow_up_is_not_written_out() -> None:
    grown: list[Any] = ["x"]
    for _ in range(60):
        grown = [grown, grown]
    for metadata in ({"name": "web", "labels": {"a": grown}}, {"name": grown}):
        assert complaint(document(metadata=metadata)).endswith("Invalid value: […]: must be text")


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-02T03:04:05", 5])
def test_a_time_needs_its_zone(moment: Any) -> None:
    assert 'such as "2026-01-02T03:04:05Z"' in complaint({**document(), "status": {"lastScaleTime": moment}})


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("text", ""),
        ([], ""),
        (None, ""),
        ({}, "kind"),
        ({"kind": "Deployment"}, "kind"),
        ({"kind": "HorizontalPodAutoscaler"}, "apiVersion"),
        ({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v3"}, "apiVersion"),
        ({"kind": "HorizontalPodAutoscaler", "apiVersion": ["autoscaling/v2"]}, "apiVersion"),
    ],
)
def test_what_is_no_hpa_says_so(value: Any, field: str) -> None:
    with pytest.raises(decode.DecodeError) as raised:
        decode.decode(value)
    assert [error.field for error in raised.value.errors] == [field]


def test_all_that_is_wrong_is_said_at_once() -> None:
    value = document(maxReplica=3, maxReplicas="x", minReplicas="y", metrics=[{"type": 5}])
    assert [error.field for error in decode.read(value).errors] == [
        "spec.maxReplicas",
        "spec.maxReplica",
        "spec.minReplicas",
        "spec.metrics[0].type",
    ]

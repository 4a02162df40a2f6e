"""Decoding of HPA documents, and the errors of invalid ones."""

from typing import Any

import pytest
from support.hpas import decoded

from hpad.api import decode
from hpad.api import hpa as v2
from hpad.engine.spec import compile_metric

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def document(version: str = "v2", metadata: Any = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"autoscaling/{version}",
        "kind": "HorizontalPodAutoscaler",
        "metadata": metadata if metadata is not None else {"name": "web"},
        "spec": {"scaleTargetRef": TARGET, "maxReplicas": 3, **spec},
    }


def only_error(value: Any) -> str:
    """Returns the only error of the document."""
    [error] = decode.read(value).errors
    return error.text


def metric(kind: str, **source: Any) -> list[dict[str, Any]]:
    return [{"type": kind, kind[:1].lower() + kind[1:]: source}]


@pytest.mark.parametrize("version", ["v1", "v2beta1", "v2beta2", "v2"])
def test_every_version_is_read_as_v2(version: str) -> None:
    """Scenario 25."""
    read = decoded(document(version))
    assert (read.api_version, read.kind, read.spec.max_replicas) == ("autoscaling/v2", "HorizontalPodAutoscaler", 3)


def test_decoding_sets_no_defaults() -> None:
    read = decoded(document())
    assert (read.spec.min_replicas, read.spec.metrics, read.metadata.namespace) == (None, (), "")


def test_the_error_for_an_unknown_field_suggests_the_most_similar_one() -> None:
    assert only_error(document(maxReplica=10)) == (
        'spec.maxReplica: strict decoding error: unknown field "spec.maxReplica": did you mean "maxReplicas"?'
    )
    assert only_error(document(behaviour={})).endswith('did you mean "behavior"?')
    assert only_error({**document(), "Spec": {}}).endswith('did you mean "spec"?')


def test_the_error_for_an_unknown_field_lists_all_fields_if_none_is_similar() -> None:
    assert only_error(document(x=1)).endswith("metrics, behavior, syncPeriodSeconds, selectionStrategy")


def test_the_known_fields_are_read_beside_an_unknown_one() -> None:
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
            "spec.scaleTargetRef.name: Invalid value: 7: must be text: write it in quotes",
        ),
        (
            {"scaleTargetRef": {**TARGET, "name": False}},
            "spec.scaleTargetRef.name: Invalid value: false: must be text: write it in quotes",
        ),
    ],
)
def test_the_error_for_a_wrong_type_says_what_to_write(spec: dict[str, Any], message: str) -> None:
    assert only_error(document(**spec)) == message
    assert decode.read(document(**spec)).hpa is None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *[("200mm", "200m"), ("15MI", "15Mi"), ("1K", "1k"), ("2GB", "2G"), ("10 m", "10m"), ("0.5g", "0.5G")],
        *[("15MiB", "15Mi"), ("15mb", "15M")],
    ],
)
def test_the_error_for_a_wrong_unit_suggests_the_right_one(written: str, meant: str) -> None:
    value = document(metrics=metric("Resource", name="cpu", target={"type": "AverageValue", "averageValue": written}))
    message = only_error(value)
    assert message.startswith(f'spec.metrics[0].resource.target.averageValue: Invalid value: "{written}": ')
    assert message.endswith(f'; did you mean "{meant}"?')


@pytest.mark.parametrize("written", ["30s", "30 minutes", "50%", "3nb", "1..5MB", "30 messages", "many"])
def test_the_error_for_an_unclear_unit_has_no_suggestion(written: str) -> None:
    value = document(metrics=metric("Resource", name="cpu", target={"type": "AverageValue", "averageValue": written}))
    assert "did you mean" not in only_error(value)


@pytest.mark.parametrize("written", ["", "much", True, [], float("inf")])
def test_the_error_for_a_value_that_is_no_quantity_has_examples(written: Any) -> None:
    value = document(metrics=metric("Resource", name="cpu", target={"type": "AverageValue", "averageValue": written}))
    assert "such as 10, 200m, 1500m or 15Mi" in only_error(value)


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
            document("v2beta1", behavior={}),
            "spec.behavior",
            "autoscaling/v2beta1 has no behavior: write apiVersion: autoscaling/v2",
        ),
        (
            document("v2beta1", targetCPUUtilizationPercentage=70),
            "spec.targetCPUUtilizationPercentage",
            "targetCPUUtilizationPercentage is autoscaling/v1: in autoscaling/v2beta1 write metrics: [{type: Resource, "
            "resource: {name: cpu, targetAverageUtilization: 70}}]",
        ),
        (
            document("v2beta2", behavior={"scaleUp": {"tolerance": "0.05"}}),
            "spec.behavior.scaleUp.tolerance",
            "autoscaling/v2beta2 has no tolerance: write apiVersion: autoscaling/v2",
        ),
    ],
)
def test_the_error_for_a_field_of_another_version_says_what_to_write(value: Any, field: str, advice: str) -> None:
    """Scenario 25."""
    assert only_error(value) == f"{field}: Forbidden: {advice}"


@pytest.mark.parametrize(
    ("text", "expected"),
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
        ("a=1,a=2", {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["2"]}]}),
        ("queue=", {"matchLabels": {"queue": ""}}),
        ("", {}),
    ],
)
def test_a_selector_may_be_text(text: str, expected: Any) -> None:
    source = {"metric": {"name": "q", "selector": text}, "target": {"type": "AverageValue", "averageValue": 30}}
    [read] = decoded(document(metrics=metric("External", **source))).spec.metrics
    assert read.external is not None
    assert v2.to_builtins(read.external.metric.selector) == expected


@pytest.mark.parametrize("text", ["a > 1", "queue worker"])
def test_a_selector_without_an_object_form_is_an_error(text: str) -> None:
    source = {"metric": {"name": "q", "selector": text}, "target": {"type": "AverageValue", "averageValue": 30}}
    reading = decode.read(document(metrics=metric("External", **source)))
    assert reading.errors[0].path == "spec.metrics[0].external.metric.selector"
    assert 'a selector has the form "queue=worker_tasks"' in reading.errors[0].text


def test_null_counts_as_absent() -> None:
    value = {**document(minReplicas=None, metrics=None, behavior={"scaleUp": None}), "status": None}
    read = decoded(value)
    assert (read.spec.min_replicas, read.spec.metrics) == (None, ())
    assert read.spec.behavior == v2.HorizontalPodAutoscalerBehavior()


def test_null_in_a_list_of_texts_is_an_empty_text() -> None:
    selector = {"matchExpressions": [{"key": "k", "operator": "In", "values": [None, "x"]}]}
    metric = {"metric": {"name": "depth", "selector": selector}, "target": {"type": "Value", "value": 1}}
    [read] = decoded(document(metrics=[{"type": "External", "external": metric}])).spec.metrics
    assert read.external is not None
    assert read.external.metric.selector is not None
    assert read.external.metric.selector.match_expressions[0].values == ("", "x")


def test_null_in_a_map_is_an_empty_text() -> None:
    assert decoded(document(metadata={"name": "web", "labels": {"a": None}})).metadata.labels == {"a": ""}


@pytest.mark.parametrize("missing", ["key", "operator"])
def test_a_requirement_without_key_or_operator_is_the_metric_s_error(missing: str) -> None:
    """The API server does not validate the selector of a metric; hpad failed while it read the document."""
    requirement, target = {"key": "a", "operator": "Exists", missing: None}, {"type": "Value", "value": "3"}
    external = {"metric": {"name": "q", "selector": {"matchExpressions": [requirement]}}, "target": target}
    [spec] = decoded(document(metrics=[{"type": "External", "external": external}])).spec.metrics or ()
    assert '""' in (compile_metric(spec, "default").error or "")


def test_metadata_fields_that_are_not_read_are_no_errors() -> None:
    metadata = {"name": "web", "managedFields": [{}], "finalizers": ["x"], "selfLink": "/", "labels": {"a": "b"}}
    assert decoded(document(metadata=metadata)).metadata.labels == {"a": "b"}
    assert only_error(document(metadata={"name": "web", "label": {}})).endswith('did you mean "labels"?')
    assert only_error(document(metadata={"name": "web", "labels": {"a": 1}})) == (
        "metadata.labels[a]: Invalid value: 1: must be text: write it in quotes"
    )


def test_an_error_about_a_value_of_many_aliases_is_short() -> None:
    grown: list[Any] = ["x"]
    for _ in range(60):
        grown = [grown, grown]
    for metadata in ({"name": "web", "labels": {"a": grown}}, {"name": grown}):
        assert only_error(document(metadata=metadata)).endswith("Invalid value: […]: must be text")


@pytest.mark.parametrize("moment", ["yesterday", "2026-01-02T03:04:05", 5])
def test_a_time_without_a_zone_is_an_error(moment: Any) -> None:
    assert 'such as "2026-01-02T03:04:05Z"' in only_error({**document(), "status": {"lastScaleTime": moment}})


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
def test_a_document_that_is_no_hpa_has_an_error(value: Any, field: str) -> None:
    reading = decode.read(value)
    assert reading.hpa is None
    assert [error.path for error in reading.errors] == [field]


def test_all_errors_are_reported_at_once() -> None:
    value = document(maxReplica=3, maxReplicas="x", minReplicas="y", metrics=[{"type": 5}])
    assert [error.path for error in decode.read(value).errors] == [
        "spec.maxReplicas",
        "spec.maxReplica",
        "spec.minReplicas",
        "spec.metrics[0].type",
    ]

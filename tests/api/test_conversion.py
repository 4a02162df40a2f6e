"""Conversions: round trips as a property, and the quirks of the annotations."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpad.api import conversion, decode, hpa
from hpad.api.conversion import annotations
from hpad.api.quantity import Quantity
from hpad.api.selector import LabelSelector

names = st.text("abcxyz<&>", min_size=1, max_size=8)
quantities = st.builds(Quantity.from_milli, st.integers(1, 10**9))
percents = st.integers(1, 500)
selectors = st.none() | st.builds(LabelSelector, st.dictionaries(names, names, min_size=1, max_size=3))
identifiers = st.builds(hpa.MetricIdentifier, names, selectors)
references = st.builds(hpa.CrossVersionObjectReference, names, names, st.just("apps/v1"))
utilization = st.builds(lambda percent: hpa.MetricTarget(type="Utilization", average_utilization=percent), percents)
average = st.builds(lambda value: hpa.MetricTarget(type="AverageValue", average_value=value), quantities)
value = st.builds(lambda value: hpa.MetricTarget(type="Value", value=value), quantities)
memory = st.builds(hpa.ResourceMetricSource, st.just("memory"), utilization | average)
sources = st.one_of(
    st.builds(lambda source: hpa.MetricSpec("Resource", resource=source), memory),
    st.builds(
        lambda source: hpa.MetricSpec("ContainerResource", container_resource=source),
        st.builds(hpa.ContainerResourceMetricSource, st.just("cpu"), utilization | average, names),
    ),
    st.builds(
        lambda source: hpa.MetricSpec("Pods", pods=source), st.builds(hpa.PodsMetricSource, identifiers, average)
    ),
    st.builds(
        lambda source: hpa.MetricSpec("Object", object=source),
        st.builds(hpa.ObjectMetricSource, references, value | average, identifiers),
    ),
    st.builds(
        lambda source: hpa.MetricSpec("External", external=source),
        st.builds(hpa.ExternalMetricSource, identifiers, value | average),
    ),
)
cpu = st.builds(lambda goal: hpa.MetricSpec("Resource", resource=hpa.ResourceMetricSource("cpu", goal)), utilization)
# v1 keeps the CPU goal apart, and reads it back behind the others.
metrics = st.builds(lambda others, goal: (*others, *goal), st.lists(sources, max_size=4), st.lists(cpu, max_size=1))
policies = st.builds(
    hpa.HPAScalingPolicy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 900), st.integers(1, 1800)
)
rules = st.builds(
    hpa.HPAScalingRules,
    st.none() | st.integers(0, 3600),
    st.none() | st.sampled_from(["Max", "Min", "Disabled"]),
    st.none() | st.lists(policies, min_size=1, max_size=3).map(tuple),
    st.none() | quantities,
)
behaviors = st.none() | st.builds(hpa.HorizontalPodAutoscalerBehavior, st.none() | rules, st.none() | rules)
specs = st.builds(
    hpa.HorizontalPodAutoscalerSpec,
    references,
    st.none() | st.integers(0, 9),
    st.integers(1, 99),
    metrics.filter(bool),
    behaviors,
)
hpas = st.builds(lambda spec: hpa.HorizontalPodAutoscaler(spec=spec), specs)


@given(hpas)
def test_v2_to_v1_and_back_is_the_same(original: hpa.HorizontalPodAutoscaler) -> None:
    """Except a behavior without rules, which an API server does not keep: the annotation equals that of no behavior."""
    written = json.loads(json.dumps(hpa.to_builtins(conversion.to_v1(original))))
    assert written["apiVersion"] == "autoscaling/v1"
    expected = hpa.to_builtins(original)
    if expected["spec"].get("behavior") == {}:
        del expected["spec"]["behavior"]
    assert hpa.to_builtins(decode.decode(written)) == expected


@given(hpas)
def test_v2_reads_back_as_it_was_written(original: hpa.HorizontalPodAutoscaler) -> None:
    written = hpa.to_builtins(original)
    assert hpa.to_builtins(decode.decode(written)) == written


def v1(annotation: str, text: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "annotations": {annotation: text, "team": "a"}},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, **spec},
    }


def test_the_cpu_goal_comes_behind_the_metrics_of_the_annotation() -> None:
    text = json.dumps([{"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}])
    read = decode.decode(v1(annotations.METRICS, text, maxReplicas=3, targetCPUUtilizationPercentage=70))
    assert [metric.resource.name for metric in read.spec.metrics if metric.resource] == ["memory", "cpu"]
    assert read.metadata.annotations == {"team": "a"}


def test_a_v1_object_without_any_metric_means_cpu_at_eighty_percent() -> None:
    read = decode.decode(v1("other", "x", maxReplicas=3))
    assert hpa.to_builtins(read.spec.metrics) == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    ]


def test_an_annotation_is_read_whatever_the_case_of_its_fields_and_with_unknown_ones() -> None:
    text = '{"scaleup": {"STABILIZATIONWINDOWSECONDS": 60, "colour": "red", "policies": null}, "ScaleDown": null}'
    read = decode.decode(v1(annotations.BEHAVIOR, text, maxReplicas=3))
    assert read.spec.behavior == hpa.HorizontalPodAutoscalerBehavior(
        scale_up=hpa.HPAScalingRules(stabilization_window_seconds=60)
    )


DEEP = "[" * 100_000 + "]" * 100_000
NO_LISTS = [
    "",
    "[",
    "[1]",
    '{"a": 1}',
    "no JSON",
    "1",
    '"text"',
    '[{"type": 1}]',
    "[[]]",
    DEEP,
    '[{"type": "Pods"}] []',
]
WINDOWS = [f'{{"ScaleUp": {{"StabilizationWindowSeconds": {seconds}}}}}' for seconds in ("1.5", 2**31, '"60"')]
NO_BEHAVIORS = ["", "{", "[]", "1", '{"ScaleUp": 1}', '{"ScaleUp": {"Policies": 7}}', DEEP, *WINDOWS]


@pytest.mark.parametrize("text", [*NO_LISTS, '[{"type": "Pods", "pods": {"targetAverageValue": "x"}}]', "null", "[]"])
def test_metrics_that_cannot_be_read_are_none(text: str) -> None:
    """As in Kubernetes: the CPU target of the spec applies."""
    read = decode.decode(v1(annotations.METRICS, text, maxReplicas=3, targetCPUUtilizationPercentage=70))
    assert [metric.resource.target.average_utilization for metric in read.spec.metrics if metric.resource] == [70]
    assert len(read.spec.metrics) == 1
    assert read.metadata.annotations == {"team": "a"}


@pytest.mark.parametrize("version", ["autoscaling/v1", "autoscaling/v2beta1"])
@pytest.mark.parametrize(
    "text", [*NO_BEHAVIORS, "{}", "null", '{"ScaleUp": null}', '{"ScaleUp": null, "scaledown": null, "other": 1}']
)
def test_a_behavior_that_cannot_be_read_or_has_no_rules_is_none(version: str, text: str) -> None:
    read = decode.decode({**v1(annotations.BEHAVIOR, text, maxReplicas=3), "apiVersion": version})
    assert read.spec.behavior is None
    assert hpa.defaulted(read).spec.behavior is None


def test_a_behavior_with_rules_for_one_direction_is_filled_in() -> None:
    read = decode.decode(v1(annotations.BEHAVIOR, '{"ScaleUp": {}}', maxReplicas=3))
    assert read.spec.behavior == hpa.HorizontalPodAutoscalerBehavior(scale_up=hpa.HPAScalingRules())


@pytest.mark.parametrize("text", [*NO_LISTS, "null"])
def test_conditions_that_cannot_be_read_are_none(text: str) -> None:
    assert decode.decode(v1(annotations.CONDITIONS, text, maxReplicas=3)).status.conditions == ()


@pytest.mark.parametrize(("text", "percent"), [*((text, 40) for text in NO_LISTS), ("null", None), ("[]", None)])
def test_readings_that_cannot_be_read_leave_the_cpu_reading_of_the_status(text: str, percent: int | None) -> None:
    """A list that can be read takes its place, even an empty one."""
    written = v1(annotations.CURRENT_METRICS, text, maxReplicas=3)
    written["status"] = {"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 40}
    readings = decode.decode(written).status.current_metrics or ()
    found = [each.resource.current.average_utilization for each in readings if each.resource]
    assert found == ([] if percent is None else [percent])


def test_a_metric_that_is_null_is_one_without_a_type() -> None:
    """Validation refuses it then."""
    [metric] = decode.decode(v1(annotations.METRICS, "[null]", maxReplicas=3)).spec.metrics
    assert metric.type == ""


def test_conditions_and_readings_come_from_annotations() -> None:
    conditions = '[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]'
    read = decode.decode(v1(annotations.CONDITIONS, conditions, maxReplicas=3))
    assert [(held.type, held.status) for held in read.status.conditions] == [("AbleToScale", "True")]
    readings = '[{"type":"Pods","pods":{"metricName":"p","currentAverageValue":"12"}}]'
    read = decode.decode(v1(annotations.CURRENT_METRICS, readings, maxReplicas=3))
    assert hpa.to_builtins(read.status.current_metrics) == [
        {"type": "Pods", "pods": {"metric": {"name": "p"}, "current": {"averageValue": "12"}}}
    ]


def test_an_object_goal_of_zero_beside_an_average_is_what_v1_writes_for_none() -> None:
    source = {"target": {"kind": "Service", "name": "web"}, "metricName": "rps", "targetValue": "0"}
    both = json.dumps([{"type": "Object", "object": {**source, "averageValue": "2"}}])
    [metric] = decode.decode(v1(annotations.METRICS, both, maxReplicas=3)).spec.metrics
    assert metric.object is not None
    assert hpa.to_builtins(metric.object.target) == {"type": "AverageValue", "averageValue": "2"}
    alone = json.dumps([{"type": "Object", "object": source}])
    [metric] = decode.decode(v1(annotations.METRICS, alone, maxReplicas=3)).spec.metrics
    assert metric.object is not None
    assert hpa.to_builtins(metric.object.target) == {"type": "Value", "value": "0"}


def test_a_second_cpu_goal_is_not_lost() -> None:
    goals = tuple(
        hpa.MetricSpec(
            "Resource",
            resource=hpa.ResourceMetricSource("cpu", hpa.MetricTarget("Utilization", average_utilization=percent)),
        )
        for percent in (50, 60)
    )
    written = conversion.to_v1(hpa.HorizontalPodAutoscaler(spec=hpa.HorizontalPodAutoscalerSpec(metrics=goals)))
    assert written.spec.target_cpu_utilization_percentage == 50
    assert set(map(str, decode.decode(hpa.to_builtins(written)).spec.metrics)) == set(map(str, goals))


def test_every_metric_of_v2beta1() -> None:
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "targetAverageUtilization": 80}},
        {
            "type": "ContainerResource",
            "containerResource": {"name": "cpu", "container": "app", "targetAverageValue": "1"},
        },
        {"type": "Pods", "pods": {"metricName": "packets-per-second", "targetAverageValue": "1k"}},
        {
            "type": "Object",
            "object": {"metricName": "rps", "target": {"kind": "Ingress", "name": "main"}, "targetValue": 2000},
        },
        {
            "type": "External",
            "external": {"metricName": "q", "metricSelector": "queue=tasks", "targetAverageValue": 30},
        },
    ]
    document = {
        "apiVersion": "autoscaling/v2beta1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "test-api-deploy"},
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "test-api-deploy"},
            "maxReplicas": 29,
            "metrics": metrics,
        },
    }
    found = hpa.to_builtins(decode.decode(document).spec.metrics)
    assert [metric.get(name) for metric in found for name in metric if name != "type"] == [
        {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
        {"name": "cpu", "container": "app", "target": {"type": "AverageValue", "averageValue": "1"}},
        {"metric": {"name": "packets-per-second"}, "target": {"type": "AverageValue", "averageValue": "1k"}},
        {
            "describedObject": {"kind": "Ingress", "name": "main"},
            "metric": {"name": "rps"},
            "target": {"type": "Value", "value": "2k"},
        },
        {
            "metric": {"name": "q", "selector": {"matchLabels": {"queue": "tasks"}}},
            "target": {"type": "AverageValue", "averageValue": "30"},
        },
    ]

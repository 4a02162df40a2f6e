"""Conversion between API versions: round trips as a property, and the annotations that carry fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hpas import decoded

from hpad.api import hpa, older
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
cpu = st.builds(
    lambda target: hpa.MetricSpec("Resource", resource=hpa.ResourceMetricSource("cpu", target)), utilization
)
# v1 has the CPU target in a field of its own; conversion back puts it after the other metrics.
metrics = st.builds(lambda others, cpu: (*others, *cpu), st.lists(sources, max_size=4), st.lists(cpu, max_size=1))
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
    """A behavior without rules is the exception: conversion back drops it, as the API server does."""
    written = json.loads(json.dumps(hpa.to_builtins(older.to_v1(original))))
    assert written["apiVersion"] == "autoscaling/v1"
    expected = hpa.to_builtins(original)
    if expected["spec"].get("behavior") == {}:
        del expected["spec"]["behavior"]
    assert hpa.to_builtins(decoded(written)) == expected


@given(hpas)
def test_v2_reads_back_as_it_was_written(original: hpa.HorizontalPodAutoscaler) -> None:
    written = hpa.to_builtins(original)
    assert hpa.to_builtins(decoded(written)) == written


def v1(annotation: str, text: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "annotations": {annotation: text, "team": "a"}},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, **spec},
    }


def test_the_cpu_target_comes_after_the_metrics_of_the_annotation() -> None:
    text = json.dumps([{"type": "Resource", "resource": {"name": "memory", "targetAverageValue": "1Gi"}}])
    converted = decoded(v1(older.METRICS, text, maxReplicas=3, targetCPUUtilizationPercentage=70))
    assert [metric.resource.name for metric in converted.spec.metrics if metric.resource] == ["memory", "cpu"]
    assert converted.metadata.annotations == {"team": "a"}


@pytest.mark.parametrize("version", ["autoscaling/v1", "autoscaling/v2beta1", "autoscaling/v2beta2", "autoscaling/v2"])
@pytest.mark.parametrize("name", ["scale-down-tolerance", "scale-up-tolerance", "behavior", "conditions"])
def test_annotations_that_carry_fields_are_removed(version: str, name: str) -> None:
    """Source: helpers.go: DropRoundTripHorizontalPodAutoscalerAnnotations."""
    document = v1(f"autoscaling.alpha.kubernetes.io/{name}", "x", maxReplicas=3)
    assert decoded({**document, "apiVersion": version}).metadata.annotations == {"team": "a"}


def test_an_unknown_annotation_of_the_same_prefix_stays() -> None:
    name = "autoscaling.alpha.kubernetes.io/update-policy"
    assert decoded(v1(name, "x", maxReplicas=3)).metadata.annotations == {name: "x", "team": "a"}


def test_a_v1_object_without_any_metric_means_cpu_at_eighty_percent() -> None:
    converted = decoded(v1("other", "x", maxReplicas=3))
    assert hpa.to_builtins(converted.spec.metrics) == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
    ]


def test_an_annotation_may_have_fields_in_another_case_and_unknown_fields() -> None:
    text = '{"scaleup": {"STABILIZATIONWINDOWSECONDS": 60, "colour": "red", "policies": null}, "ScaleDown": null}'
    converted = decoded(v1(older.BEHAVIOR, text, maxReplicas=3))
    assert converted.spec.behavior == hpa.HorizontalPodAutoscalerBehavior(
        scale_up=hpa.HPAScalingRules(stabilization_window_seconds=60)
    )


DEEP = "[" * 100_000 + "]" * 100_000
NOT_LISTS = [
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
NOT_BEHAVIORS = ["", "{", "[]", "1", '{"ScaleUp": 1}', '{"ScaleUp": {"Policies": 7}}', DEEP, *WINDOWS]


@pytest.mark.parametrize("text", [*NOT_LISTS, '[{"type": "Pods", "pods": {"targetAverageValue": "x"}}]', "null", "[]"])
def test_metrics_of_an_unreadable_annotation_are_ignored(text: str) -> None:
    """As in Kubernetes: the CPU target of the spec applies."""
    converted = decoded(v1(older.METRICS, text, maxReplicas=3, targetCPUUtilizationPercentage=70))
    assert [metric.resource.target.average_utilization for metric in converted.spec.metrics if metric.resource] == [70]
    assert len(converted.spec.metrics) == 1
    assert converted.metadata.annotations == {"team": "a"}


@pytest.mark.parametrize("version", ["autoscaling/v1", "autoscaling/v2beta1"])
@pytest.mark.parametrize(
    "text", [*NOT_BEHAVIORS, "{}", "null", '{"ScaleUp": null}', '{"ScaleUp": null, "scaledown": null, "other": 1}']
)
def test_an_unreadable_behavior_or_one_without_rules_is_ignored(version: str, text: str) -> None:
    converted = decoded({**v1(older.BEHAVIOR, text, maxReplicas=3), "apiVersion": version})
    assert converted.spec.behavior is None
    assert hpa.defaulted(converted).spec.behavior is None


def test_a_behavior_may_have_empty_rules_for_one_direction() -> None:
    converted = decoded(v1(older.BEHAVIOR, '{"ScaleUp": {}}', maxReplicas=3))
    assert converted.spec.behavior == hpa.HorizontalPodAutoscalerBehavior(scale_up=hpa.HPAScalingRules())


@pytest.mark.parametrize("text", [*NOT_LISTS, "null"])
def test_unreadable_conditions_are_ignored(text: str) -> None:
    assert decoded(v1(older.CONDITIONS, text, maxReplicas=3)).status.conditions == ()


@pytest.mark.parametrize(("text", "percent"), [*((text, 40) for text in NOT_LISTS), ("null", None), ("[]", None)])
def test_the_cpu_field_of_the_status_replaces_unreadable_current_metrics(text: str, percent: int | None) -> None:
    """A readable list has precedence over the field, even an empty one."""
    written = v1(older.CURRENT_METRICS, text, maxReplicas=3)
    written["status"] = {"currentReplicas": 1, "desiredReplicas": 1, "currentCPUUtilizationPercentage": 40}
    current = decoded(written).status.current_metrics or ()
    found = [each.resource.current.average_utilization for each in current if each.resource]
    assert found == ([] if percent is None else [percent])


def test_a_null_metric_is_a_metric_without_a_type() -> None:
    """Validation refuses it."""
    [metric] = decoded(v1(older.METRICS, "[null]", maxReplicas=3)).spec.metrics
    assert metric.type == ""


def test_conditions_and_current_metrics_come_from_annotations() -> None:
    conditions = '[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z"}]'
    converted = decoded(v1(older.CONDITIONS, conditions, maxReplicas=3))
    assert [(each.type, each.status) for each in converted.status.conditions] == [("AbleToScale", "True")]
    metrics = '[{"type":"Pods","pods":{"metricName":"p","currentAverageValue":"12"}}]'
    converted = decoded(v1(older.CURRENT_METRICS, metrics, maxReplicas=3))
    assert hpa.to_builtins(converted.status.current_metrics) == [
        {"type": "Pods", "pods": {"metric": {"name": "p"}, "current": {"averageValue": "12"}}}
    ]


def test_an_object_value_of_zero_beside_an_average_counts_as_absent() -> None:
    source = {"target": {"kind": "Service", "name": "web"}, "metricName": "rps", "targetValue": "0"}
    both = json.dumps([{"type": "Object", "object": {**source, "averageValue": "2"}}])
    [metric] = decoded(v1(older.METRICS, both, maxReplicas=3)).spec.metrics
    assert metric.object is not None
    assert hpa.to_builtins(metric.object.target) == {"type": "AverageValue", "averageValue": "2"}
    alone = json.dumps([{"type": "Object", "object": source}])
    [metric] = decoded(v1(older.METRICS, alone, maxReplicas=3)).spec.metrics
    assert metric.object is not None
    assert hpa.to_builtins(metric.object.target) == {"type": "Value", "value": "0"}


def test_a_second_cpu_target_is_not_lost() -> None:
    targets = tuple(
        hpa.MetricSpec(
            "Resource",
            resource=hpa.ResourceMetricSource("cpu", hpa.MetricTarget("Utilization", average_utilization=percent)),
        )
        for percent in (50, 60)
    )
    written = older.to_v1(hpa.HorizontalPodAutoscaler(spec=hpa.HorizontalPodAutoscalerSpec(metrics=targets)))
    assert written.spec.target_cpu_utilization_percentage == 50
    assert set(map(str, decoded(hpa.to_builtins(written)).spec.metrics)) == set(map(str, targets))


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
    found = hpa.to_builtins(decoded(document).spec.metrics)
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

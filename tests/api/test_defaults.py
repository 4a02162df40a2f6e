"""Defaults: the table of the API reference, and idempotence."""

from typing import Any

import msgspec
import pytest

from hpad.api import hpa

UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def filled(spec: dict[str, Any]) -> dict[str, Any]:
    once = hpa.defaulted(hpa.from_builtins({"metadata": {"name": "web"}, "spec": spec}))
    assert hpa.defaulted(once) == once
    found: dict[str, Any] = hpa.to_builtins(once)["spec"]
    return found


def test_an_empty_spec_gets_one_replica_and_cpu_at_eighty_percent() -> None:
    spec = filled({"maxReplicas": 3})
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}
    assert spec["minReplicas"] == 1
    assert spec["metrics"] == [{"type": "Resource", "resource": cpu}]
    assert "behavior" not in spec


def test_zero_replicas_are_not_replaced_by_the_default() -> None:
    assert filled({"minReplicas": 0, "maxReplicas": 3})["minReplicas"] == 0


@pytest.mark.parametrize("behavior", [{}, {"scaleUp": {}}, {"scaleDown": {}}, {"scaleUp": {}, "scaleDown": {}}])
def test_a_behavior_without_rules_gets_both(behavior: dict[str, Any]) -> None:
    assert filled({"maxReplicas": 3, "behavior": behavior})["behavior"] == {"scaleUp": UP, "scaleDown": DOWN}


@pytest.mark.parametrize(
    ("rules", "missing"),
    [
        ({"stabilizationWindowSeconds": 60}, ("selectPolicy", "policies")),
        ({"selectPolicy": "Disabled"}, ("stabilizationWindowSeconds", "policies")),
        (
            {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            ("stabilizationWindowSeconds", "selectPolicy"),
        ),
        ({"policies": []}, ("stabilizationWindowSeconds", "selectPolicy")),
    ],
)
def test_fields_that_are_set_stay_and_the_others_get_defaults(rules: dict[str, Any], missing: tuple[str, ...]) -> None:
    found = filled({"maxReplicas": 3, "behavior": {"scaleUp": rules}})["behavior"]["scaleUp"]
    assert found == {**rules, **{name: UP[name] for name in missing}}


def test_tolerance_is_kept_and_has_no_default() -> None:
    behavior = filled({"maxReplicas": 3, "behavior": {"scaleDown": {"tolerance": "50m"}}})["behavior"]
    assert behavior == {"scaleUp": UP, "scaleDown": {**DOWN, "tolerance": "50m"}}


def test_minimum_and_metrics_can_be_filled_in_without_the_behavior() -> None:
    behavior = hpa.HorizontalPodAutoscalerBehavior(scale_up=hpa.HPAScalingRules(select_policy="Min"))
    original = hpa.HorizontalPodAutoscaler(spec=hpa.HorizontalPodAutoscalerSpec(max_replicas=2, behavior=behavior))
    once = hpa.with_minimum_and_metrics(original)
    assert once.spec.behavior is behavior
    assert once.spec == msgspec.structs.replace(original.spec, min_replicas=1, metrics=(hpa.DEFAULT_METRIC,))

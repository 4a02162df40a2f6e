"""`spec.behavior` as autoscaling/v1 and v2beta1 carry it in an annotation: Kubernetes' internal form.

That form has Go's own field names (`StabilizationWindowSeconds`) and writes what is absent as null.
"""

import msgspec

from hpad.model import hpa as v2
from hpad.model.quantity import Quantity


class _Wire(msgspec.Struct, frozen=True, rename="pascal"):
    """How every struct of this file meets JSON."""


class ScalingPolicy(_Wire, frozen=True):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(_Wire, frozen=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: Quantity | None = None


class Behavior(_Wire, frozen=True):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


def to_v2(behavior: Behavior | None) -> v2.HorizontalPodAutoscalerBehavior | None:
    """The same rules under the names of the API; without rules for a direction there is no behavior at all."""
    if behavior is None or behavior == Behavior():
        return None
    return v2.HorizontalPodAutoscalerBehavior(_rules_to_v2(behavior.scale_up), _rules_to_v2(behavior.scale_down))


def from_v2(behavior: v2.HorizontalPodAutoscalerBehavior) -> Behavior:
    """The same rules under Go's names."""
    return Behavior(_rules_from_v2(behavior.scale_up), _rules_from_v2(behavior.scale_down))


def _rules_to_v2(rules: ScalingRules | None) -> v2.HPAScalingRules | None:
    if rules is None:
        return None
    policies = None
    if rules.policies is not None:
        policies = tuple(v2.HPAScalingPolicy(each.type, each.value, each.period_seconds) for each in rules.policies)
    return v2.HPAScalingRules(rules.stabilization_window_seconds, rules.select_policy, policies, rules.tolerance)


def _rules_from_v2(rules: v2.HPAScalingRules | None) -> ScalingRules | None:
    if rules is None:
        return None
    policies = None
    if rules.policies is not None:
        policies = tuple(ScalingPolicy(each.type, each.value, each.period_seconds) for each in rules.policies)
    return ScalingRules(rules.stabilization_window_seconds, rules.select_policy, policies, rules.tolerance)

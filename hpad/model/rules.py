"""spec.behavior, worked out once per object: windows and periods as durations, nothing left to default."""

from datetime import timedelta
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerBehavior, HPAScalingPolicy, HPAScalingRules

MAX_CHANGE: Final = "Max"
MIN_CHANGE: Final = "Min"
DISABLED: Final = "Disabled"
PODS: Final = "Pods"
PERCENT: Final = "Percent"

_FOUR_PODS: Final = HPAScalingPolicy(type=PODS, value=4, period_seconds=15)
_ALL: Final = HPAScalingPolicy(type=PERCENT, value=100, period_seconds=15)
_NOTHING: Final = timedelta(0)


class Policy(msgspec.Struct, frozen=True):
    """At most `value` pods, or percent, within `period`."""

    type: str
    value: int
    period: timedelta

    def __str__(self) -> str:
        unit = "%" if self.type == PERCENT else " pods"
        return f"{self.value}{unit} in {self.period.total_seconds():g} s"


class Rules(msgspec.Struct, frozen=True):
    """The rules of one direction; `window` and `tolerance` are None where the daemon's own hold."""

    window: timedelta | None
    select: str
    policies: tuple[Policy, ...]
    longest: timedelta
    tolerance: float | None


class Behavior(msgspec.Struct, frozen=True):
    up: Rules
    down: Rules


def compile(behavior: HorizontalPodAutoscalerBehavior | None) -> Behavior | None:
    """The rules of both directions; None where the spec has no behavior (other rules hold then)."""
    if behavior is None:
        return None
    up = behavior.scale_up or HPAScalingRules()
    down = behavior.scale_down or HPAScalingRules()
    return Behavior(
        up=_rules(up, _NOTHING, (_FOUR_PODS, _ALL)),
        down=_rules(down, None, (_ALL,)),
    )


def _rules(rules: HPAScalingRules, window: timedelta | None, policies: tuple[HPAScalingPolicy, ...]) -> Rules:
    if rules.stabilization_window_seconds is not None:
        window = timedelta(seconds=rules.stabilization_window_seconds)
    compiled = tuple(
        Policy(policy.type, policy.value, timedelta(seconds=policy.period_seconds))
        for policy in (policies if rules.policies is None else rules.policies)
    )
    return Rules(
        window=window,
        select=rules.select_policy or MAX_CHANGE,
        policies=compiled,
        longest=max((policy.period for policy in compiled), default=_NOTHING),
        tolerance=None if rules.tolerance is None else float(rules.tolerance),
    )

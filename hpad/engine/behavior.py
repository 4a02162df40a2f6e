"""spec.behavior, worked out once per object: windows and periods as durations, nothing left to default.

Limits of one step: the policies of spec.behavior, minimum and maximum.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerBehavior, HPAScalingPolicy, HPAScalingRules
from hpad.api.quantity import MAX_INT32, MIN_INT32, ceil_int32, float_to_int32, int32
from hpad.engine.history import History, Rescale

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


def compile_behavior(behavior: HorizontalPodAutoscalerBehavior | None) -> Behavior | None:
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


Rescales = tuple[Rescale, ...]


class Limited(msgspec.Struct, frozen=True, gc=False):
    """The count after the limits; reason and message are those of the ScalingLimited condition.

    `said` names for people the limit that changed the count; "" where none did.
    """

    replicas: int
    reason: str
    message: str
    said: str = ""


_WITHIN: Final = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FAST_UP: Final = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_TOO_FAST_DOWN: Final = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
_TOO_MANY: Final = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
TOO_FEW: Final = "TooFewReplicas"
_TOO_FEW: Final = (TOO_FEW, "the desired replica count is less than the minimum replica count")


def limit(
    wanted: int, current: int, low: int, high: int, behavior: Behavior, history: History, now: datetime
) -> Limited:
    """Hold a step to what policies and bounds allow: growing to the maximum, shrinking to the minimum."""
    if wanted > current:
        reachable = max(current, _highest(behavior.up, current, history, now))
        if wanted > high <= reachable:
            return _at_most(high)
        if wanted > reachable:
            return Limited(reachable, *_TOO_FAST_UP, f"growth is limited to {reachable}{_by(behavior.up, 'scaleUp')}")
    elif wanted < current:
        reachable = min(current, _lowest(behavior.down, current, history, now))
        if wanted < low >= reachable:
            return _at_least(low)
        if wanted < reachable:
            said = f"shrinking is limited to {reachable}{_by(behavior.down, 'scaleDown')}"
            return Limited(reachable, *_TOO_FAST_DOWN, said)
    return Limited(wanted, *_WITHIN)


def limit_plainly(wanted: int, current: int, low: int, high: int) -> Limited:
    """Without spec.behavior: at most twice as many, or four, and never outside the bounds."""
    reachable = float_to_int32(max(2.0 * current, 4.0))
    if wanted < low:
        return _at_least(low)
    if wanted > high <= reachable:
        return _at_most(high)
    if wanted > reachable:
        said = f"growth is limited to {reachable} for now (twice as many at most, or 4)"
        return Limited(reachable, *_TOO_FAST_UP, said)
    return Limited(wanted, *_WITHIN)


def _at_most(high: int) -> Limited:
    return Limited(high, *_TOO_MANY, f"the maximum is {high}")


def _at_least(low: int) -> Limited:
    return Limited(low, *_TOO_FEW, f"the minimum is {low}")


def _by(rules: Rules, direction: str) -> str:
    """The rules of one direction as a reason."""
    if rules.select == DISABLED:
        return f", since {direction} is disabled"
    joined = (" and " if rules.select == MIN_CHANGE else " or ").join(map(str, rules.policies))
    return f" for now ({direction} policies: {joined or 'none'})"


def _highest(rules: Rules, current: int, history: History, now: datetime) -> int:
    """How far up the policies let the target go now."""
    if rules.select == DISABLED:
        return current
    timid = rules.select == MIN_CHANGE
    result = MAX_INT32 if timid else MIN_INT32
    reach = 0
    ups, downs = history.scale_ups, _certain(history.scale_downs)
    for policy in rules.policies:
        start = _at_start(current, ups, downs, now - policy.period)
        if policy.type == PODS:
            reach = int32(start + policy.value)
        elif policy.type == PERCENT:
            # Rounded up: rounded down, a small target would never grow.
            reach = ceil_int32(float(start) * (1 + float(policy.value) / 100))
        result = min(result, reach) if timid else max(result, reach)
    return result


def _lowest(rules: Rules, current: int, history: History, now: datetime) -> int:
    """How far down the policies let the target go now."""
    if rules.select == DISABLED:
        return current
    timid = rules.select == MIN_CHANGE
    result = MIN_INT32 if timid else MAX_INT32
    reach = 0
    ups, downs = _certain(history.scale_ups), history.scale_downs
    for policy in rules.policies:
        start = _at_start(current, ups, downs, now - policy.period)
        if policy.type == PODS:
            reach = int32(start - policy.value)
        elif policy.type == PERCENT:
            reach = float_to_int32(float(start) * (1 - float(policy.value) / 100))
        result = max(result, reach) if timid else min(result, reach)
    return result


def _at_start(current: int, ups: Rescales, downs: Rescales, cutoff: datetime) -> int:
    """How many replicas there were when the period began."""
    return int32(current - _changed(ups, cutoff) + _changed(downs, cutoff))


def _certain(rescales: Rescales) -> Rescales:
    """Growth that perhaps was none must not let a target shrink further, nor the other way round."""
    return tuple(held for held in rescales if not held.uncertain) if rescales else rescales


def _changed(rescales: Rescales, cutoff: datetime) -> int:
    return sum(rescale.change for rescale in rescales if rescale.timestamp > cutoff) if rescales else 0

"""The compiled form of spec.behavior, and the limits of one step: scaling policies, minimum and maximum.

Sources: KEP-853 and Kubernetes 1.36, horizontal.go.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import SCALE_DOWN, SCALE_UP, HorizontalPodAutoscalerBehavior, HPAScalingRules, with_rules
from hpad.api.quantity import MAX_INT32, MIN_INT32, ceil_int32, float_to_int32, int32
from hpad.engine.history import History, Rescale

MAX_CHANGE: Final = "Max"
MIN_CHANGE: Final = "Min"
DISABLED: Final = "Disabled"
PODS: Final = "Pods"
PERCENT: Final = "Percent"

_NOTHING: Final = timedelta(0)


class CompiledPolicy(msgspec.Struct, frozen=True, gc=False):
    """Allows a change of at most `value` pods, or percent, within `period`."""

    type: str
    value: int
    period: timedelta

    def __str__(self) -> str:
        unit = "%" if self.type == PERCENT else " pod" if self.value == 1 else " pods"
        return f"{self.value}{unit} in {self.period.total_seconds():g} s"


class DirectionRules(msgspec.Struct, frozen=True, gc=False):
    """The compiled rules of one direction. `longest` is the longest period of the policies.

    `window` and `tolerance` are None where the settings of the daemon apply.
    """

    window: timedelta | None
    select: str
    policies: tuple[CompiledPolicy, ...]
    longest: timedelta
    tolerance: float | None


class CompiledBehavior(msgspec.Struct, frozen=True, gc=False):
    up: DirectionRules
    down: DirectionRules


def compile_behavior(behavior: HorizontalPodAutoscalerBehavior | None) -> CompiledBehavior | None:
    """Returns the rules of both directions with all defaults; None where the spec has no behavior."""
    if behavior is None:
        return None
    return CompiledBehavior(
        up=_compile_direction(with_rules(behavior.scale_up, SCALE_UP)),
        down=_compile_direction(with_rules(behavior.scale_down, SCALE_DOWN)),
    )


def _compile_direction(rules: HPAScalingRules) -> DirectionRules:
    seconds = rules.stabilization_window_seconds
    compiled = tuple(
        CompiledPolicy(policy.type, policy.value, timedelta(seconds=policy.period_seconds))
        for policy in rules.policies or ()
    )
    return DirectionRules(
        window=None if seconds is None else timedelta(seconds=seconds),
        select=rules.select_policy or MAX_CHANGE,
        policies=compiled,
        longest=max((policy.period for policy in compiled), default=_NOTHING),
        tolerance=None if rules.tolerance is None else float(rules.tolerance),
    )


class Limited(msgspec.Struct, frozen=True, gc=False):
    """The count after the limits. `reason` and `message` belong to the condition ScalingLimited.

    `explanation` names the limit that changed the count; "" where none did.
    """

    replicas: int
    reason: str
    message: str
    explanation: str = ""


SCALE_UP_LIMIT: Final = "ScaleUpLimit"
SCALE_DOWN_LIMIT: Final = "ScaleDownLimit"
TOO_MANY: Final = "TooManyReplicas"
TOO_FEW: Final = "TooFewReplicas"
_WITHIN: Final = ("DesiredWithinRange", "the desired count is within the acceptable range")
_TOO_FAST_UP: Final = (SCALE_UP_LIMIT, "the desired replica count is increasing faster than the maximum scale rate")
_TOO_FAST_DOWN: Final = (SCALE_DOWN_LIMIT, "the desired replica count is decreasing faster than the maximum scale rate")
_TOO_MANY: Final = (TOO_MANY, "the desired replica count is more than the maximum replica count")
_TOO_FEW: Final = (TOO_FEW, "the desired replica count is less than the minimum replica count")


def limit(
    desired: int,
    current: int,
    low: int,
    high: int,
    behavior: CompiledBehavior,
    history: History,
    now: datetime,
    *,
    huge: bool,
) -> Limited:
    """Limits a step by the policies of spec.behavior and by `low` and `high`. `huge`: see `reaches`.

    Source: Kubernetes 1.36, horizontal.go: convertDesiredReplicasWithBehaviorRate.
    """
    if desired > current:
        reachable = allowed(behavior.up, current, history, now, up=True, huge=huge)
        if desired > high <= reachable:
            return _at_most(high)
        if desired > reachable:
            text = f"growth is limited to {reachable}{_by(behavior.up, 'scaleUp')}"
            return Limited(reachable, *_TOO_FAST_UP, text)
    elif desired < current:
        reachable = allowed(behavior.down, current, history, now, up=False, huge=huge)
        if desired < low >= reachable:
            return _at_least(low)
        if desired < reachable:
            text = f"shrinking is limited to {reachable}{_by(behavior.down, 'scaleDown')}"
            return Limited(reachable, *_TOO_FAST_DOWN, text)
    return Limited(desired, *_WITHIN)


def limit_without_behavior(desired: int, current: int, low: int, high: int) -> Limited:
    """Limits a step without spec.behavior: to twice the current count or 4, and to `low` and `high`.

    Source: Kubernetes 1.36, horizontal.go: convertDesiredReplicasWithRules and calculateScaleUpLimit.
    """
    reachable = float_to_int32(max(2.0 * current, 4.0))
    # Shrinking is not limited. The minimum is applied first, so it may exceed twice the current count.
    if desired < low:
        return _at_least(low)
    if desired > high <= reachable:
        return _at_most(high)
    if desired > reachable:
        text = f"growth is limited to {reachable} for now (the larger of twice the count and 4)"
        return Limited(reachable, *_TOO_FAST_UP, text)
    return Limited(desired, *_WITHIN)


def _at_most(high: int) -> Limited:
    return Limited(high, *_TOO_MANY, f"the maximum is {high}")


def _at_least(low: int) -> Limited:
    return Limited(low, *_TOO_FEW, f"the minimum is {low}")


def _by(rules: DirectionRules, direction: str) -> str:
    """Names the rules of one direction as the cause of a limit."""
    if rules.select == DISABLED:
        return f", since {direction} is disabled"
    joined = (" and " if rules.select == MIN_CHANGE else " or ").join(map(str, rules.policies))
    return f" for now ({direction} policies: {joined or 'none'})"


class Reach(NamedTuple):
    """The count `allows` that one policy permits now, from `start`, the count before the rescales of its period."""

    policy: CompiledPolicy
    start: int
    allows: int


def reaches(
    rules: DirectionRules, current: int, history: History, now: datetime, *, up: bool, huge: bool
) -> list[Reach]:
    """Returns what each policy of one direction allows now; a policy of an unknown type allows as the one before it.

    `huge`: a count beyond an int32 is the largest int32 (HPAHugeProposals), else it wraps around, and nothing may grow.

    Source: Kubernetes 1.36, horizontal.go: calculateScaleUpLimitWithScalingRules, calculateScaleDownLimitWithBehaviors.
    """
    found = []
    # `count` starts outside the loop, as in Kubernetes.
    count, sign = 0, 1 if up else -1
    # An uncertain rescale must not allow a further change in the other direction.
    ups = history.scale_ups if up else _certain(history.scale_ups)
    downs = _certain(history.scale_downs) if up else history.scale_downs
    for policy in rules.policies:
        cutoff = now - policy.period
        start = int32(current - _changed(ups, cutoff) + _changed(downs, cutoff))
        if policy.type == PODS:
            count = start + sign * policy.value
            count = min(MAX_INT32, count) if huge else int32(count)
        elif policy.type == PERCENT:
            exact = float(start) * (1 + sign * float(policy.value) / 100)
            # Rounded down, 1 replica would never grow.
            count = (MAX_INT32 if huge and exact > MAX_INT32 else ceil_int32(exact)) if up else float_to_int32(exact)
        found.append(Reach(policy, start, count))
    return found


def allowed(rules: DirectionRules, current: int, history: History, now: datetime, *, up: bool, huge: bool) -> int:
    """Returns the count that the policies of one direction allow now. `huge`: see `reaches`.

    selectPolicy Max takes the policy that allows the largest change, Min the one that allows the smallest.
    """
    if rules.select == DISABLED:
        return current
    counts = [reach.allows for reach in reaches(rules, current, history, now, up=up, huge=huge)]
    count = max(counts, default=MIN_INT32) if (rules.select != MIN_CHANGE) == up else min(counts, default=MAX_INT32)
    # Rescales inside the period may use up more than the policies allow now; that must not turn the direction.
    return max(current, count) if up else min(current, count)


def _certain(rescales: tuple[Rescale, ...]) -> tuple[Rescale, ...]:
    return tuple(rescale for rescale in rescales if not rescale.uncertain)


def _changed(rescales: tuple[Rescale, ...], cutoff: datetime) -> int:
    """Returns the pods added or removed since `cutoff` (horizontal.go: getReplicasChangePerPeriod)."""
    return sum(rescale.change for rescale in rescales if rescale.timestamp > cutoff)

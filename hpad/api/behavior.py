"""The compiled form of spec.behavior: the rules of both directions, with all defaults. Source: KEP-853."""

from datetime import timedelta
from typing import Final

import msgspec

from hpad.api.hpa import SCALE_DOWN, SCALE_UP, HorizontalPodAutoscalerBehavior, HPAScalingRules, with_rules

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

    @property
    def limits(self) -> str:
        """The policies in words, "" without any: "4 pods in 15 s or 100% in 15 s"."""
        return (" and " if self.select == MIN_CHANGE else " or ").join(map(str, self.policies))


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

"""Conditions of an HPA, and the only place that knows when a condition last changed.

A Kubernetes Event, as far as a decision knows it: the recorder adds who, where and when.
"""

from datetime import datetime

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerCondition as Condition

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"
FALLBACK_ACTIVE = "ExternalMetricFallbackActive"
COMPETING_WRITERS = "CompetingWriters"

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"


def with_condition(
    conditions: tuple[Condition, ...], kind: str, status: str, reason: str, message: str, now: datetime
) -> tuple[Condition, ...]:
    """The conditions with one of them set; `last_transition_time` moves only when the status changes."""
    for index, held in enumerate(conditions):
        if held.type == kind:
            if held.reason == reason and held.message == message and held.status == status:
                return conditions
            since = held.last_transition_time if held.status == status else now
            changed = Condition(kind, status, since, reason, message)
            return (*conditions[:index], changed, *conditions[index + 1 :])
    return (*conditions, Condition(kind, status, now, reason, message))


def without_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """The conditions without those of one type."""
    return tuple(held for held in conditions if held.type != kind)


def find(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of that type, or None."""
    return next((held for held in conditions if held.type == kind), None)


def truncated_to_seconds(moment: datetime) -> datetime:
    """Kubernetes writes times of conditions to the second; comparing what was read back needs the same."""
    return moment.replace(microsecond=0)


__all__ = [
    "ABLE_TO_SCALE",
    "COMPETING_WRITERS",
    "FALLBACK_ACTIVE",
    "FALSE",
    "SCALED_TO_ZERO",
    "SCALING_ACTIVE",
    "SCALING_LIMITED",
    "TRUE",
    "UNKNOWN",
    "Condition",
    "find",
    "truncated_to_seconds",
    "with_condition",
    "without_condition",
]


NORMAL = "Normal"
WARNING = "Warning"


class Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    reason: str
    message: str

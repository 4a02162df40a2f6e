"""Conditions of an HPA, and the events of a decision (type, reason and message only)."""

from datetime import datetime

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerCondition

Condition = HorizontalPodAutoscalerCondition

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
    """Returns the conditions with one of them set; `last_transition_time` changes only with the status.

    Source: Kubernetes 1.36, horizontal.go: setConditionInList.
    """
    for index, condition in enumerate(conditions):
        if condition.type == kind:
            if condition.reason == reason and condition.message == message and condition.status == status:
                return conditions
            since = condition.last_transition_time if condition.status == status else now
            changed = Condition(kind, status, since, reason, message)
            return (*conditions[:index], changed, *conditions[index + 1 :])
    return (*conditions, Condition(kind, status, now, reason, message))


def without_condition(conditions: tuple[Condition, ...], kind: str) -> tuple[Condition, ...]:
    """Returns the conditions without the given type."""
    return tuple(condition for condition in conditions if condition.type != kind)


def find(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Returns the condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == kind), None)


def truncated_to_seconds(moment: datetime) -> datetime:
    """Kubernetes writes the times of conditions to the second, so a comparison needs the same precision."""
    return moment.replace(microsecond=0)


NORMAL = "Normal"
WARNING = "Warning"


class Event(msgspec.Struct, frozen=True, gc=False):
    type: str
    reason: str
    message: str

"""Conditions of an HPA, and the events of a decision (type, reason, message and detail only)."""

from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerCondition
from hpad.api.text import harmless

Condition = HorizontalPodAutoscalerCondition

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"
FALLBACK_ACTIVE = "ExternalMetricFallbackActive"
COMPETING_WRITERS = "CompetingWriters"
PAUSED = "Paused"
SHADOW = "Shadow"
SCHEDULE_ACTIVE = "ScheduleActive"
IDLE_FIRST = "IdleFirst"
ANNOTATIONS_VALID = "HpadAnnotationsValid"

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
    if find(conditions, kind) is None:
        return conditions
    return tuple(condition for condition in conditions if condition.type != kind)


def find(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Returns the condition of that type, or None."""
    for condition in conditions:
        if condition.type == kind:
            return condition
    return None


def truncated_to_seconds(moment: datetime) -> datetime:
    """Returns the time with the precision that metav1.Time has in the API, so that statuses can be compared."""
    return moment.replace(microsecond=0)


NORMAL = "Normal"
WARNING = "Warning"


class Event(msgspec.Struct, frozen=True, gc=False):
    """`message` is the text of Kubernetes, and `detail` what hpad adds to it ("": nothing), see `with_detail`."""

    type: str
    reason: str
    message: str
    detail: str = ""


_LONGEST_MESSAGE: Final = 1024
"""Bytes of a note of events.k8s.io (pkg/apis/core/validation/events.go: NoteLengthLimit)."""
_SHORTEST_DETAIL: Final = 32  # bytes; less than that of a sentence tells nothing
_ELLIPSIS: Final = " …"


def with_detail(message: str, detail: str) -> str:
    """Returns "message; detail" in at most 1,024 bytes of UTF-8: a detail that is too long ends in an ellipsis.

    The message is never shortened, and stands alone where no detail fits. Control characters of the detail are escaped.
    """
    if not detail:
        return message
    added = harmless(detail)
    room = _LONGEST_MESSAGE - len(f"{message}; ".encode())
    if len(added.encode()) <= room:
        return f"{message}; {added}"
    if room < _SHORTEST_DETAIL:
        return message
    begun = added.encode()[: room - len(_ELLIPSIS.encode())].decode(errors="ignore")
    words = begun.rpartition(" ")[0] or begun
    return f"{message}; {words}{_ELLIPSIS}"

"""Conditions of an HPA, the events of a decision (type, reason, message and detail only), and which statuses differ."""

import re
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import (
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
    MetricValueStatus,
)
from hpad.api.quantity import Quantity
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
WITHIN_BUDGET = "WithinBudget"
ANNOTATIONS_VALID = "HpadAnnotationsValid"

TRUE = "True"
FALSE = "False"


def with_condition(conditions: tuple[Condition, ...], made: Condition) -> tuple[Condition, ...]:
    """Returns the conditions with `made` among them, which is dated now; without a change of its status, as before.

    Source: Kubernetes 1.36, horizontal.go: setConditionInList.
    """
    for index, condition in enumerate(conditions):
        if condition.type == made.type:
            if condition.status == made.status:
                made = msgspec.structs.replace(made, last_transition_time=condition.last_transition_time)
            return conditions if made == condition else (*conditions[:index], made, *conditions[index + 1 :])
    return (*conditions, made)


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


_BAD_IF_TRUE: Final = frozenset({SCALING_LIMITED, COMPETING_WRITERS, FALLBACK_ACTIVE})


def is_trouble(condition: Condition) -> bool:
    """Returns whether the condition says that something is wrong, by its type and status; ScaledToZero never does."""
    if condition.type == SCALED_TO_ZERO:
        return False
    return (condition.status == TRUE) == (condition.type in _BAD_IF_TRUE)


def truncated_to_seconds(moment: datetime) -> datetime:
    """Returns the time with the precision that metav1.Time has in the API, so that statuses can be compared."""
    return moment.replace(microsecond=0)


NORMAL = "Normal"
WARNING = "Warning"


class Event(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A Kubernetes Event: `message` is the text of Kubernetes, and `detail` what hpad adds to it ("": nothing)."""

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


_QUOTING: Final = {(SCALING_ACTIVE, FALSE), (FALLBACK_ACTIVE, TRUE)}
"""Types and statuses of the conditions whose message quotes the error of a metric, which may hold a measured value."""
_NUMBER: Final = re.compile(r"(?<![\w.:/=-])-?\d+(\.\d+)?(e[+-]?\d+)?(?![\w:/=-]|\.\w)")
"""A number that stands alone, and is no part of a name, an address, a version or a time."""


_ZERO: Final = Quantity.from_milli(0)


def differs_in_values_alone(old: HorizontalPodAutoscalerStatus, new: HorizontalPodAutoscalerStatus) -> bool:
    """Whether two statuses are equal, except for measured values.

    These are the values in currentMetrics of metrics that both list, and numbers in the error of a metric that a
    condition quotes.
    """
    before, after = old.current_metrics or (), new.current_metrics or ()
    return (
        len(before) == len(after)
        and all(map(_alike, before, after))
        and len(old.conditions) == len(new.conditions)
        and all(map(_say_the_same, old.conditions, new.conditions))
        and same(msgspec.structs.replace(old, conditions=new.conditions, current_metrics=new.current_metrics), new)
    )


def _alike(old: MetricStatus, new: MetricStatus) -> bool:
    """Whether two entries of currentMetrics have the same metric, and values in the same fields."""
    return old == new or _without_values(old) == _without_values(new)


def _without_values(entry: MetricStatus) -> MetricStatus:
    """Returns the entry with each of its values set to zero."""
    source = entry.source
    if source is None:
        return entry
    value, average, percent = source.current.value, source.current.average_value, source.current.average_utilization
    current = MetricValueStatus(
        value=None if value is None else _ZERO,
        average_value=None if average is None else _ZERO,
        average_utilization=None if percent is None else 0,
    )
    (field,) = (name for name in MetricStatus.__struct_fields__ if getattr(entry, name) is source)
    return msgspec.structs.replace(entry, **{field: msgspec.structs.replace(source, current=current)})


def _say_the_same(old: Condition, new: Condition) -> bool:
    """Whether two conditions are equal, except for measured values in their messages."""
    if old == new:
        return True
    if (old.type, old.status) not in _QUOTING:
        return False
    return msgspec.structs.replace(old, message=new.message) == new and _words(old.message) == _words(new.message)


def _words(message: str) -> str:
    return _NUMBER.sub("0", message)


def same(old: HorizontalPodAutoscalerStatus, new: HorizontalPodAutoscalerStatus) -> bool:
    """Whether two statuses are equal for the API server: a missing list equals an empty one."""
    return (
        _are_same(old.conditions, new.conditions)
        and old.current_replicas == new.current_replicas
        and old.desired_replicas == new.desired_replicas
        and old.last_scale_time == new.last_scale_time
        and old.observed_generation == new.observed_generation
        and (old.current_metrics or ()) == (new.current_metrics or ())
    )


def _are_same(old: tuple[Condition, ...], new: tuple[Condition, ...]) -> bool:
    """Whether the conditions are equal. A generation that is not there may have been dropped by the server.

    An Autoscaler of an older definition has none in its conditions: its status would be written in each turn.
    """
    if old == new:
        return True
    return len(old) == len(new) and all(
        before == after
        or (before.observed_generation is None and before == msgspec.structs.replace(after, observed_generation=None))
        for before, after in zip(old, new, strict=True)
    )

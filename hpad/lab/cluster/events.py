"""Events: one object that two API groups show under different field names.

Events are stored as core/v1; `events.k8s.io/v1` renames some fields (k8s.io/api/events/v1/types.go).
"""

from typing import Final

from hpad.lab.cluster.resources import EVENTS_V1, Object

_NEWER: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
"""Names of core/v1 and those of events.k8s.io/v1."""
_OLDER: Final = {new: old for old, new in _NEWER.items()}


def as_v1(event: Object) -> Object:
    """A stored event as events.k8s.io/v1."""
    renamed = {_NEWER.get(name, name): value for name, value in event.items()}
    if not renamed.get("reportingInstance"):
        renamed.pop("reportingInstance", None)
    return {**renamed, "apiVersion": EVENTS_V1, "eventTime": event.get("eventTime")}


def as_core(event: Object) -> Object:
    """An event of either group as it is stored."""
    if event.get("apiVersion") != EVENTS_V1:
        return event
    return {**{_OLDER.get(name, name): value for name, value in event.items()}, "apiVersion": "v1"}

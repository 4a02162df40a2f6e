"""Records the events of the cluster's own controllers."""

import contextlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from hpad import clock as clocks
from hpad.lab.cluster import errors, strategy
from hpad.lab.cluster.resources import EVENTS, Object, Resource
from hpad.lab.cluster.store import Key, Store, key_of

NORMAL, WARNING = "Normal", "Warning"
LIMIT: Final = 2000
KEPT: Final = timedelta(hours=1)
"""How long `expire` keeps an event, as a Kubernetes API server does (--event-ttl)."""
"""Number of controllers' events kept; a Kubernetes API server keeps them for an hour instead."""


@dataclass(eq=False, slots=True)
class Recorder:
    """Writes events; a repeated event increases the count of its object."""

    store: Store
    clock: clocks.Clock
    _known: OrderedDict[tuple[str, ...], Key] = field(default_factory=OrderedDict)

    def record(
        self, component: str, about: tuple[Resource, Object], reason: str, message: str, kind: str = NORMAL
    ) -> None:
        """Records an event of `component` about the object in `about`; `kind` is NORMAL or WARNING."""
        resource, obj = about
        identity = obj["metadata"]["uid"], component, reason, message
        key = self._known.get(identity)
        previous = self.store.find(EVENTS, *key) if key else None
        if previous is not None:
            repeated = {"count": previous["count"] + 1, "lastTimestamp": strategy.timestamp(self.clock.now())}
            self.store.update(EVENTS, {**previous, **repeated})
            return
        event = self._event(component, _reference(resource, obj), reason, message, kind)
        self.store.create(EVENTS, event)
        self._known[identity] = key_of(event)
        if len(self._known) > LIMIT:
            self._remove(self._known.popitem(last=False)[1])

    def expire(self) -> None:
        """Removes the events, also those of clients, that have not been written for an hour."""
        oldest = strategy.timestamp(self.clock.now() - KEPT)
        for event in self.store.objects(EVENTS):
            if _last(event) < oldest:
                self._remove(key_of(event))

    def _event(self, component: str, about: dict[str, Any], reason: str, message: str, kind: str) -> Object:
        now = self.clock.now()
        name = f"{about['name']}.{int(now.timestamp() * 1e9) + self.store.revision:x}"
        metadata = {"name": name, "namespace": about["namespace"]}
        event: Object = {
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": strategy.timestamp(now),
            "lastTimestamp": strategy.timestamp(now),
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": component,
            "reportingInstance": "",
        }
        head = {"apiVersion": "v1", "kind": "Event", "metadata": metadata}
        return strategy.prepare_new(EVENTS, {**head, **event}, about["namespace"], now)

    def _remove(self, key: Key) -> None:
        with contextlib.suppress(errors.ApiError):  # a client may have deleted it, or its namespace
            self.store.remove(EVENTS, *key)


def _last(event: Object) -> str:
    """Returns when an event was last written (RFC 3339); a series of events.k8s.io has its own field."""
    series = event.get("series") or {}
    times = series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime")
    return str(next(filter(None, times), event["metadata"]["creationTimestamp"]))


def _reference(resource: Resource, obj: Object) -> dict[str, Any]:
    metadata = obj["metadata"]
    return {
        "kind": resource.kind,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": resource.api_version,
        "resourceVersion": metadata["resourceVersion"],
    }

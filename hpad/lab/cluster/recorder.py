"""The events that the cluster's own controllers write, as kube-controller-manager's do."""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Final

from hpad import clock as clocks
from hpad.lab.cluster import errors, strategy
from hpad.lab.cluster.resources import EVENTS, Object, Resource
from hpad.lab.cluster.store import Key, Store

NORMAL, WARNING = "Normal", "Warning"
LIMIT: Final = 2000
"""As many events of controllers are kept; a Kubernetes API server keeps them for an hour."""


@dataclass(eq=False, slots=True)
class Recorder:
    """Writes the events of the cluster's own controllers; one that happens again counts up."""

    store: Store
    clock: clocks.Clock
    _known: OrderedDict[tuple[str, ...], Key] = field(default_factory=OrderedDict)

    def record(
        self, component: str, about: tuple[Resource, Object], reason: str, message: str, kind: str = NORMAL
    ) -> None:
        """`component` says so, `about` an object; `kind` is NORMAL or WARNING."""
        resource, obj = about
        known = obj["metadata"]["uid"], component, reason, message
        key = self._known.get(known)
        held = self.store.find(EVENTS, *key) if key else None
        if held is not None:
            again = {"count": held["count"] + 1, "lastTimestamp": strategy.timestamp(self.clock.now())}
            self.store.update(EVENTS, {**held, **again})
            return
        made = self._made(component, _reference(resource, obj), reason, message, kind)
        self.store.create(EVENTS, made)
        self._known[known] = made["metadata"]["namespace"], made["metadata"]["name"]
        if len(self._known) > LIMIT:
            self._forget(self._known.popitem(last=False)[1])

    def _made(self, component: str, about: dict[str, Any], reason: str, message: str, kind: str) -> Object:
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

    def _forget(self, key: Key) -> None:
        try:
            self.store.remove(EVENTS, *key)
        except errors.ApiError:
            return  # somebody deleted it, or its namespace


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

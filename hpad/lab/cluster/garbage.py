"""Garbage collection: deletes the dependents of deleted owners, and the contents of deleted namespaces."""

import asyncio
from dataclasses import dataclass, field

from hpad.lab.cluster.resources import NAMESPACES, Object, Resource
from hpad.lab.cluster.store import Change, key_of
from hpad.lab.cluster.writes import FOREGROUND, Writer


@dataclass(eq=False, slots=True)
class Collector:
    """Schedules its work for after a change, since a subscriber must not write during one."""

    writer: Writer
    _namespaces: set[str] = field(default_factory=set)

    def on_change(self, change: Change) -> None:
        """Handles a change; subscribe it to the store."""
        loop = asyncio.get_running_loop()
        metadata = change.object["metadata"]
        if change.type == "DELETED":
            loop.call_soon(self._collect, metadata["uid"])
            for ref in metadata.get("ownerReferences") or []:
                loop.call_soon(self._release, ref["uid"], ref.get("kind", ""), key_of(change.object)[0])
        elif change.resource == NAMESPACES and "deletionTimestamp" in metadata:
            self._namespaces.add(metadata["name"])
        elif FOREGROUND in (metadata.get("finalizers") or []):
            loop.call_soon(self._foreground, change.resource, change.object)
        if self._namespaces:
            loop.call_soon(self._empty)

    def _collect(self, uid: str) -> None:
        """Deletes the dependents of a removed owner; one with further owners only loses this reference."""
        for resource, obj in self.writer.store.owned(uid):
            others = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid]
            if others:
                kept = {**obj, "metadata": {**obj["metadata"], "ownerReferences": others}}
                self.writer.store.update(resource, kept)
            elif "deletionTimestamp" not in obj["metadata"]:
                self.writer.delete(resource, obj)

    def _foreground(self, resource: Resource, owner: Object) -> None:
        dependents = self.writer.store.owned(owner["metadata"]["uid"])
        for kind, obj in dependents:
            if "deletionTimestamp" not in obj["metadata"]:
                self.writer.delete(kind, obj)
        if not self.writer.store.owned(owner["metadata"]["uid"]):
            self._finish(resource, key_of(owner))

    def _release(self, uid: str, kind: str, namespace: str) -> None:
        """Removes an owner in foreground deletion once its last dependent is gone."""
        if self.writer.store.owned(uid):
            return
        for resource, obj in self.writer.store.everything():
            if resource.kind == kind and obj["metadata"]["uid"] == uid:
                if FOREGROUND in (obj["metadata"].get("finalizers") or []):
                    self._finish(resource, key_of(obj))
                return

    def _finish(self, resource: Resource, key: tuple[str, str]) -> None:
        if self.writer.store.find(resource, *key) is not None:
            self.writer.store.remove(resource, *key)

    def _empty(self) -> None:
        """Deletes the objects of terminating namespaces, and each namespace once it is empty."""
        for name in list(self._namespaces):
            inside = [
                (resource, obj)
                for resource, obj in self.writer.store.everything()
                if obj["metadata"].get("namespace") == name
            ]
            for resource, obj in inside:
                if "deletionTimestamp" not in obj["metadata"]:
                    self.writer.delete(resource, obj)
            if not inside:
                self._namespaces.discard(name)
                self._finish(NAMESPACES, ("", name))

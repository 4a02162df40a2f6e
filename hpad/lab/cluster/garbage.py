"""Garbage collection: what an owner leaves behind, and what lies in a namespace that is deleted."""

import asyncio
from dataclasses import dataclass, field

from hpad.lab.cluster.resources import NAMESPACES, Object, Resource
from hpad.lab.cluster.store import Change, key_of
from hpad.lab.cluster.writes import FOREGROUND, Writer


@dataclass(eq=False, slots=True)
class Collector:
    """Acts right after the change that made something garbage, never within it."""

    writer: Writer
    _namespaces: set[str] = field(default_factory=set)

    def on_change(self, change: Change) -> None:
        """A subscriber of the store."""
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
        """Delete the dependents of an owner that is gone, unless another owner still lives."""
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
        """An owner that waits for its dependents may go with the last of them."""
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
        """Delete what lies in namespaces on their way out, and each namespace once it is empty."""
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

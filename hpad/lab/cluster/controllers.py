"""The loop that drives the workload controllers, on changes and on a periodic resync; and garbage collection.

The collector deletes the dependents of deleted owners, and the contents of deleted namespaces.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from hpad import clock as clocks
from hpad.lab.cluster import errors
from hpad.lab.cluster.resources import NAMESPACES, Object, Resource
from hpad.lab.cluster.store import Change, Key, Store, key_of
from hpad.lab.cluster.writes import FOREGROUND, Writer

LOG = logging.getLogger(__name__)
RETRY_SECONDS = 1.0


class Controller(Protocol):
    """Reconciles the objects of one resource."""

    @property
    def resource(self) -> Resource: ...

    def reconcile(self, namespace: str, name: str) -> float | None:
        """Takes one step for one object; returns seconds until the next one, None to wait for a change."""
        ...


def _nothing() -> None:
    return None


Task = tuple[Controller, Key]


class Loop:
    """Runs reconciles one at a time; several pending changes of an object cause one reconcile."""

    def __init__(
        self, store: Store, clock: clocks.Clock, controllers: Iterable[Controller], resync_seconds: float
    ) -> None:
        self._store = store
        self._clock = clock
        self._by_resource = {controller.resource: controller for controller in controllers}
        self._by_kind = {resource.kind: controller for resource, controller in self._by_resource.items()}
        self._resync_seconds = resync_seconds
        self._pending: dict[Task, None] = {}
        self._wake = asyncio.Event()
        self._timers: dict[Task, asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = _nothing

    def start(self) -> None:
        self._unsubscribe = self._store.subscribe(self._on_change)
        self._add_all()
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._resync())]

    async def stop(self) -> None:
        self._unsubscribe()
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_change(self, change: Change) -> None:
        key = key_of(change.object)
        if controller := self._by_resource.get(change.resource):
            self._add((controller, key))
        for obj in filter(None, (change.object, change.previous)):
            for ref in obj["metadata"].get("ownerReferences") or []:
                if ref.get("controller") and (owner := self._by_kind.get(ref.get("kind", ""))):
                    self._add((owner, (key[0], ref["name"])))

    def _add(self, task: Task) -> None:
        self._pending[task] = None
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                task = next(iter(self._pending))
                del self._pending[task]
                self._step(task)
                await self._clock.sleep(0)  # let requests run between two reconciles

    def _step(self, task: Task) -> None:
        controller, key = task
        try:
            retry = controller.reconcile(*key)
        except errors.ApiError as problem:
            LOG.debug("%s %s: %s", controller.resource, key, problem)
            retry = RETRY_SECONDS
        except Exception:
            LOG.exception("%s %s: reconcile failed", controller.resource, key)
            retry = self._resync_seconds
        if retry is not None:
            self._later(task, retry)

    def _later(self, task: Task, seconds: float) -> None:
        if earlier := self._timers.pop(task, None):
            earlier.cancel()
        self._timers[task] = asyncio.get_running_loop().call_later(seconds, self._add, task)

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._resync_seconds)
            self._add_all()

    def _add_all(self) -> None:
        for resource, controller in self._by_resource.items():
            for obj in self._store.objects(resource):
                self._add((controller, key_of(obj)))


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
        for resource, obj in self.writer.store.of_kind(kind):
            if obj["metadata"]["uid"] == uid:
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

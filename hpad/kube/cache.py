"""Watch caches: store the objects of a resource, call back on changes, and decide which of two versions is newer.

Those of HPAs and Autoscalers keep what a write of a status needs, and write it.
"""

import asyncio
import contextlib
import functools
import math
import operator
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping
from itertools import chain
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from hpad.api.autoscaler import without_texts
from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.api.wire import UNDECODABLE
from hpad.kube import errors, hpas
from hpad.kube.client import Allowed
from hpad.kube.reflector import Kind, Reflector, WatchScope, later
from hpad.kube.watch import DecodedObject, Original

T = TypeVar("T")
Callback = Callable[[Key, T | None, T | None], None]
"""Called on each change with the key, the old value (None: added) and the new value (None: deleted). Must not block."""


class Cache(Generic[T]):
    """All objects of one resource in the namespaces of `scope`, kept up to date by `run`.

    `params`, such as a label selector, are sent with every list and watch. An unreadable object is left out and
    logged. `trouble` is the text of the last failure, None once all reflectors work. `synced` is set once every
    reflector has read a list; `answered` also if the server does not have the resource, or forbids to list it, or
    cannot list an optional one. `bug` is called whenever a callback raises.
    """

    def __init__(
        self,
        scope: WatchScope,
        kind: Kind[T],
        *,
        params: Mapping[str, str] | None = None,
        bug: Callable[[], None] | None = None,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.answered = asyncio.Event()
        self.trouble: str | None = None
        self._log = structlog.get_logger("hpad.kube", resource=str(kind.resource))
        self._values: MutableMapping[Key, T] = {}
        self._bug = bug
        self._callbacks: list[Callback[T]] = []
        self._offered: set[Key] = set()
        """Objects that were written since a list began, which may have earlier versions of them."""
        self._causes: set[tuple[str, str, int]] = set()
        self._params = params or {}
        self._reflectors = [Reflector(self, kind, scope, each, self._params) for each in scope.namespaces or ("",)]

    def get(self, key: Key) -> T | None:
        return self._values.get(key)

    def values(self) -> Collection[T]:
        """Returns a live view of all objects: copy it before awaiting anything."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def covers(self, namespace: str, since: float = -math.inf) -> bool:
        """Returns whether the cache is synced, watches that namespace and has heard of it since (monotonic)."""
        reflector = self._reflector_of(namespace) if self.synced.is_set() else None
        return reflector is not None and reflector.last_received >= since

    def subscribe(self, callback: Callback[T]) -> None:
        """Calls back on every change from now on.

        An exception of a callback is logged once for each cause; the cache and the other callbacks go on.
        """
        self._callbacks.append(callback)

    def staleness(self, now: float, namespace: str = "") -> float:
        """Returns the seconds since the server last sent data about the namespace; `now` is monotonic.

        For all namespaces (""), the seconds of the stalest reflector.
        """
        reflector = self._reflector_of(namespace)
        if reflector is not None:
            return now - reflector.last_received
        return max(now - reflector.last_received for reflector in self._reflectors)

    def offer(self, decoded: DecodedObject[T]) -> None:
        """Stores an object as an answer beside list and watch has it, if it is newer than the stored one."""
        if self.kind.version is not None:
            self._offered.add(decoded.key)
            self.put(decoded)

    async def run(self) -> None:
        """Keeps the cache up to date until cancelled; retries after failures."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"{self.kind.resource} {reflector.namespace}".strip())

    def listing(self, namespace: str) -> None:
        """Called when a list begins, which includes every object that was offered before."""
        self._offered = {key for key in self._offered if namespace not in ("", key.namespace)}

    def has(self, key: Key, version: str) -> bool:
        """Returns whether exactly this resourceVersion of an object is stored."""
        stored = self._values.get(key)
        return stored is not None and self.kind.version is not None and self.kind.version(stored) == version

    def put(self, decoded: DecodedObject[T], *, listed: bool = False) -> None:
        """Stores an object, unless the stored one is as new; a listed one unless another was offered since.

        The versions of a server that was restored from a backup start anew, so a list may bring earlier ones. It may
        also be older than an object that was written meanwhile: if that went back, the count of its former author
        would seem to be a new write.
        """
        key, old = decoded.key, self._values.get(decoded.key)
        replaces = listed and key not in self._offered
        if old is None or not (old == decoded.value if replaces else self._as_new(old, decoded)):
            self._values[key] = decoded.value
            self._notify(key, old, decoded)

    def drop(self, key: Key, version: str, *, listed: bool = False) -> None:
        """Removes an object that was deleted at `version`, unless the stored one is later."""
        old = self._values.get(key)
        if old is not None and (listed or not self._later(old, version)):
            del self._values[key]
            self._offered.discard(key)
            self._notify(key, old, None)

    def settled(self) -> None:
        """Called when a reflector works again, or has read a whole list."""
        if all(reflector.synced for reflector in self._reflectors):
            self.synced.set()
            self.answered.set()
        if not any(reflector.failing for reflector in self._reflectors):
            self.trouble = None

    def keys(self, namespace: str = "") -> list[Key]:
        """Returns the keys of the stored objects of one namespace, or of all ("")."""
        return [key for key in self._values if not namespace or key.namespace == namespace]

    def _reflector_of(self, namespace: str) -> Reflector[T] | None:
        """Returns the reflector that watches the namespace, None if there is none; for "" the one of all namespaces."""
        for reflector in self._reflectors:
            if reflector.namespace in ("", namespace):
                return reflector
        return None

    def _as_new(self, stored: T, other: DecodedObject[T]) -> bool:
        """Returns whether the stored value is the other one, or later."""
        if self.kind.version is None:
            return stored == other.value
        return self.kind.version(stored) == other.version or self._later(stored, other.version)

    def _later(self, stored: T, version: str) -> bool:
        """Returns whether the stored value was written after `version`."""
        return self.kind.version is not None and later(self.kind.version(stored), version)

    def _notify(self, key: Key, old: T | None, new: DecodedObject[T] | None) -> None:
        self._index(key, old, new)
        for callback in self._callbacks:
            try:
                callback(key, old, None if new is None else new.value)
            except Exception as error:  # noqa: BLE001  # a bug of the subscriber
                self._report_bug(key, error)

    def _report_bug(self, key: Key, error: Exception) -> None:
        """Counts an exception of a callback, and logs the first of each kind and line. Call it in an `except` block."""
        if self._bug is not None:
            self._bug()
        with contextlib.suppress(Exception):  # logging itself may fail
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            cause = (type(error).__name__, frame.f_code.co_filename, line)
            if cause not in self._causes:
                self._causes.add(cause)
                self._log.exception("bug: a subscriber failed to handle a change of an object", object=str(key))

    def _index(self, key: Key, old: T | None, new: DecodedObject[T] | None) -> None:
        """Updates the index of a subclass.

        An exception ends the cache: decisions on an index that has missed a change would be wrong.
        """


ABSENT: Final = "this API server has no autoscaling/v2: hpad needs Kubernetes 1.23 or later"
NOT_INSTALLED: Final = "the kind Autoscaler is not installed: kubectl apply -f config/crd/autoscalers.hpad.io.yaml"
_MODIFIED: Final = (
    'Operation cannot be fulfilled on {} "{}": the object has been modified;'
    " please apply your changes to the latest version and try again"
)


class HpaCache(Cache[HorizontalPodAutoscaler]):
    """All HPAs, or all Autoscalers, each with the bytes that a write of its status needs (`original`).

    A version that differs only in its status keeps the stored spec object. Most versions are status writes, and a spec
    with its compiled form is half of an HPA's memory: replacing it each time would fragment the heap.
    `status_written_by` is called with the key of an HPA and the name of another client that has written its status.
    """

    def __init__(
        self,
        scope: WatchScope,
        form: hpas.Form = hpas.HPA,
        *,
        optional: bool = False,
        params: Mapping[str, str] | None = None,
        bug: Callable[[], None] | None = None,
        status_written_by: Callable[[Key, str], None] | None = None,
    ) -> None:
        autoscaler = AUTOSCALER_KEY if form is hpas.AUTOSCALER else ""
        read, version = functools.partial(hpas.decode, form=form), operator.attrgetter("metadata.resource_version")
        absent = ABSENT if form is hpas.HPA else NOT_INSTALLED
        kind = Kind(form.resource, read, version, "" if optional else absent, autoscaler, optional)
        super().__init__(scope, kind, params=params, bug=bug)
        self.form = form
        self._client = scope.client
        self._status_written_by = status_written_by
        self._originals: dict[Key, Original] = {}

    def put(self, decoded: DecodedObject[HorizontalPodAutoscaler], *, listed: bool = False) -> None:
        stored, before = self.get(decoded.key), self._originals.get(decoded.key)
        if stored is not None and stored.spec is not decoded.value.spec and _same_spec(stored, before, decoded):
            decoded = msgspec.structs.replace(decoded, value=msgspec.structs.replace(decoded.value, spec=stored.spec))
        super().put(decoded, listed=listed)

    def original(self, key: Key) -> Original | None:
        """Returns the data for a write of the stored HPA's status; None if the HPA is not stored."""
        return self._originals.get(key)

    async def write_status(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus, allowed: Allowed | None = None
    ) -> HorizontalPodAutoscaler:
        """Writes the status in one attempt, and nothing but the status; stores the HPA as written, and returns it.

        The write is a PUT of the whole object as received, like that of the built-in controller, so that the rights of
        its role suffice. A JSON merge patch needs no copy of the object but costs the API server more CPU: 2.8 ms by
        PATCH, 2.4 ms by PUT, for an HPA of 1.9 kB on kube-apiserver 1.36 with etcd (tools/bench/kube.py). Raises
        ApiError, also for a conflict.

        No request is sent if the cache shows that `hpa` was deleted or changed: the server would refuse it. `allowed`
        is called before that as well, because an edited HPA is no conflict to its caller.
        """
        key, form = hpa.key, self.form
        stored, original = self.get(key), self.original(key)
        if stored is None or original is None or stored.metadata.resource_version != hpa.metadata.resource_version:
            if allowed is not None:
                allowed()
            if stored is None or original is None:
                raise errors.ApiError(404, "NotFound", f'{form.resource} "{key.name}" not found')
            raise errors.ApiError(409, "Conflict", _MODIFIED.format(form.resource, key.name))
        sent = hpas.encode(status)
        content = hpas.body(original, hpa.metadata.resource_version, sent, form)
        answer = await self._client.request("PUT", form.resource.object(key, "status"), body=content, allowed=allowed)
        try:
            written = hpas.written(answer, stored, original, without_texts(status), sent, form)
        except UNDECODABLE as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no {form.resource.kind}: {error}") from error
        if key in self:  # an HPA that was deleted during the write stays deleted
            self.offer(written)
        return written.value

    def _index(
        self, key: Key, old: HorizontalPodAutoscaler | None, new: DecodedObject[HorizontalPodAutoscaler] | None
    ) -> None:
        before = self._originals.get(key)
        if new is None or new.original is None:
            self._originals.pop(key, None)
            return
        self._originals[key] = new.original
        if self._status_written_by is None or before is None:
            return
        if old is None or old.metadata.uid != new.value.metadata.uid:
            return
        # An entry with a later time is a new write; entries of earlier writes stay in managedFields.
        for manager, time in new.original.status_writers.items():
            if time > before.status_writers.get(manager, ""):
                self._status_written_by(key, manager)


def _same_spec(
    stored: HorizontalPodAutoscaler, before: Original | None, new: DecodedObject[HorizontalPodAutoscaler]
) -> bool:
    """Returns whether both specs are equal in text: "1Ki" and "1024" are equal quantities, but shown as written."""
    if before is not None and new.original is not None and before.spec == new.original.spec:
        return True
    return stored.spec == new.value.spec and hpas.encode(stored.spec) == hpas.encode(new.value.spec)


class WatchedKinds:
    """The HPAs and Autoscalers of these caches, by the kind in their keys."""

    def __init__(self, caches: Mapping[str, HpaCache]) -> None:
        self.synced = asyncio.Event()
        self._caches = caches

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        cache = self._caches.get(key.kind)
        return None if cache is None else cache.get(key)

    def values(self) -> Iterable[HorizontalPodAutoscaler]:
        """Returns a live view of all objects: copy it before awaiting anything."""
        return chain.from_iterable([cache.values() for cache in self._caches.values()])

    def keys(self) -> Collection[Key]:
        return list(chain.from_iterable([cache.keys() for cache in self._caches.values()]))

    def __contains__(self, key: Key) -> bool:
        return self.get(key) is not None

    def may_exist(self, key: Key) -> bool:
        """Returns whether the object exists, or its kind cannot be listed yet: its state must not be dropped then."""
        cache = self._caches.get(key.kind)
        return cache is not None and (key in cache or not cache.synced.is_set())

    def subscribe(self, callback: Callback[HorizontalPodAutoscaler]) -> None:
        """Calls back on every change from now on."""
        for cache in self._caches.values():
            cache.subscribe(callback)

    async def wait_synced(self) -> None:
        """Waits until all objects are known, but for an optional kind that cannot be listed, and sets `synced`."""
        for cache in self._caches.values():
            await (cache.answered if cache.kind.optional else cache.synced).wait()
        self.synced.set()

    def __iter__(self) -> Iterator[HpaCache]:
        return iter(self._caches.values())

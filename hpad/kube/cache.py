"""Watch caches: store the objects of a resource, call back on changes, and decide which of two versions is newer.

`HpaCache` also keeps the bytes that a write of a status needs. `PodCache` finds the pods of a selector by an index.
"""

import asyncio
import contextlib
import math
import operator
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from hpad.api.hpa import HorizontalPodAutoscaler, enc_hook
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.selector import Operator, Selector
from hpad.kube import codec, paths
from hpad.kube.codec import DecodedObject
from hpad.kube.reflector import Kind, Reflector, later
from hpad.kube.watch import WatchScope

T = TypeVar("T")
Callback = Callable[[Key, T | None, T | None], None]
"""Called on each change with the key, the old value (None: added) and the new value (None: deleted). Must not block."""


class Cache(Generic[T]):
    """All objects of one resource in the namespaces of `scope`, kept up to date by `run`.

    `params`, such as a label selector, are sent with every list and watch. An unreadable object is left out and
    logged. `trouble` is the text of the last failure, None once all reflectors work. `synced` is set once every
    reflector has read a list; `answered` also if the server does not have the resource, or forbids to list it. `bug` is
    called whenever a callback raises.
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
        self._causes: set[tuple[str, str, int]] = set()
        self._reflectors = [Reflector(self, kind, scope, each, params or {}) for each in scope.namespaces or ("",)]

    def get(self, key: Key) -> T | None:
        return self._values.get(key)

    def values(self) -> Collection[T]:
        """Returns a live view of all objects: copy it before awaiting anything."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def covers(self, namespace: str, since: float = -math.inf) -> bool:
        """Returns whether the cache is synced, and has watched that namespace and heard of it since (monotonic)."""
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
        """Stores an object that was read or written outside the watch, if it is newer than the stored one."""
        if self.kind.version is not None:
            self._offered.add(decoded.key)
            self.put(decoded)

    async def run(self) -> None:
        """Keeps the cache up to date until cancelled; retries after failures."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"{self.kind.resource} {reflector.namespace}".strip())

    def listing(self, namespace: str) -> None:
        """Called when a list begins. The list includes every object that was offered before."""
        self._offered.difference_update(self.keys(namespace))

    def has(self, key: Key, version: str) -> bool:
        """Returns whether exactly this resourceVersion of an object is stored."""
        stored = self._values.get(key)
        return stored is not None and self.kind.version is not None and self.kind.version(stored) == version

    def put(self, decoded: DecodedObject[T], *, listed: bool = False) -> None:
        """Stores an object, unless the stored one is as new.

        A listed object replaces a stored one of a later version, or of the same version with other content: a server
        restored from a backup assigns the same versions to other writes.
        """
        key, old = decoded.key, self._values.get(decoded.key)
        # An offered object may be later than the list, which was on its way when the object was written.
        trusted = listed and key not in self._offered
        if old is None or not self._as_new(old, decoded.value, decoded.version, trusted):
            self._values[key] = decoded.value
            self._notify(key, old, decoded)

    def drop(self, key: Key, version: str, *, listed: bool = False) -> None:
        """Removes an object that was deleted at `version`, unless the stored one is later."""
        old = self._values.get(key)
        trusted = listed and key not in self._offered
        if old is not None and (trusted or not self._later(old, version)):
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

    def keys(self, namespace: str) -> list[Key]:
        """Returns the keys of the stored objects of one namespace, or of all ("")."""
        return [key for key in self._values if not namespace or key.namespace == namespace]

    def _reflector_of(self, namespace: str) -> Reflector[T] | None:
        """Returns the reflector that watches the namespace, None if there is none; for "" the one of all namespaces."""
        for reflector in self._reflectors:
            if reflector.namespace in ("", namespace):
                return reflector
        return None

    def _as_new(self, stored: T, value: T, version: str, trusted: bool) -> bool:
        if self.kind.version is None:
            return stored == value
        if self.kind.version(stored) == version:
            return not trusted or stored == value
        return not trusted and self._later(stored, version)

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


_ENCODER = msgspec.json.Encoder(enc_hook=enc_hook)


class HpaCache(Cache[HorizontalPodAutoscaler]):
    """All HPAs, each with the bytes that a write of its status needs (`original`).

    A version that differs only in its status keeps the stored spec object. Most versions are status writes, and a spec
    with its compiled form is half of an HPA's memory: replacing it each time would fragment the heap.
    `status_written` is called with the key of an HPA and the name of another client that has written its status.
    """

    def __init__(
        self,
        scope: WatchScope,
        kind: Kind[HorizontalPodAutoscaler],
        *,
        params: Mapping[str, str] | None = None,
        bug: Callable[[], None] | None = None,
        status_written: Callable[[Key, str], None] | None = None,
    ) -> None:
        super().__init__(scope, kind, params=params, bug=bug)
        self._status_written = status_written
        self._originals: dict[Key, codec.Original] = {}

    def put(self, decoded: DecodedObject[HorizontalPodAutoscaler], *, listed: bool = False) -> None:
        stored, before = self.get(decoded.key), self._originals.get(decoded.key)
        if stored is not None and stored.spec is not decoded.value.spec and _same_spec(stored, before, decoded):
            decoded = msgspec.structs.replace(decoded, value=msgspec.structs.replace(decoded.value, spec=stored.spec))
        super().put(decoded, listed=listed)

    def original(self, key: Key) -> codec.Original | None:
        """Returns the data for a write of the stored HPA's status; None if the HPA is not stored."""
        return self._originals.get(key)

    def _index(
        self, key: Key, old: HorizontalPodAutoscaler | None, new: DecodedObject[HorizontalPodAutoscaler] | None
    ) -> None:
        before = self._originals.get(key)
        if new is None or new.original is None:
            self._originals.pop(key, None)
            return
        self._originals[key] = new.original
        if before is None or old is None or old.metadata.uid != new.value.metadata.uid or self._status_written is None:
            return
        # An entry with a later time is a new write; entries of earlier writes stay in managedFields.
        for manager, time in new.original.status_writers.items():
            if time > before.status_writers.get(manager, ""):
                self._status_written(key, manager)


def _same_spec(
    stored: HorizontalPodAutoscaler, before: codec.Original | None, new: DecodedObject[HorizontalPodAutoscaler]
) -> bool:
    """Returns whether both specs are equal in text: "1Ki" and "1024" are equal quantities, but shown as written."""
    if before is not None and new.original is not None and before.spec == new.original.spec:
        return True
    return stored.spec == new.value.spec and _ENCODER.encode(stored.spec) == _ENCODER.encode(new.value.spec)


_UNIQUE = frozenset({"statefulset.kubernetes.io/pod-name"})  # not indexed: no two pods share a value
_BY_VALUE = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})
_FEW: Final = 8
"""A bucket with more pods is a dict. Most labels belong to the replicas of one target, and a tuple of four pods takes
80 bytes, where a dict takes 230."""
_Bucket = tuple[Pod, ...] | dict[str, Pod]
_NAME = operator.attrgetter("name")


_NO_PODS: Final[Mapping[str, Pod]] = {}


class PodsByKey(MutableMapping[Key, Pod]):
    """Pods by namespace, then by name. One dict of all pods would need a key of 64 bytes for each."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, Pod]] = {}

    @property
    def namespaces(self) -> int:
        """The number of namespaces with pods."""
        return len(self._namespaces)

    def of(self, namespace: str) -> Mapping[str, Pod]:
        """Returns the pods of a namespace by name."""
        return self._namespaces.get(namespace, _NO_PODS)

    def get(self, key: Key, default: Any = None) -> Any:  # that of the base class raises and catches a KeyError
        return self._namespaces.get(key[0], _NO_PODS).get(key[1], default)

    def __getitem__(self, key: Key) -> Pod:
        return self._namespaces[key[0]][key[1]]

    def put(self, pod: Pod) -> None:
        """Stores a pod under its key."""
        self._namespaces.setdefault(pod.namespace, {})[pod.name] = pod

    def __setitem__(self, key: Key, pod: Pod) -> None:
        self.put(pod)

    def __delitem__(self, key: Key) -> None:
        pods = self._namespaces[key[0]]
        del pods[key[1]]
        if not pods:
            del self._namespaces[key[0]]

    def __iter__(self) -> Iterator[Key]:
        return (Key(namespace, name) for namespace, pods in self._namespaces.items() for name in pods)

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))


class Index:
    """Pods by namespace and label pair. `pods` are all of them, by namespace."""

    def __init__(self) -> None:
        self.pods = PodsByKey()
        self._buckets: dict[tuple[str, str, str], _Bucket] = {}

    def __len__(self) -> int:
        """Returns the number of namespaces and label pairs that pods have."""
        return self.pods.namespaces + len(self._buckets)

    def replace(self, old: Pod | None, new: Pod | None) -> None:
        """Applies one change of one pod."""
        if old is not None and (new is None or old.labels != new.labels):
            for place in _places(old):
                self._remove(place, old.name)
        if new is not None:
            self.pods.put(new)
            for place in _places(new):
                self._add(place, new)
        elif old is not None:
            self.pods.pop(Key(old.namespace, old.name), None)

    def _add(self, place: tuple[str, str, str], pod: Pod) -> None:
        bucket = self._buckets.get(place)
        if bucket is None:
            self._buckets[place] = (pod,)
        elif isinstance(bucket, dict):
            bucket[pod.name] = pod
        else:
            others = [other for other in bucket if other.name != pod.name]
            others.append(pod)
            self._buckets[place] = tuple(others) if len(others) <= _FEW else {each.name: each for each in others}

    def _remove(self, place: tuple[str, str, str], name: str) -> None:
        bucket = self._buckets.get(place, ())
        if isinstance(bucket, dict):
            bucket.pop(name, None)
            if len(bucket) > _FEW // 2:  # not at once below the limit, around which the count may waver
                return
            others = tuple(bucket.values())
        else:
            others = tuple([other for other in bucket if other.name != name])
        if others:
            self._buckets[place] = others
        else:
            self._buckets.pop(place, None)

    def sharing(self, pod: Pod) -> Pod:
        """Returns the pod with labels and owner as objects that other pods have as well.

        Labels are shared as a whole, else their single values.

        Compares with a pod that has the pod's rarest label. Unlike interned strings, shared labels are freed with the
        last pod that has them.
        """
        found = {place: bucket for place in _places(pod) if (bucket := self._buckets.get(place))}
        if not found:
            return pod
        similar = _any(min(found.values(), key=len))
        labels = similar.labels
        if labels != pod.labels:
            labels = {**pod.labels, **{key: _any(bucket).labels[key] for (_, key, _), bucket in found.items()}}
        owner = similar.owner if similar.owner == pod.owner else pod.owner
        return msgspec.structs.replace(pod, labels=labels, owner=owner)

    def select(self, namespace: str, selector: Selector) -> list[Pod]:
        """Returns the pods of the namespace that match, sorted by name."""
        found, labels, fits = [], None, False
        for pod in self._candidates(namespace, selector):
            if pod.labels is not labels:  # replicas share one mapping
                labels = pod.labels
                fits = selector.matches(labels)
            if fits:
                found.append(pod)
        return sorted(found, key=_NAME)

    def _candidates(self, namespace: str, selector: Selector) -> Sequence[Pod]:
        """Returns the smallest indexed set of pods that includes all matching ones."""
        best: Sequence[Mapping[str, Pod] | _Bucket] | None = None
        least = math.inf
        for term in selector.requirements:
            if term.operator in _BY_VALUE and term.key not in _UNIQUE:
                values = term.values if len(term.values) == 1 else set(term.values)
                buckets = [self._buckets.get((namespace, term.key, value), ()) for value in values]
                size = len(buckets[0]) if len(buckets) == 1 else sum(map(len, buckets))
                if size < least:
                    best, least = buckets, size
        if best is None:
            best = (self.pods.of(namespace),)
        if len(best) == 1 and isinstance(best[0], tuple):
            return best[0]
        return [pod for bucket in best for pod in (bucket if isinstance(bucket, tuple) else bucket.values())]


class PodCache(Cache[Pod]):
    """All pods; pods of one template share one label mapping. `marked`: hpad has set their deletion cost."""

    def __init__(self, scope: WatchScope) -> None:
        super().__init__(scope, Kind(paths.PODS, codec.pod))
        self._labels = Index()
        self._values = self._labels.pods
        self.marked: set[Key] = set()

    def put(self, decoded: DecodedObject[Pod], *, listed: bool = False) -> None:
        stored, pod = self.get(decoded.key), decoded.value
        if stored is not None and stored.labels == pod.labels and stored.owner == pod.owner:
            pod = msgspec.structs.replace(pod, labels=stored.labels, owner=stored.owner)
        else:
            pod = self._labels.sharing(pod)
        super().put(msgspec.structs.replace(decoded, value=pod), listed=listed)

    def select(self, namespace: str, selector: Selector) -> list[Pod]:
        """Returns the namespace's pods that match, sorted by name."""
        return self._labels.select(namespace, selector)

    def _index(self, key: Key, old: Pod | None, new: DecodedObject[Pod] | None) -> None:
        pod = None if new is None else new.value
        self._labels.replace(old, pod)
        if pod is not None and pod.is_marked and not pod.deleted:
            self.marked.add(key)
        elif self.marked:
            self.marked.discard(key)


def _places(pod: Pod) -> list[tuple[str, str, str]]:
    return [(pod.namespace, key, value) for key, value in pod.labels.items() if key not in _UNIQUE]


def _any(bucket: _Bucket) -> Pod:
    return next(iter(bucket if isinstance(bucket, tuple) else bucket.values()))

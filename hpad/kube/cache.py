"""Watch caches: what is known of a resource, who is told of changes, and which of two versions of an object wins.

The cache of HPAs, in which a spec lives for as long as it stays what it is, whatever becomes of the status.

The pod cache, with an index: the pods of a selector without a look at all the others.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec
import structlog

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, enc_hook
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.selector import Operator, Requirement, Selector
from hpad.kube import codec, paths
from hpad.kube.client import Client
from hpad.kube.reflector import Kind, Reflector, later
from hpad.kube.watch import ReflectorOptions

__all__ = ["Cache", "Callback", "Kind"]

T = TypeVar("T")
Callback = Callable[[Key, T | None, T | None], None]
"""Told of each change: key, the value before (None: new), the value after (None: gone). Must not wait."""


class Cache(Generic[T]):
    """All objects of one resource, in all namespaces or in those named, kept up to date by `run`.

    `params` (a label selector, say) go with every list and watch. An object that cannot be read is left out and
    reported, and spoils none of the others. `trouble` is the text of the last failure, None once all is well again;
    `refused` is set while the server has no such resource, or does not let us list it. `bug` is called whenever a
    callback raises.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        *,
        namespaces: Sequence[str] = (),
        params: Mapping[str, str] | None = None,
        reflector_options: ReflectorOptions | None = None,
        bug: Callable[[], None] | None = None,
    ) -> None:
        self.kind = kind
        self.synced = asyncio.Event()
        self.refused = asyncio.Event()
        self.trouble: str | None = None
        self._log = structlog.get_logger("hpad.kube", resource=str(kind.resource))
        self._values: dict[Key, T] = {}
        self._bug = bug
        self._callbacks: list[Callback[T]] = []
        self._offered: set[Key] = set()
        self._reflectors = [
            Reflector(self, kind, client, each, params or {}, reflector_options or ReflectorOptions())
            for each in namespaces or ("",)
        ]

    def get(self, key: Key) -> T | None:
        return self._values.get(key)

    def values(self) -> Collection[T]:
        """A live view of all objects: copy it before waiting for anything."""
        return self._values.values()

    def __len__(self) -> int:
        return len(self._values)

    def covers(self, namespace: str) -> bool:
        """Whether the objects of that namespace are all here."""
        return self.synced.is_set() and bool(self._reflectors_of(namespace))

    def subscribe(self, callback: Callback[T]) -> None:
        """Call back at every change from now on.

        A callback that raises is reported, and stops neither the others nor the cache: one object that somebody
        stumbles over must not end the watch of all the others.
        """
        self._callbacks.append(callback)

    def staleness(self, now: float, namespace: str = "") -> float:
        """Seconds (of the monotonic clock) since the cache was last heard of: what it knows of one namespace, or (of
        all, "") its least lively part.
        """
        return max(now - reflector.heard for reflector in self._reflectors_of(namespace) or self._reflectors)

    def offer(self, key: Key, value: T) -> None:
        """Take in an object that was read or written past the watch, where it is newer than the one held."""
        if self.kind.version is not None:
            self._offered.add(key)
            self.put(key, value, self.kind.version(value))

    async def run(self) -> None:
        """Keep up, for ever; failures are waited out."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"{self.kind.resource} {reflector.namespace}".strip())

    def listing(self, namespace: str) -> None:
        """A list begins: what was offered until now, it is sure to know."""
        self._offered.difference_update(self.keys(namespace))

    def put(self, key: Key, value: T, version: str, *, listed: bool = False) -> None:
        """Take in an object, unless the one held is as new.

        A list is believed even where versions went backwards, or where one version has another content: a server whose
        storage was restored from a backup gives the same versions to other writes.
        """
        old = self._values.get(key)
        trusted = listed and key not in self._offered
        if old is None or not self._as_new(old, value, version, trusted):
            self._values[key] = value
            self._tell(key, old, value)

    def drop(self, key: Key, version: str, *, listed: bool = False) -> None:
        """Let go of an object that was gone at `version`, unless the one held came later."""
        old = self._values.get(key)
        trusted = listed and key not in self._offered
        if old is not None and (trusted or not self._later(old, version)):
            del self._values[key]
            self._offered.discard(key)
            self._tell(key, old, None)

    def settled(self) -> None:
        """One reflector has all it needs: the cache is synced when every reflector has."""
        if all(reflector.synced for reflector in self._reflectors):
            self.synced.set()
            self.refused.clear()
        if not any(reflector.failing for reflector in self._reflectors):
            self.trouble = None

    def keys(self, namespace: str) -> list[Key]:
        """The keys held of one namespace, or ("") of all."""
        return [key for key in self._values if not namespace or key.namespace == namespace]

    def _reflectors_of(self, namespace: str) -> list[Reflector[T]]:
        return [reflector for reflector in self._reflectors if reflector.namespace in {"", namespace}]

    def _as_new(self, held: T, value: T, version: str, trusted: bool) -> bool:
        if self.kind.version is None:
            return held == value
        if self.kind.version(held) == version:
            return not trusted or held == value
        return not trusted and self._later(held, version)

    def _later(self, held: T, version: str) -> bool:
        """Whether the value held was written after `version`."""
        return self.kind.version is not None and later(self.kind.version(held), version)

    def _tell(self, key: Key, old: T | None, new: T | None) -> None:
        self._index(key, old, new)
        for callback in self._callbacks:
            try:
                callback(key, old, new)
            except Exception:  # noqa: BLE001  # a bug of whoever listens
                self._report_bug(key)

    def _report_bug(self, key: Key) -> None:
        if self._bug is not None:
            self._bug()
        with contextlib.suppress(Exception):  # standard error may be the thing that fails
            self._log.exception("bug: a change was not taken in", object=str(key))

    def _index(self, key: Key, old: T | None, new: T | None) -> None:
        """Follow a change in what is part of the cache itself. Whatever is raised here ends the cache: it would lie."""


_ENCODER = msgspec.json.Encoder(enc_hook=enc_hook)


class HpaCache(Cache[HorizontalPodAutoscaler]):
    """All HPAs. Of a version that differs in its status alone the spec is the very object that is held already.

    Most versions come of statuses. Were the spec of each kept in the place of the one before, and worked out anew
    (`model.spec`; together they are half of what an HPA takes), what lives long would be on the move all the time,
    and leave holes between what lives longer.
    """

    def put(self, key: Key, value: HorizontalPodAutoscaler, version: str, *, listed: bool = False) -> None:
        held = self.get(key)
        if held is not None and _same(held.spec, value.spec):
            value = msgspec.structs.replace(value, spec=held.spec)
        super().put(key, value, version, listed=listed)


def _same(one: HorizontalPodAutoscalerSpec, other: HorizontalPodAutoscalerSpec) -> bool:
    """Whether they are written alike, too: equal quantities may not be ("1Ki" and "1024")."""
    return one == other and _ENCODER.encode(one) == _ENCODER.encode(other)


POD = Kind(paths.PODS, codec.pod)
_UNIQUE = frozenset({"statefulset.kubernetes.io/pod-name"})  # a bucket for each pod would be all cost and no use
_BY_VALUE = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})
K = TypeVar("K")
_Bucket = dict[str, Pod]


class Index:
    """Pods by namespace, and by namespace and label pair."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Bucket] = {}
        self._labels: dict[tuple[str, str, str], _Bucket] = {}

    def replace(self, old: Pod | None, new: Pod | None) -> None:
        """Follow one change of one pod."""
        if old is not None:
            _take_out(self._namespaces, old.namespace, old.name)
            for place in _places(old):
                _take_out(self._labels, place, old.name)
        if new is not None:
            self._namespaces.setdefault(new.namespace, {})[new.name] = new
            for place in _places(new):
                self._labels.setdefault(place, {})[new.name] = new

    def shared(self, pod: Pod) -> Mapping[str, str]:
        """The pod's labels, as one of its kind has them already, or made of what others have of them.

        Replicas of a template are found by the label that the fewest pods carry. What only pods hold goes with them,
        unlike what a cache of texts would keep of each template there ever was.
        """
        found = {place: bucket for place in _places(pod) if (bucket := self._labels.get(place))}
        if not found:
            return pod.labels
        mate = _any(min(found.values(), key=len))
        if mate.labels == pod.labels:
            return mate.labels
        values = {key: _any(bucket).labels[key] for (_, key, _), bucket in found.items()}
        return {**pod.labels, **values}

    def select(self, namespace: str, selector: Selector) -> list[Pod]:
        """The pods of the namespace that match, in the order of their names."""
        found = [pod for pod in self._candidates(namespace, selector) if selector.matches(pod.labels)]
        return sorted(found, key=lambda pod: pod.name)

    def _candidates(self, namespace: str, selector: Selector) -> list[Pod]:
        """The fewest pods that are sure to hold all those that match."""
        best: list[_Bucket] = [self._namespaces.get(namespace, {})]
        for term in selector.requirements:
            if term.operator in _BY_VALUE and term.key not in _UNIQUE:
                buckets = self._buckets(namespace, term)
                if sum(map(len, buckets)) < sum(map(len, best)):
                    best = buckets
        return [pod for bucket in best for pod in bucket.values()]

    def _buckets(self, namespace: str, term: Requirement) -> list[_Bucket]:
        places = ((namespace, term.key, value) for value in set(term.values))
        return [bucket for place in places if (bucket := self._labels.get(place))]


class PodCache(Cache[Pod]):
    """All pods. Those of one template share one label set, for as long as any of them is there."""

    def __init__(
        self,
        client: Client,
        *,
        namespaces: Sequence[str] = (),
        params: Mapping[str, str] | None = None,
        reflector_options: ReflectorOptions | None = None,
    ) -> None:
        super().__init__(client, POD, namespaces=namespaces, params=params, reflector_options=reflector_options)
        self._labels = Index()

    def put(self, key: Key, value: Pod, version: str, *, listed: bool = False) -> None:
        held = self.get(key)
        labels = held.labels if held is not None and held.labels == value.labels else self._labels.shared(value)
        super().put(key, msgspec.structs.replace(value, labels=labels), version, listed=listed)

    def select(self, namespace: str, selector: Selector) -> list[Pod]:
        """The namespace's pods that match, in the order of their names; no other pod is looked at."""
        return self._labels.select(namespace, selector)

    def _index(self, key: Key, old: Pod | None, new: Pod | None) -> None:
        self._labels.replace(old, new)


def _places(pod: Pod) -> list[tuple[str, str, str]]:
    return [(pod.namespace, key, value) for key, value in pod.labels.items() if key not in _UNIQUE]


def _any(bucket: _Bucket) -> Pod:
    return next(iter(bucket.values()))


def _take_out(buckets: dict[K, _Bucket], place: K, name: str) -> None:
    bucket = buckets.get(place)
    if bucket is not None:
        bucket.pop(name, None)
        if not bucket:
            del buckets[place]

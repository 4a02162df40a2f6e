"""The pod cache, with an index: the pods of a selector without a look at all the others."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.selector import Operator, Requirement, Selector
from hpad.kube import codec, paths
from hpad.kube.cache import Cache, Kind
from hpad.kube.client import Client
from hpad.kube.watch import Pace

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
        pace: Pace | None = None,
    ) -> None:
        super().__init__(client, POD, namespaces=namespaces, params=params, pace=pace)
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

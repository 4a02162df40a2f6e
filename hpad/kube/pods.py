"""Pods: their cache with an index by label, and the patches that set their deletion costs."""

import math
import operator
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Final

import msgspec

from hpad.api import pod_json
from hpad.api.metadata import Key
from hpad.api.pod import COST_SET, DELETION_COST, DeletionCost, Pod, cost_annotations
from hpad.api.selector import Operator, Selector
from hpad.kube import paths
from hpad.kube.cache import Cache
from hpad.kube.reflector import Kind, WatchScope
from hpad.kube.watch import DecodedObject


def pod(raw: bytes | msgspec.Raw) -> DecodedObject[Pod]:
    """Decodes a pod; raises UNDECODABLE."""
    value, version = pod_json.decode(raw)
    return DecodedObject(Key(value.namespace, value.name), version, value)


_UNIQUE = frozenset({"statefulset.kubernetes.io/pod-name"})  # not indexed: no two pods share a value
_BY_VALUE = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})
_FEW: Final = 8
"""A bucket with more pods is a dict. Most labels belong to the replicas of one target, and a tuple of four pods takes
80 bytes, where a dict takes 230."""
_Bucket = tuple[Pod, ...] | dict[str, Pod]
_NAME = operator.attrgetter("name")
_NO_PODS: Final[Mapping[str, Pod]] = {}


class PodsByKey(MutableMapping[Key, Pod]):
    """Pods by namespace, then by name. One dict of all pods would need a key of 32 bytes for each."""

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
        return self._namespaces.get(key.namespace, _NO_PODS).get(key.name, default)

    def __getitem__(self, key: Key) -> Pod:
        return self._namespaces[key.namespace][key.name]

    def __setitem__(self, _: Key, pod: Pod) -> None:
        self._namespaces.setdefault(pod.namespace, {})[pod.name] = pod

    def __delitem__(self, key: Key) -> None:
        pods = self._namespaces[key.namespace]
        del pods[key.name]
        if not pods:
            del self._namespaces[key.namespace]

    def __iter__(self) -> Iterator[Key]:
        return (Key(namespace, name) for namespace, pods in self._namespaces.items() for name in pods)

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))


class Index:
    """Finds pods by label. `pods` are all of them; after each change of it, `replace` has to be called."""

    def __init__(self) -> None:
        self.pods = PodsByKey()
        self._buckets: dict[tuple[str, str, str], _Bucket] = {}

    def __len__(self) -> int:
        """Returns the number of namespaces and label pairs that pods have."""
        return self.pods.namespaces + len(self._buckets)

    def replace(self, old: Pod | None, new: Pod | None) -> None:
        """Applies the change of one pod to the labels."""
        if old is not None and (new is None or old.labels != new.labels):
            for place in _places(old):
                self._remove(place, old.name)
        if new is not None:
            for place in _places(new):
                self._add(place, new)

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


def _places(pod: Pod) -> list[tuple[str, str, str]]:
    return [(pod.namespace, key, value) for key, value in pod.labels.items() if key not in _UNIQUE]


def _any(bucket: _Bucket) -> Pod:
    return next(iter(bucket if isinstance(bucket, tuple) else bucket.values()))


class PodCache(Cache[Pod]):
    """All pods; pods of one template share one label mapping. `marked`: hpad has set their deletion cost."""

    def __init__(self, scope: WatchScope) -> None:
        super().__init__(scope, Kind(paths.PODS, pod))
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


Json = dict[str, Any]


def cost_patch(cost: DeletionCost) -> bytes:
    """Returns the merge patch that gives a pod these annotations."""
    return msgspec.json.encode({"metadata": {"annotations": cost_annotations(cost)}})


def cost_removal(found: DeletionCost) -> bytes:
    """Returns the JSON patch that removes the mark and restores the user's cost.

    The API server refuses it with 422 if the cost or its mark is not the one found any more.
    """
    left = DeletionCost(found.restored)
    steps = [_step("test", name, text) for name, text in _present(found).items() if name in (COST_SET, DELETION_COST)]
    steps += [_step("remove", name) for name in _present(found)]
    steps += [_step("add", name, text) for name, text in _present(left).items()]
    return msgspec.json.encode(steps)


def _present(cost: DeletionCost) -> dict[str, str]:
    return {name: text for name, text in cost_annotations(cost).items() if text is not None}


def _step(operation: str, annotation: str, value: str | None = None) -> Json:
    path = f"/metadata/annotations/{annotation.replace('/', '~1')}"
    return {"op": operation, "path": path} if value is None else {"op": operation, "path": path, "value": value}

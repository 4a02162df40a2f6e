"""Pods: their decoding, their cache with an index by label, and the patches that set their deletion costs."""

import functools
import math
import operator
import socket
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api import quantity
from hpad.api.deletion_cost import COST_SET, DELETION_COST, DeletionCost, of_annotations, to_annotations
from hpad.api.kept import kept
from hpad.api.metadata import Key
from hpad.api.pod import AppliedRequests, ContainerRequests, OtherRequests, Pod, effective_requests, other_requests
from hpad.api.selector import Operator, Selector
from hpad.kube import paths
from hpad.kube.cache import Cache
from hpad.kube.reflector import Kind
from hpad.kube.watch import (
    DECODED,
    EMPTY,
    TEXTS,
    ControlledMeta,
    DecodedObject,
    WatchScope,
    controller_of,
    interned,
    labels,
    short,
)

_MOST_CONTAINERS: Final = 1000
_LONGEST_REQUESTS: Final = 1 << 16
"""Bytes of the JSON of all requests of a pod."""
_SHORT: Final = 1 << 13
"""Bytes of a pod; a container takes nine or more."""
_TOO_LARGE: Final = (ContainerRequests(f"(more than {_MOST_CONTAINERS:,}, or too long requests)", {}),)
"""Stands for the containers of a pod that has too many: a container without requests fails the metrics of usage."""
_COST: Final = b"deletion-cost"
"""A part of the names of the annotations of a pod that are read."""
_ALWAYS = "Always"  # the restart policy that makes an init container a sidecar


class _Resources(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    requests: msgspec.Raw = EMPTY


class _Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resources: _Resources = _Resources()
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resources: _Resources = _Resources()
    overhead: msgspec.Raw = EMPTY


class _Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _ContainerStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resources: _Resources = _Resources()
    allocated_resources: msgspec.Raw = EMPTY


class _PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()
    resources: _Resources = _Resources()
    allocated_resources: msgspec.Raw = EMPTY
    start_time: datetime | None = None
    conditions: tuple[_Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Pod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: ControlledMeta = ControlledMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_AMOUNTS: Final = msgspec.json.Decoder(dict[str, str | int | float] | None)
_POD = msgspec.json.Decoder(_Pod)


def pod(raw: bytes | msgspec.Raw) -> DecodedObject[Pod]:
    """Decodes a pod into about 500 bytes, if pods share labels (`PodCache`) and requests.

    Raises UNDECODABLE.
    """
    wire = _POD.decode(raw)
    # A pod whose whole text is short has neither too many containers nor too long requests.
    value = _compact(wire, is_too_large=len(memoryview(raw)) > _SHORT and _is_too_large(wire))
    return DecodedObject(Key(value.namespace, value.name), wire.metadata.resource_version, value)


def _compact(wire: _Pod, *, is_too_large: bool) -> Pod:
    spec, status = wire.spec, wire.status
    sidecars = [container for container in spec.init_containers if container.restart_policy == _ALWAYS]
    requests = tuple([(each.name, bytes(each.resources.requests)) for each in (*spec.containers, *sidecars)])
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    return Pod(
        name=wire.metadata.name,
        namespace=short(wire.metadata.namespace),
        labels=labels(wire.metadata.labels),
        phase=short(status.phase),
        deleted=wire.metadata.deletion_timestamp is not None,
        start_time=_shared_time(status.start_time),
        ready=short(ready.status) if ready else None,
        ready_since=_shared_time(ready.last_transition_time) if ready else None,
        containers=_TOO_LARGE if is_too_large else _containers(requests),
        pod_requests=None if is_too_large else _pod_requests(spec),
        other_requests=None if is_too_large else _other_requests(wire, requests),
        owner=controller_of(wire.metadata),
        address=_address_number(status.pod_ip) if status.pod_ip else 0,
        deletion_cost=_deletion_cost(bytes(wire.metadata.annotations)),
    )


def _deletion_cost(annotations: bytes) -> DeletionCost | None:
    # Nearly no pod has one, and annotations are long: they are searched, not decoded.
    if _COST not in annotations:
        return None
    return of_annotations(TEXTS.decode(annotations) or {})


def _address_number(text: str) -> int:
    """Returns an IP address as a number, which is smaller than its text; 0 for any other text."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return int.from_bytes(socket.inet_pton(family, text))
        except (OSError, ValueError):
            continue
    return 0


@functools.lru_cache(maxsize=1 << 14)
def _shared_time(time: datetime | None) -> datetime | None:
    """Returns the same object for equal times: pods of one rollout often start in the same second."""
    return time


@kept(lambda raw: DECODED * len(raw))
def _amounts(raw: bytes) -> dict[str, int]:
    """Decodes requests into milli-units; containers with equal requests share the dict."""
    amounts = _AMOUNTS.decode(raw) or {}
    return {interned(name): quantity.parse_milli(str(value)) for name, value in amounts.items()}


@kept(lambda parts: DECODED * sum([len(name) + len(requests) for name, requests in parts]))
def _containers(parts: tuple[tuple[str, bytes], ...]) -> tuple[ContainerRequests, ...]:
    return tuple(ContainerRequests(interned(name), _amounts(requests)) for name, requests in parts)


def _is_too_large(wire: _Pod) -> bool:
    """Returns whether the containers of a pod and their requests would take too long to read."""
    spec, status = wire.spec, wire.status
    both = (*spec.containers, *spec.init_containers)
    statuses: tuple[_ContainerStatus | _PodStatus, ...] = (
        status, *status.container_statuses, *status.init_container_statuses
    )  # fmt: skip
    asked = [spec.resources.requests, spec.overhead, *(each.resources.requests for each in both)]
    applied = [raw for each in statuses for raw in (each.resources.requests, each.allocated_resources)]
    if max(len(both), len(statuses) - 1) > _MOST_CONTAINERS:
        return True
    return max(sum(map(len, asked)), sum(map(len, applied))) > _LONGEST_REQUESTS


def _pod_requests(spec: _PodSpec) -> Mapping[str, int] | None:
    """Returns the requests of a pod with pod-level requests (KEP-2837), None for other pods."""
    own = _amounts(bytes(spec.resources.requests))
    if not own:
        return None
    return effective_requests(
        own,
        [_amounts(bytes(each.resources.requests)) for each in spec.containers],
        [(each.restart_policy == _ALWAYS, _amounts(bytes(each.resources.requests))) for each in spec.init_containers],
    )


_NONE: Final = bytes(EMPTY)
_Requests = tuple[str, bytes, bool]
"""Name and requests of a container, and whether it is restartable."""


def _other_requests(wire: _Pod, requests: Sequence[tuple[str, bytes]]) -> OtherRequests | None:
    """Returns the requests in force where they differ from the spec, and the overhead; nearly all pods have neither.

    `requests` are those of the containers and sidecars.
    """
    spec, status = wire.spec, wire.status
    own = bytes(spec.resources.requests)
    statuses = (*status.container_statuses, *status.init_container_statuses)
    if own == _NONE and _are_applied(statuses, requests):
        return None
    both = (*spec.containers, *spec.init_containers)
    asked = tuple([(each.name, bytes(each.resources.requests), each.restart_policy == _ALWAYS) for each in both])
    actual = tuple([(each.name, raw) for each in statuses if (raw := _actual(each)) != _NONE])
    return _shared_other(len(spec.containers), asked, actual, (own, _actual(status), bytes(spec.overhead)))


def _are_applied(statuses: Sequence[_ContainerStatus], requests: Sequence[tuple[str, bytes]]) -> bool:
    """Whether the texts say so. Equal amounts may be written in two ways. Init containers that end do not count."""
    for each in statuses:  # no all(): this runs for each pod that is read
        actual = _actual(each)
        if actual != _NONE and (each.name, actual) not in requests and any([each.name == name for name, _ in requests]):
            return False
    return True


def _actual(status: _ContainerStatus | _PodStatus) -> bytes:
    """Returns the requests that the node applies, or those that it has admitted where it says no more."""
    applied = bytes(status.resources.requests)
    return applied if applied != _NONE else bytes(status.allocated_resources)


def _length(parts: tuple[tuple[str, bytes] | _Requests, ...]) -> int:
    return sum([len(each[0]) + len(each[1]) for each in parts])


@kept(lambda regular, asked, actual, whole: DECODED * (_length(asked) + _length(actual) + sum(map(len, whole))))
def _shared_other(
    regular: int, asked: tuple[_Requests, ...], actual: tuple[tuple[str, bytes], ...], whole: tuple[bytes, bytes, bytes]
) -> OtherRequests | None:
    """Reads them; pods of one target share the result. `whole`: those of the spec, of the status, and the overhead."""
    containers = [ContainerRequests(interned(name), _amounts(raw)) for name, raw, _ in asked]
    initial = [(asked[index][2], each) for index, each in enumerate(containers) if index >= regular]
    own, applied, overhead = (_amounts(each) for each in whole)
    found = AppliedRequests({name: _amounts(raw) for name, raw in actual}, applied)
    return other_requests(own or None, containers[:regular], initial, found, overhead)


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


MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
Json = dict[str, Any]


def cost_patch(cost: DeletionCost) -> bytes:
    """Returns the merge patch that gives a pod these annotations."""
    return msgspec.json.encode({"metadata": {"annotations": to_annotations(cost)}})


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
    return {name: text for name, text in to_annotations(cost).items() if text is not None}


def _step(operation: str, annotation: str, value: str | None = None) -> Json:
    path = f"/metadata/annotations/{annotation.replace('/', '~1')}"
    return {"op": operation, "path": path} if value is None else {"op": operation, "path": path, "value": value}

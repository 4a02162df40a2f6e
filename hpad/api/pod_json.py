"""Pods as JSON: read from the API server and from recordings, and written into recordings."""

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from hpad.api import quantity
from hpad.api.bounded_cache import bounded_cache
from hpad.api.metadata import Moment
from hpad.api.pod import (
    AppliedRequests,
    ContainerRequests,
    DeletionCost,
    OtherRequests,
    Pod,
    cost_annotations,
    cost_of_annotations,
    effective_requests,
    other_requests,
)
from hpad.api.quantity import Quantity
from hpad.api.wire import DECODED, EMPTY, TEXTS, ControlledMeta, controller_of, interned, labels, short

_MOST_CONTAINERS: Final = 1000
_LONGEST_REQUESTS: Final = 1 << 16
"""Bytes of the JSON of all requests of a pod."""
_SHORT: Final = 1 << 13
"""Bytes of a pod; a container takes nine or more."""
_TOO_LARGE: Final = (ContainerRequests(f"(more than {_MOST_CONTAINERS:,}, or too long requests)", {}),)
"""Stands for the containers of a pod that has too many: a container without requests fails the metrics of usage."""
_COST: Final = b"deletion-cost"
"""A part of the names of the annotations of a pod that are read."""
_IPV4_BYTES: Final = 4
_ALWAYS: Final = "Always"  # the restart policy that makes an init container a sidecar


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
    last_transition_time: Moment | None = None


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
    start_time: Moment | None = None
    conditions: tuple[_Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Pod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: ControlledMeta = ControlledMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


_AMOUNTS: Final = msgspec.json.Decoder(dict[str, str | int | float] | None)
_POD = msgspec.json.Decoder(_Pod)


def decode(raw: bytes | msgspec.Raw) -> tuple[Pod, str]:
    """Returns a pod and its resourceVersion. Raises UNDECODABLE.

    The pod takes about 500 bytes, if pods share labels (`hpad.kube.pods`) and requests.
    """
    wire = _POD.decode(raw)
    # A pod whose whole text is short has neither too many containers nor too long requests.
    value = _compact(wire, is_too_large=len(memoryview(raw)) > _SHORT and _is_too_large(wire))
    return value, wire.metadata.resource_version


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
    return cost_of_annotations(TEXTS.decode(annotations) or {})


def _address_number(text: str) -> int:
    """Returns an IP address as a number, which is smaller than its text; 0 for any other text."""
    try:
        if not text.replace(".", "").isdigit():
            return int(ip_address(text))
        numbers = bytes(map(int, text.split(".")))  # ip_address takes ten times as long, for each pod that is read
        return int.from_bytes(numbers) if len(numbers) == _IPV4_BYTES else 0
    except ValueError:
        return 0


@functools.lru_cache(maxsize=1 << 14)
def _shared_time(time: datetime | None) -> datetime | None:
    """Returns the same object for equal times: pods of one rollout often start in the same second."""
    return time


@bounded_cache(lambda raw: DECODED * len(raw))
def _amounts(raw: bytes) -> dict[str, int]:
    """Decodes requests into milli-units; containers with equal requests share the dict."""
    amounts = _AMOUNTS.decode(raw) or {}
    return {interned(name): quantity.parse_milli(str(value)) for name, value in amounts.items()}


@bounded_cache(lambda parts: DECODED * sum([len(name) + len(requests) for name, requests in parts]))
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


@bounded_cache(
    lambda regular, asked, actual, whole: DECODED * (_length(asked) + _length(actual) + sum(map(len, whole)))
)
def _shared_other(
    regular: int, asked: tuple[_Requests, ...], actual: tuple[tuple[str, bytes], ...], whole: tuple[bytes, bytes, bytes]
) -> OtherRequests | None:
    """Reads them; pods of one target share the result. `whole`: those of the spec, of the status, and the overhead."""
    containers = [ContainerRequests(interned(name), _amounts(raw)) for name, raw, _ in asked]
    initial = [(asked[index][2], each) for index, each in enumerate(containers) if index >= regular]
    own, applied, overhead = (_amounts(each) for each in whole)
    found = AppliedRequests({name: _amounts(raw) for name, raw in actual}, applied)
    return other_requests(own or None, containers[:regular], initial, found, overhead)


def to_builtins(pod: Pod, now: datetime) -> dict[str, Any]:
    """Returns a core/v1 Pod that `decode` reads as the same pod without owner and address.

    Its deletion time is `now`.
    """
    other = pod.other_requests
    ready = {"type": "Ready", "status": pod.ready, "lastTransitionTime": pod.ready_since}
    metadata = {
        "name": pod.name,
        "namespace": pod.namespace,
        "labels": dict(pod.labels),
        "annotations": {} if pod.deletion_cost is None else _filled(cost_annotations(pod.deletion_cost)),
        "deletionTimestamp": now if pod.deleted else None,
    }
    spec = {
        "containers": [_container(each) for each in pod.containers],
        "resources": _resources(pod.pod_requests),
        "overhead": None if other is None else _amounts_text(other.overhead),
    }
    status = {
        "phase": pod.phase,
        "conditions": None if pod.ready is None else [_filled(ready)],
        "startTime": pod.start_time,
        "containerStatuses": [] if other is None else [_container(each) for each in other.containers],
        "resources": None if other is None else _resources(other.pod_requests),
    }
    value: dict[str, Any] = msgspec.to_builtins(
        {"metadata": _filled(metadata), "spec": _filled(spec), "status": _filled(status)}
    )
    return value


def _filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}


def _container(container: ContainerRequests) -> dict[str, Any]:
    return {"name": container.name, "resources": _resources(container.requests)}


def _resources(requests: Mapping[str, int] | None) -> dict[str, Any] | None:
    return None if requests is None else {"requests": _amounts_text(requests)}


def _amounts_text(requests: Mapping[str, int]) -> dict[str, str]:
    return {name: str(Quantity.from_milli(amount)) for name, amount in requests.items()}

"""Decodes objects of the API server into the values that decisions read.

Only the fields that are read are decoded, directly from bytes. Equal requests of containers share one object.
"""

import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from hpad.api import deletion_cost, limits
from hpad.api import pod as pods
from hpad.api import selector as selector_module
from hpad.api.deletion_cost import DeletionCost
from hpad.api.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerCondition,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    Scale,
    ScaleSpec,
    ScaleStatus,
    dec_hook,
    enc_hook,
)
from hpad.api.kept import kept
from hpad.api.metadata import Key, ObjectMeta
from hpad.api.pod import ContainerRequests, Owner, Pod
from hpad.api.selector_syntax import MOST_REQUIREMENTS
from hpad.engine.controls import PREFIX
from hpad.kube import errors, managed_fields, shared

T = TypeVar("T")
UNDECODABLE: Final = (msgspec.DecodeError, ValueError, KeyError, RecursionError)
"""Raised for an object that does not match its resource; the message names the field, never its value."""
_EMPTY = msgspec.Raw(b"{}")
_LONGEST_SELECTOR: Final = 1 << 16
"""Bytes of the JSON of a selector that is decoded: each requirement takes 50 beside its text."""
_MOST_CONTAINERS: Final = 1000
_LONGEST_REQUESTS: Final = 1 << 16
"""Bytes of the JSON of all requests of a pod."""
_TOO_LARGE: Final = (ContainerRequests(f"(more than {_MOST_CONTAINERS:,}, or too long requests)", {}),)
"""Stands for the containers of a pod that has too many: a container without requests fails the metrics of usage."""
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
_COST: Final = b"deletion-cost"
"""A part of the names of the annotations of a pod that are read."""
_ALWAYS = "Always"  # the restart policy that makes an init container a sidecar


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields of metav1.ObjectMeta and ListMeta that are read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = _EMPTY
    annotations: msgspec.Raw = _EMPTY
    continue_: str = msgspec.field(default="", name="continue")

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def complete(self) -> bool:
        """Returns whether this metadata belongs to the bookmark that ends a streaming list (KEP-3157)."""
        return labels(self.annotations).get(_INITIAL_EVENTS_END) == "true"


class Place(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields of metav1.ObjectMeta that tell which version of an object this is; cheaper than Meta."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class _OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _PodMeta(Meta, frozen=True, gc=False, rename="camel"):
    owner_references: tuple[_OwnerReference, ...] | None = None


class _OwnedMeta(_PodMeta, frozen=True, gc=False, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Headed(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta = Meta()


class Placed(msgspec.Struct, frozen=True, gc=False):
    """An object of which nothing else is read."""

    metadata: Place = Place()


class Target(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A watched object with a scale subresource: the fields of its Scale.

    `replicas` is spec.replicas, 1 if unset; `selector` is text, as in the Scale. `owner` is the field manager that set
    the replicas last, "" if unknown. `controller` is the object that controls this one, as for a ReplicaSet.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str
    creation_timestamp: str | None
    replicas: int
    status_replicas: int
    selector: str
    owner: str = ""
    controller: Owner | None = None

    @property
    def scale(self) -> Scale:
        """The Scale as the API server would return it; made for each turn, since 10,000 of them would take 10 MB."""
        metadata = {
            "name": self.name,
            "namespace": self.namespace,
            "uid": self.uid,
            "resourceVersion": self.resource_version,
            "creationTimestamp": self.creation_timestamp,
        }
        return Scale(
            metadata=metadata,
            spec=ScaleSpec(self.replicas),
            status=ScaleStatus(self.status_replicas, self.selector),
        )


class Original(msgspec.Struct, frozen=True, gc=False):
    """The bytes of an HPA as received that a write of its status needs.

    `metadata` is without resourceVersion and managedFields, `status` without the fields that hpad writes, and `rest`
    are the fields of the object beside these and `spec`; each is a JSON object. `status_writers` maps each other client
    that writes the status to the time of its last write (see `managed_fields.writers_of_status`).
    """

    metadata: bytes
    spec: bytes
    status: bytes
    rest: bytes
    status_writers: Mapping[str, str]


class DecodedObject(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """One object of the API server. `version` is its resourceVersion.

    For HPAs from the API server `original` is set.
    """

    key: Key
    version: str
    value: T
    original: Original | None = None


Decode = Callable[[bytes | msgspec.Raw], DecodedObject[T]]
"""Decodes the bytes of one object; raises UNDECODABLE."""


class _Resources(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    requests: msgspec.Raw = _EMPTY


class _Container(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    resources: _Resources = _Resources()
    restart_policy: str = ""


class _PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    resources: _Resources = _Resources()
    overhead: msgspec.Raw = _EMPTY


class _Condition(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    start_time: datetime | None = None
    conditions: tuple[_Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Pod(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: _PodMeta = _PodMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _TargetSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    selector: msgspec.Raw = _EMPTY


class _TargetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int = 0


class _Target(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: _OwnedMeta = _OwnedMeta()
    spec: _TargetSpec = _TargetSpec()
    status: _TargetStatus = _TargetStatus()


class Page(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One page of a list. `items` are decoded one by one, so that one unreadable object does not affect the others."""

    metadata: Meta = Meta()
    items: list[msgspec.Raw] | None = None


_HEADED = msgspec.json.Decoder(_Headed)
_PAGE = msgspec.json.Decoder(Page)
_POD = msgspec.json.Decoder(_Pod)
_TARGET = msgspec.json.Decoder(_Target)


class _NarrowSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int | None = None
    max_replicas: int = 0


class _NarrowHpa(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta = ObjectMeta()
    spec: _NarrowSpec = _NarrowSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


class _RawSpec(msgspec.Struct, frozen=True, gc=False):
    spec: msgspec.Raw = msgspec.Raw(b"")


_HPA = msgspec.json.Decoder(HorizontalPodAutoscaler, dec_hook=dec_hook)
_NARROW = msgspec.json.Decoder(_NarrowHpa, dec_hook=dec_hook)
_SPEC = msgspec.json.Decoder(_RawSpec)
_ENCODER = msgspec.json.Encoder(enc_hook=enc_hook)
_TEXTS = msgspec.json.Decoder(dict[str, str] | None)
_SELECTOR = msgspec.json.Decoder(selector_module.LabelSelector | None)


def page(body: bytes) -> Page:
    """Decodes an answer to a list. Raises ApiError with status 0 for anything else, even an empty object."""
    answer = errors.decoded(_PAGE, body, "the answer is no list")
    if not answer.metadata.resource_version:  # an empty list would remove all objects from a cache
        raise errors.ApiError(0, "BadAnswer", "the answer is no list: it has no resourceVersion")
    return answer


def meta(raw: bytes | msgspec.Raw) -> Meta:
    """Decodes the metadata of any object or bookmark; empty if it is unreadable."""
    try:
        return _HEADED.decode(raw).metadata
    except errors.UNREADABLE:
        return Meta()


def hpa(raw: bytes | msgspec.Raw) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes an autoscaling/v2 HPA; raises UNDECODABLE. One that is too large is `limits.refused`."""
    fault = limits.size_fault(len(_SPEC.decode(raw).spec)) if len(raw) > limits.SPEC_BYTES else None
    found = limits.within(_HPA.decode(raw)) if fault is None else limits.refused(_without_parts(raw), fault)
    value = _with_shared_parts(found)
    return DecodedObject(value.metadata.key, value.metadata.resource_version, value)


def _without_parts(raw: bytes | msgspec.Raw) -> HorizontalPodAutoscaler:
    """Decodes an HPA without metrics and behavior, which may be too large to be decoded."""
    narrow = _NARROW.decode(raw)
    spec = HorizontalPodAutoscalerSpec(
        scale_target_ref=narrow.spec.scale_target_ref,
        min_replicas=narrow.spec.min_replicas,
        max_replicas=narrow.spec.max_replicas,
    )
    return HorizontalPodAutoscaler(metadata=narrow.metadata, spec=spec, status=narrow.status)


def _own_annotations(found: Mapping[str, str] | None) -> dict[str, str] | None:
    """Returns the annotations that hpad reads. There may be 256 KiB of others, in 100,000 pieces."""
    if not found:
        return None
    return {name: text for name, text in found.items() if name.startswith(PREFIX)} or None


def _with_shared_parts(hpa: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA with the same objects as other HPAs for what many HPAs have in common: about 1.5 kB."""
    head, ref = hpa.metadata, hpa.spec.scale_target_ref
    name = head.name if ref.name == head.name else ref.name
    spec = msgspec.structs.replace(
        hpa.spec,
        scale_target_ref=CrossVersionObjectReference(shared.interned(ref.kind), name, shared.interned(ref.api_version)),
        metrics=shared.metrics(_ENCODER.encode(hpa.spec.metrics)),
    )
    head = msgspec.structs.replace(
        head,
        namespace=shared.interned(head.namespace),
        annotations=_own_annotations(head.annotations),
        owner_references=(),
    )
    return msgspec.structs.replace(
        hpa,
        metadata=head,
        kind=shared.interned(hpa.kind),
        api_version=shared.interned(hpa.api_version),
        spec=spec,
        status=with_shared_texts(hpa.status),
    )


def with_shared_texts(status: HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus:
    """Returns the status with the same objects as other HPAs for the texts of its conditions."""
    return msgspec.structs.replace(status, conditions=tuple(map(_shared_condition, status.conditions)))


def _shared_condition(condition: HorizontalPodAutoscalerCondition) -> HorizontalPodAutoscalerCondition:
    return HorizontalPodAutoscalerCondition(
        shared.interned(condition.type),
        shared.interned(condition.status),
        condition.last_transition_time,
        shared.interned(condition.reason),
        shared.message(condition.message),
    )


def pod(raw: bytes | msgspec.Raw) -> DecodedObject[Pod]:
    """Decodes a pod into about 500 bytes, if pods share labels (`cache.PodCache`) and requests.

    Raises UNDECODABLE.
    """
    wire = _POD.decode(raw)
    value = _compact(wire)
    return DecodedObject(Key(value.namespace, value.name), wire.metadata.resource_version, value)


def target(raw: bytes | msgspec.Raw) -> DecodedObject[Target]:
    """Decodes a Deployment, ReplicaSet or StatefulSet; raises UNDECODABLE."""
    return _target(raw, _selector_text)


def replication_controller(raw: bytes | msgspec.Raw) -> DecodedObject[Target]:
    """Decodes a ReplicationController, whose selector is a map of labels; raises UNDECODABLE."""
    return _target(raw, _map_text)


def _compact(wire: _Pod) -> Pod:
    spec, status = wire.spec, wire.status
    is_too_large = _is_too_large(spec)
    sidecars = [container for container in spec.init_containers if container.restart_policy == _ALWAYS]
    requests = tuple([(each.name, bytes(each.resources.requests)) for each in (*spec.containers, *sidecars)])
    ready = next((condition for condition in status.conditions if condition.type == "Ready"), None)
    return Pod(
        name=wire.metadata.name,
        namespace=shared.short(wire.metadata.namespace),
        labels=labels(wire.metadata.labels),
        phase=shared.short(status.phase),
        deleted=wire.metadata.deletion_timestamp is not None,
        start_time=shared.shared_time(status.start_time),
        ready=shared.short(ready.status) if ready else None,
        ready_since=shared.shared_time(ready.last_transition_time) if ready else None,
        containers=_TOO_LARGE if is_too_large else shared.containers(requests),
        pod_requests=None if is_too_large else _pod_requests(spec),
        owner=_controller(wire.metadata),
        address=_address_number(status.pod_ip) if status.pod_ip else 0,
        deletion_cost=_deletion_cost(bytes(wire.metadata.annotations)),
    )


def _deletion_cost(annotations: bytes) -> DeletionCost | None:
    # Nearly no pod has one, and annotations are long: they are searched, not decoded.
    if _COST not in annotations:
        return None
    return deletion_cost.of_annotations(_TEXTS.decode(annotations) or {})


def _address_number(text: str) -> int:
    """Returns an IP address as a number, which is smaller than its text; 0 for any other text."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return int.from_bytes(socket.inet_pton(family, text))
        except (OSError, ValueError):
            continue
    return 0


def _controller(head: _PodMeta) -> Owner | None:
    for each in head.owner_references or ():
        if each.controller:
            group = each.api_version.rpartition("/")[0]
            if len(group) + len(each.kind) + len(each.name) > limits.NAME:
                return None  # no object has such a name
            return Owner(shared.short(group), shared.short(each.kind), each.name, each.uid)
    return None


def _is_too_large(spec: _PodSpec) -> bool:
    """Returns whether the containers of a pod and their requests would take too long to read."""
    both = (*spec.containers, *spec.init_containers)
    pieces = [spec.resources.requests, spec.overhead, *(each.resources.requests for each in both)]
    return len(both) > _MOST_CONTAINERS or sum(map(len, pieces)) > _LONGEST_REQUESTS


def _pod_requests(spec: _PodSpec) -> Mapping[str, int] | None:
    """Returns the requests of a pod with pod-level requests (KEP-2837), None for other pods."""
    own = shared.amounts(bytes(spec.resources.requests))
    if not own:
        return None
    return pods.effective_requests(
        own,
        [shared.amounts(bytes(each.resources.requests)) for each in spec.containers],
        [
            (each.restart_policy == _ALWAYS, shared.amounts(bytes(each.resources.requests)))
            for each in spec.init_containers
        ],
        shared.amounts(bytes(spec.overhead)),
    )


def _target(raw: bytes | msgspec.Raw, text: Callable[[bytes], str]) -> DecodedObject[Target]:
    wire = _TARGET.decode(raw)
    head, replicas = wire.metadata, wire.spec.replicas
    owner = managed_fields.owner_of_replicas(head.managed_fields)
    value = Target(
        name=head.name,
        namespace=shared.interned(head.namespace),
        uid=head.uid,
        resource_version=head.resource_version,
        creation_timestamp=head.creation_timestamp,
        replicas=1 if replicas is None else replicas,
        status_replicas=wire.status.replicas,
        selector=text(bytes(wire.spec.selector)),
        owner=shared.interned(managed_fields.setter(owner)),
        controller=_controller(head),
    )
    return DecodedObject(Key(value.namespace, value.name), head.resource_version, value)


def labels(raw: msgspec.Raw) -> dict[str, str]:
    """Decodes labels, with interned keys; {} for null."""
    short = shared.short
    return {short(key): value for key, value in (_TEXTS.decode(raw) or {}).items()}


@kept(lambda raw: 2 * len(raw))
def _selector_text(raw: bytes) -> str:
    """Returns a label selector as text, as in the scale subresource."""
    return _written(_SELECTOR.decode(raw)) if len(raw) <= _LONGEST_SELECTOR else selector_module.TOO_LARGE


@kept(lambda raw: 2 * len(raw))
def _map_text(raw: bytes) -> str:
    if len(raw) > _LONGEST_SELECTOR:
        return selector_module.TOO_LARGE
    return _written(selector_module.LabelSelector(match_labels=_TEXTS.decode(raw) or {}))


def _written(selector: selector_module.LabelSelector | None) -> str:
    if selector is not None and len(selector.match_labels) + len(selector.match_expressions) > MOST_REQUIREMENTS:
        return selector_module.TOO_LARGE
    text = str(selector_module.from_object(selector))
    return text if len(text) <= selector_module.LONGEST else selector_module.TOO_LARGE

"""Decodes objects of the API server into the values that decisions read.

Only the fields that are read are decoded, directly from bytes. HPAs are decoded in `hpas`, pods in `pods`. What many
objects have in common is kept once; each cache is bounded in bytes, since authors choose the length of the texts.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import msgspec

from hpad.api import limits
from hpad.api import selector as selector_module
from hpad.api.hpa import (
    Scale,
    ScaleSpec,
    ScaleStatus,
)
from hpad.api.kept import kept
from hpad.api.metadata import Key
from hpad.api.pod import PodOwner
from hpad.api.selector_syntax import MOST_REQUIREMENTS
from hpad.kube import errors, managed_fields

T = TypeVar("T")
_SHARED: Final = 1 << 14
_LONGEST: Final = 512
"""Characters of a text that is shared; the key of a label has at most 317."""
DECODED: Final = 10
"""What a decoded object takes for each byte of its JSON."""
UNDECODABLE: Final = (msgspec.DecodeError, ValueError, KeyError, RecursionError)
"""Raised for an object that does not match its resource; the message names the field, never its value."""
EMPTY = msgspec.Raw(b"{}")
_LONGEST_SELECTOR: Final = 1 << 16
"""Bytes of the JSON of a selector that is decoded: each requirement takes 50 beside its text."""
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class Meta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields of metav1.ObjectMeta and ListMeta that are read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: msgspec.Raw = EMPTY
    annotations: msgspec.Raw = EMPTY
    continue_: str = msgspec.field(default="", name="continue")

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def complete(self) -> bool:
        """Returns whether this metadata belongs to the bookmark that ends a streaming list (KEP-3157)."""
        return labels(self.annotations).get(_INITIAL_EVENTS_END) == "true"


class ObjectVersion(msgspec.Struct, frozen=True, gc=False, rename="camel"):
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


class ControlledMeta(Meta, frozen=True, gc=False, rename="camel"):
    """The same with the owners of the object."""

    owner_references: tuple[_OwnerReference, ...] | None = None


class _OwnedMeta(ControlledMeta, frozen=True, gc=False, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Headed(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: Meta = Meta()


class Placed(msgspec.Struct, frozen=True, gc=False):
    """An object of which nothing else is read."""

    metadata: ObjectVersion = ObjectVersion()


class WatchedTarget(msgspec.Struct, frozen=True, gc=False, rename="camel"):
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
    controller: PodOwner | None = None

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


class _TargetSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int | None = None
    selector: msgspec.Raw = EMPTY


class _TargetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int = 0


class _Target(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metadata: _OwnedMeta = _OwnedMeta()
    spec: _TargetSpec = _TargetSpec()
    status: _TargetStatus = _TargetStatus()


class ListPage(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One page of a list. `items` are decoded one by one, so that one unreadable object does not affect the others."""

    metadata: Meta = Meta()
    items: list[msgspec.Raw] | None = None


_HEADED = msgspec.json.Decoder(_Headed)
_PAGE = msgspec.json.Decoder(ListPage)
_TARGET = msgspec.json.Decoder(_Target)
TEXTS = msgspec.json.Decoder(dict[str, str] | None)
_SELECTOR = msgspec.json.Decoder(selector_module.LabelSelector | None)


def page(body: bytes) -> ListPage:
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


def target(raw: bytes | msgspec.Raw) -> DecodedObject[WatchedTarget]:
    """Decodes a Deployment, ReplicaSet or StatefulSet; raises UNDECODABLE."""
    return _target(raw, _selector_text)


def replication_controller(raw: bytes | msgspec.Raw) -> DecodedObject[WatchedTarget]:
    """Decodes a ReplicationController, whose selector is a map of labels; raises UNDECODABLE."""
    return _target(raw, _map_text)


def controller_of(head: ControlledMeta) -> PodOwner | None:
    """Returns the controller of an object, None if it has none, or one with a name that no object can have."""
    for each in head.owner_references or ():
        if each.controller:
            group = each.api_version.rpartition("/")[0]
            if len(group) + len(each.kind) + len(each.name) > limits.NAME:
                return None
            return PodOwner(short(group), short(each.kind), each.name, each.uid)
    return None


def _target(raw: bytes | msgspec.Raw, text: Callable[[bytes], str]) -> DecodedObject[WatchedTarget]:
    wire = _TARGET.decode(raw)
    head, replicas = wire.metadata, wire.spec.replicas
    owner = managed_fields.owner_of_replicas(head.managed_fields)
    value = WatchedTarget(
        name=head.name,
        namespace=interned(head.namespace),
        uid=head.uid,
        resource_version=head.resource_version,
        creation_timestamp=head.creation_timestamp,
        replicas=1 if replicas is None else replicas,
        status_replicas=wire.status.replicas,
        selector=text(bytes(wire.spec.selector)),
        owner=interned(managed_fields.setter(owner)),
        controller=controller_of(head),
    )
    return DecodedObject(Key(value.namespace, value.name), head.resource_version, value)


def interned(text: str) -> str:
    """Returns the same object for equal texts. Unlike sys.intern, it does not keep every text for ever."""
    return short(text) if len(text) <= _LONGEST else text


@functools.lru_cache(maxsize=_SHARED)
def short(text: str) -> str:
    """Returns the same object for equal texts whose length the API server limits, such as keys of labels."""
    return text


def labels(raw: msgspec.Raw) -> dict[str, str]:
    """Decodes labels, with interned keys; {} for null."""
    return {short(key): value for key, value in (TEXTS.decode(raw) or {}).items()}


@kept(lambda raw: 2 * len(raw))
def _selector_text(raw: bytes) -> str:
    """Returns a label selector as text, as in the scale subresource."""
    return _written(_SELECTOR.decode(raw)) if len(raw) <= _LONGEST_SELECTOR else selector_module.TOO_LARGE


@kept(lambda raw: 2 * len(raw))
def _map_text(raw: bytes) -> str:
    if len(raw) > _LONGEST_SELECTOR:
        return selector_module.TOO_LARGE
    return _written(selector_module.LabelSelector(match_labels=TEXTS.decode(raw) or {}))


def _written(selector: selector_module.LabelSelector | None) -> str:
    if selector is not None and len(selector.match_labels) + len(selector.match_expressions) > MOST_REQUIREMENTS:
        return selector_module.TOO_LARGE
    text = str(selector_module.from_object(selector))
    return text if len(text) <= selector_module.LONGEST else selector_module.TOO_LARGE

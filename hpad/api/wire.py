"""What is read of the metadata of any object, and the texts that many objects have in common.

Such texts are kept once; each cache is bounded in bytes, since authors choose the length of the texts.
"""

import functools
from typing import Final

import msgspec

from hpad.api import limits
from hpad.api.pod import PodOwner

_SHARED: Final = 1 << 14
_LONGEST: Final = 512
"""Characters of a text that is shared; the key of a label has at most 317."""
DECODED: Final = 10
"""What a decoded object takes for each byte of its JSON."""
UNDECODABLE: Final = (msgspec.DecodeError, ValueError, KeyError, RecursionError)
"""Raised for an object that does not match its resource; the message names the field, never its value."""
EMPTY = msgspec.Raw(b"{}")
_INITIAL_EVENTS_END = "k8s.io/initial-events-end"
TEXTS = msgspec.json.Decoder(dict[str, str] | None)


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
    def complete(self) -> bool:
        """Returns whether this metadata belongs to the bookmark that ends a streaming list (KEP-3157)."""
        return labels(self.annotations).get(_INITIAL_EVENTS_END) == "true"


class _OwnerReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ControlledMeta(Meta, frozen=True, gc=False, rename="camel"):
    """The same with the owners of the object."""

    owner_references: tuple[_OwnerReference, ...] | None = None


def controller_of(head: ControlledMeta) -> PodOwner | None:
    """Returns the controller of an object, None if it has none, or one with a name that no object can have."""
    for each in head.owner_references or ():
        if each.controller:
            group = each.api_version.rpartition("/")[0]
            if len(group) + len(each.kind) + len(each.name) > limits.NAME:
                return None
            return PodOwner(short(group), short(each.kind), each.name, each.uid)
    return None


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

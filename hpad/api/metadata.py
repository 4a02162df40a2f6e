"""Object metadata: the part of metav1.ObjectMeta that hpad reads.

What the queue carries and maps are keyed by: a namespace and a name, never an object.

Moments on the wire: RFC 3339 with a zone. Without one a time can't be compared with any other.
"""

from datetime import datetime
from typing import Annotated, NamedTuple

import msgspec

from hpad.api.text import shown


class Key(NamedTuple):
    """The identity of a namespaced object of a known kind; prints as `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Read `namespace/name`; raises ValueError for any other form."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"{shown(text)} is not of the form namespace/name")
        return cls(namespace, name)


class OwnerReference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """metav1.OwnerReference, without its garbage-collection flags."""

    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """metav1.ObjectMeta, narrowed: never write one back in place of the object it was read from."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] = ()
    generate_name: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


Moment = Annotated[datetime, msgspec.Meta(tz=True)]
"""A field that is a time and is refused where it doesn't say of which zone."""

"""Object metadata: the fields of metav1.ObjectMeta that hpad reads, and the key of a namespaced object."""

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
        """Parses `namespace/name`. Raises ValueError for any other form."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"{shown(text)} is not of the form namespace/name")
        return cls(namespace, name)


class OwnerReference(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """metav1.OwnerReference without its garbage-collection fields."""

    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A subset of metav1.ObjectMeta. Never write it back: the other fields of the object would be lost."""

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
"""An RFC 3339 time with a zone. A time without one is rejected, since it cannot be compared with others."""

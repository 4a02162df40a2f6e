"""Object metadata: the part of metav1.ObjectMeta that hpad reads."""

from datetime import datetime

import msgspec

from hpad.model.key import Key


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

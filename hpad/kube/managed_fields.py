"""Reads from `metadata.managedFields` (KEP-555) which clients set the replicas and write the status of an object."""

from collections.abc import Iterable
from typing import Final

import msgspec

from hpad.engine import view
from hpad.kube import errors

OURS: Final = view.HPAD
SCALE: Final = "scale"
STATUS: Final = "status"
_NO_CLIENT: Final = ("ancient-changes", "before-first-apply")
"""Managers of writes by clients that the server does not name, possibly hpad. Source: Kubernetes 1.36,
managedfields: capmanagers.go, skipnonapplied.go."""
_ABSENT: Final = msgspec.Raw(b"")
_REPLICAS: Final = b'"f:replicas"'


class ManagedFieldsEntry(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One manager of an object. `time` is RFC 3339 in UTC and whole seconds, so that later times sort later."""

    manager: str = ""
    subresource: str = ""
    time: str = ""
    fields_v1: msgspec.Raw = msgspec.field(default=_ABSENT, name="fieldsV1")


class _Spec(msgspec.Struct, frozen=True, gc=False):
    replicas: msgspec.Raw = msgspec.field(default=_ABSENT, name="f:replicas")


class _Fields(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = msgspec.field(default=_Spec(), name="f:spec")


_ENTRIES: Final = msgspec.json.Decoder(tuple[ManagedFieldsEntry, ...] | None)
_FIELDS: Final = msgspec.json.Decoder(_Fields)


def entries(raw: bytes | msgspec.Raw) -> tuple[ManagedFieldsEntry, ...]:
    """Decodes `metadata.managedFields`; no entries if it is absent or malformed. Never raises."""
    if not raw:
        return ()
    try:
        return _ENTRIES.decode(raw) or ()
    except errors.UNREADABLE:
        return ()


def owner_of_replicas(raw: bytes | msgspec.Raw) -> ManagedFieldsEntry | None:
    """Returns the manager that set `spec.replicas` last, in any request; None if no client is named.

    An update that changes a value makes its client the only owner; a client that applies the same value becomes a
    further owner. So while hpad is an owner, no other client has changed the count.
    """
    if _REPLICAS not in bytes(raw):  # saves the decoding of most versions of objects
        return None
    owners = [entry for entry in entries(raw) if entry.manager not in _NO_CLIENT and _has_replicas(entry)]
    ours = [entry for entry in owners if entry.manager == OURS]
    return max(ours or owners, key=lambda entry: entry.time, default=None)


def setter(entry: ManagedFieldsEntry | None) -> str:
    """Returns the name of the client that set the replicas with this entry; "" if it is not known."""
    return "" if entry is None else entry.manager


def status_written(known: Iterable[ManagedFieldsEntry]) -> str:
    """Returns the time at which a client last changed the status, "" if that is not known."""
    return max((entry.time for entry in known if entry.subresource == STATUS), default="")


def writers_of_status(known: Iterable[ManagedFieldsEntry]) -> dict[str, str]:
    """Returns the managers other than hpad that own status fields, each with the time of its last change."""
    found: dict[str, str] = {}
    for entry in known:
        if entry.subresource == STATUS and entry.manager not in (OURS, *_NO_CLIENT):
            found[entry.manager] = max(entry.time, found.get(entry.manager, ""))
    return found


def _has_replicas(entry: ManagedFieldsEntry) -> bool:
    fields = bytes(entry.fields_v1)
    if _REPLICAS not in fields:
        return False
    try:
        return bool(_FIELDS.decode(fields).spec.replicas)
    except errors.UNREADABLE:
        return False

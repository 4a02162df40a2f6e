"""The bytes of an HPA as received: what a write of its status needs, and changes of nothing but the status.

Fields that hpad does not know must survive a write. Therefore the bytes of each HPA are kept, about 1 kB each, without
managedFields (the server ignores them in a write of a subresource) and without the status fields that hpad writes.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, dec_hook, enc_hook
from hpad.kube import codec, managed_fields, paths
from hpad.kube.codec import DecodedObject, Original

_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(HorizontalPodAutoscalerStatus))
_KEPT_APART: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_HEAD: Final = f'{{"apiVersion":"{paths.HPAS.group}/{paths.HPAS.version}","kind":"{paths.HPAS.kind}"'.encode()
_NOTHING: Final = b"{}"  # shared by almost all HPAs, as is the next
_NO_WRITERS: Final[Mapping[str, str]] = MappingProxyType({})
encode: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode
"""Returns the JSON of a status as bytes."""


def decode(raw: bytes | msgspec.Raw) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes an autoscaling/v2 HPA with its `original`; raises codec.UNDECODABLE."""
    decoded, (kept, entries) = codec.hpa(raw), _kept(raw)
    return msgspec.structs.replace(decoded, original=kept, written=managed_fields.status_written(entries))


def status_written(raw: bytes | msgspec.Raw) -> str:
    """Returns the time at which a client last wrote the status of an HPA, "" if that is not known. Never raises."""
    try:
        managed = _MANAGED.decode(raw).metadata.managed_fields
    except codec.UNDECODABLE:
        return ""
    return managed_fields.status_written(managed_fields.entries(managed))


def original(raw: bytes | msgspec.Raw) -> Original:
    """Returns the data for a write of the status of an autoscaling/v2 HPA; raises codec.UNDECODABLE."""
    return _kept(raw)[0]


def _kept(raw: bytes | msgspec.Raw) -> tuple[Original, Sequence[managed_fields.Entry]]:
    """Returns the data for a write of the status, and the managers of the HPA."""
    whole = _parts(raw)
    metadata, status = _parts(whole["metadata"]), _parts(whole.get("status", b"null"))
    entries = managed_fields.entries(metadata.pop("managedFields", b""))
    metadata.pop("resourceVersion", None)
    kept = Original(
        encode(metadata),
        bytes(whole.get("spec", _NOTHING)),
        _unknown(status),
        _joined({name: value for name, value in whole.items() if name not in _KEPT_APART}),
        managed_fields.writers_of_status(entries) or _NO_WRITERS,
    )
    return kept, entries


def body(original: Original, version: str, status: bytes) -> bytes:
    """Returns the object to PUT: the original of that resourceVersion with that status, which is encoded already."""
    metadata = _merged(original.metadata, b'{"resourceVersion":%b}' % encode(version))
    written = _merged(original.status, status)
    own = b'%b,"metadata":%b,"spec":%b,"status":%b}' % (_HEAD, metadata, original.spec, written)
    return _merged(own, original.rest)


def written(
    answer: bytes,
    stored: HorizontalPodAutoscaler,
    original: Original,
    status: HorizontalPodAutoscalerStatus,
    sent: bytes,
) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes the answer to a write of that status of `stored`; raises codec.UNDECODABLE.

    Where nothing but resourceVersion, status and managedFields differ from the original, as always unless a webhook
    changes the object, nothing else is decoded. A status that was taken as it is keeps its objects: most of its texts
    are those of other HPAs, too. The server mostly answers with the very bytes that were `sent`.
    """
    found = changed_status(answer, original)
    if found is None:
        return decode(answer)
    if found.status != sent:
        taken = _STATUS.decode(found.status)
        status = status if taken == status else taken
    return _renewed(stored, original, found.version, status)


class ChangedStatus(msgspec.Struct, frozen=True, gc=False):
    """The status of another version of an HPA, as bytes."""

    version: str
    status: bytes


def changed_status(raw: bytes | msgspec.Raw, original: Original) -> ChangedStatus | None:
    """Returns the status of an HPA if nothing but resourceVersion, status and managedFields differ from the original.

    Returns None for any other change; raises codec.UNDECODABLE.
    """
    found = _ANSWER.decode(raw)
    metadata = _parts(found.metadata)
    metadata.pop("managedFields", None)
    version: str = _TEXT.decode(metadata.pop("resourceVersion", b'""'))
    if bytes(found.spec) != original.spec or encode(metadata) != original.metadata:
        return None
    return ChangedStatus(version, bytes(found.status))


def with_status(
    stored: HorizontalPodAutoscaler, original: Original, changed: ChangedStatus
) -> DecodedObject[HorizontalPodAutoscaler]:
    """Returns the stored HPA with the changed status; raises codec.UNDECODABLE."""
    status = codec.with_shared_texts(_STATUS.decode(changed.status))
    original = msgspec.structs.replace(original, status=_unknown(_parts(changed.status)))
    return _renewed(stored, original, changed.version, status)


def _renewed(
    stored: HorizontalPodAutoscaler, original: Original, version: str, status: HorizontalPodAutoscalerStatus
) -> DecodedObject[HorizontalPodAutoscaler]:
    renewed = msgspec.structs.replace(stored.metadata, resource_version=version)
    value = msgspec.structs.replace(stored, metadata=renewed, status=status)
    return DecodedObject(value.metadata.key, version, value, original)


class _Answer(msgspec.Struct, frozen=True, gc=False):
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(_NOTHING)
    status: msgspec.Raw = msgspec.Raw(_NOTHING)


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    managed_fields: msgspec.Raw = msgspec.Raw(b"")


class _Managed(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()


_MANAGED: Final = msgspec.json.Decoder(_Managed)
_ANSWER: Final = msgspec.json.Decoder(_Answer)
_STATUS: Final = msgspec.json.Decoder(HorizontalPodAutoscalerStatus, dec_hook=dec_hook)
_TEXT: Final = msgspec.json.Decoder(str)
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)  # json.decode makes one anew for each call


def _parts(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Returns the fields of a JSON object, undecoded; none for null."""
    return _PARTS.decode(raw) or {}


def _unknown(status: Mapping[str, msgspec.Raw]) -> bytes:
    """Returns the fields of a status that hpad does not write."""
    return _joined({name: value for name, value in status.items() if name not in _FIELDS})


def _joined(parts: Mapping[str, msgspec.Raw]) -> bytes:
    return encode(parts) if parts else _NOTHING


def _merged(one: bytes, other: bytes) -> bytes:
    """Returns a JSON object with the fields of both."""
    if one == _NOTHING or other == _NOTHING:
        return other if one == _NOTHING else one
    return b"%b,%b" % (one[:-1], other[1:])

"""The bytes of an HPA as received, which a write of its status needs, and the answers to such writes.

Fields that hpad does not know must survive a write. Therefore the bytes of each HPA are kept, about 1 kB each, without
managedFields (the server ignores them in a write of a subresource) and without the status fields that hpad writes.
"""

from collections.abc import Mapping
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
    return msgspec.structs.replace(codec.hpa(raw), original=original(raw))


def original(raw: bytes | msgspec.Raw) -> Original:
    """Returns the data for a write of the status of an autoscaling/v2 HPA; raises codec.UNDECODABLE."""
    whole = _parts(raw)
    metadata, status = _parts(whole["metadata"]), _parts(whole.get("status", b"null"))
    entries = managed_fields.entries(metadata.pop("managedFields", b""))
    metadata.pop("resourceVersion", None)
    return Original(
        encode(metadata),
        bytes(whole.get("spec", _NOTHING)),
        _unknown(status),
        _joined({name: value for name, value in whole.items() if name not in _KEPT_APART}),
        managed_fields.writers_of_status(entries) or _NO_WRITERS,
    )


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
    found = _ANSWER.decode(answer)
    metadata = _parts(found.metadata)
    metadata.pop("managedFields", None)
    version: str = _TEXT.decode(metadata.pop("resourceVersion", b'""'))
    if bytes(found.spec) != original.spec or encode(metadata) != original.metadata:
        return decode(answer)
    if bytes(found.status) != sent:
        taken = _STATUS.decode(found.status)
        status = status if taken == status else taken
    renewed = msgspec.structs.replace(stored.metadata, resource_version=version)
    value = msgspec.structs.replace(stored, metadata=renewed, status=status)
    return DecodedObject(value.metadata.key, version, value, original)


class _Answer(msgspec.Struct, frozen=True, gc=False):
    metadata: msgspec.Raw
    spec: msgspec.Raw = msgspec.Raw(_NOTHING)
    status: msgspec.Raw = msgspec.Raw(_NOTHING)


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

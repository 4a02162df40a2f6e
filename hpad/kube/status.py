"""Writes the status of an HPA, and nothing but the status.

The write is a PUT of the whole object as received, like that of the built-in controller, so that the rights of its role
suffice. Fields that hpad does not know must survive: therefore the bytes of each HPA are kept, about 1 kB each, without
managedFields (the server ignores them in a write of a subresource) and without the status fields that hpad writes. A
JSON merge patch needs no such copy but costs the API server more CPU: 2.8 ms by PATCH, 2.4 ms by PUT, for an HPA of
1.9 kB on kube-apiserver 1.36 with etcd (tools/bench/kube.py). A status is written only if it has changed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, dec_hook, enc_hook
from hpad.kube import codec, errors, managed_fields, paths
from hpad.kube.cache import HpaCache
from hpad.kube.client import Allowed, Client
from hpad.kube.codec import DecodedObject

_FIELDS: Final = frozenset(field.encode_name for field in msgspec.structs.fields(HorizontalPodAutoscalerStatus))
_KEPT_APART: Final = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_HEAD: Final = f'{{"apiVersion":"{paths.HPAS.group}/{paths.HPAS.version}","kind":"{paths.HPAS.kind}"'.encode()
_NOTHING: Final = b"{}"  # shared by almost all HPAs, as is the next
_NO_WRITERS: Final[Mapping[str, str]] = MappingProxyType({})
encode: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode
"""Returns the JSON of a status as bytes."""
_MODIFIED = (
    'Operation cannot be fulfilled on {} "{}": the object has been modified;'
    " please apply your changes to the latest version and try again"
)


def decode(raw: bytes | msgspec.Raw) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes an autoscaling/v2 HPA with its `original`; raises codec.UNDECODABLE."""
    return msgspec.structs.replace(codec.hpa(raw), original=original(raw))


def original(raw: bytes | msgspec.Raw) -> codec.Original:
    """Returns the data for a write of the status of an autoscaling/v2 HPA; raises codec.UNDECODABLE."""
    whole = _parts(raw)
    metadata, status = _parts(whole["metadata"]), _parts(whole.get("status", b"null"))
    writers = managed_fields.writers_of_status(metadata.pop("managedFields", b""))
    metadata.pop("resourceVersion", None)
    return codec.Original(
        encode(metadata),
        bytes(whole.get("spec", _NOTHING)),
        _joined({name: value for name, value in status.items() if name not in _FIELDS}),
        _joined({name: value for name, value in whole.items() if name not in _KEPT_APART}),
        writers or _NO_WRITERS,
    )


def body(original: codec.Original, version: str, status: bytes) -> bytes:
    """Returns the object to PUT: the original of that resourceVersion with that status, which is encoded already."""
    metadata = _merged(original.metadata, b'{"resourceVersion":%b}' % encode(version))
    written = _merged(original.status, status)
    own = b'%b,"metadata":%b,"spec":%b,"status":%b}' % (_HEAD, metadata, original.spec, written)
    return _merged(own, original.rest)


def written(
    answer: bytes,
    stored: HorizontalPodAutoscaler,
    original: codec.Original,
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


async def write(
    client: Client,
    cache: HpaCache,
    hpa: HorizontalPodAutoscaler,
    status: HorizontalPodAutoscalerStatus,
    allowed: Allowed | None = None,
) -> DecodedObject[HorizontalPodAutoscaler]:
    """Writes the status in one attempt; returns the object as written. Raises ApiError, also for a conflict.

    No request is sent if `cache` shows that `hpa` was deleted or changed: the server would refuse it. `allowed` is
    called before that as well, because an edited HPA is no conflict to its caller.
    """
    key = hpa.metadata.key
    stored, kept = cache.get(key), cache.original(key)
    if stored is None or kept is None or stored.metadata.resource_version != hpa.metadata.resource_version:
        if allowed is not None:
            allowed()
        if stored is None or kept is None:
            raise errors.ApiError(404, "NotFound", f'{paths.HPAS} "{key.name}" not found')
        raise errors.ApiError(409, "Conflict", _MODIFIED.format(paths.HPAS, key.name))
    sent = encode(status)
    content = body(kept, hpa.metadata.resource_version, sent)
    answer = await client.request("PUT", paths.HPAS.object(key, "status"), body=content, allowed=allowed)
    try:
        return written(answer, stored, kept, status, sent)
    except codec.UNDECODABLE as error:
        raise errors.ApiError(0, "BadAnswer", f"the answer is no HorizontalPodAutoscaler: {error}") from error


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


def _joined(parts: Mapping[str, msgspec.Raw]) -> bytes:
    return encode(parts) if parts else _NOTHING


def _merged(one: bytes, other: bytes) -> bytes:
    """Returns a JSON object with the fields of both."""
    if one == _NOTHING or other == _NOTHING:
        return other if one == _NOTHING else one
    return b"%b,%b" % (one[:-1], other[1:])

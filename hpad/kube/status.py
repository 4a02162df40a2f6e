"""Writes the status of an HPA, and nothing but the status.

The write is a PUT of the whole object as received, like that of the built-in controller, so that the rights of its role
suffice. Fields that hpad does not know must survive: therefore the bytes of each HPA are kept, about 1 kB each, without
managedFields (the server ignores them in a write of a subresource) and without the status fields that hpad writes. A
JSON merge patch needs no such copy but costs the API server more CPU: 2.8 ms by PATCH, 2.4 ms by PUT, for an HPA of
1.9 kB on kube-apiserver 1.36 with etcd (tools/bench/kube.py). A status is written only if it has changed.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, to_builtins
from hpad.kube import codec, errors, managed_fields, paths
from hpad.kube.cache import HpaCache
from hpad.kube.client import Allowed, Client
from hpad.kube.codec import DecodedObject

_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(HorizontalPodAutoscalerStatus))
_HEAD = {"apiVersion": f"{paths.HPAS.group}/{paths.HPAS.version}", "kind": paths.HPAS.kind}
_NO_WRITERS: Final[Mapping[str, str]] = MappingProxyType({})  # shared by almost all HPAs
_MODIFIED = (
    'Operation cannot be fulfilled on {} "{}": the object has been modified;'
    " please apply your changes to the latest version and try again"
)


def decode(raw: bytes | msgspec.Raw) -> DecodedObject[HorizontalPodAutoscaler]:
    """Decodes an autoscaling/v2 HPA with its `original`; raises codec.UNDECODABLE."""
    return codec.hpa(raw)._replace(original=original(raw))


def original(raw: bytes | msgspec.Raw) -> codec.Original:
    """Returns the data for a write of the status of an autoscaling/v2 HPA; raises codec.UNDECODABLE."""
    whole = _parts(raw)
    metadata, status = _parts(whole["metadata"]), _parts(whole.get("status", b"null"))
    writers = managed_fields.writers_of_status(metadata.pop("managedFields", b""))
    unknown = {name: value for name, value in status.items() if name not in _FIELDS}
    body = msgspec.json.encode({**_HEAD, **whole, "metadata": metadata, "status": unknown})
    return codec.Original(body, writers or _NO_WRITERS)


def combined(body: bytes, status: HorizontalPodAutoscalerStatus) -> bytes:
    """Returns the object to PUT: an `Original.body` with that status; status fields of newer servers are kept."""
    whole = _parts(body)
    written: Mapping[str, Any] = to_builtins(status)
    return msgspec.json.encode({**whole, "status": {**_parts(whole["status"]), **written}})


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
    if allowed is not None:
        allowed()
    key = hpa.metadata.key
    stored, kept = cache.get(key), cache.original(key)
    if stored is None or kept is None:
        raise errors.ApiError(404, "NotFound", f'{paths.HPAS} "{key.name}" not found')
    if stored.metadata.resource_version != hpa.metadata.resource_version:
        raise errors.ApiError(409, "Conflict", _MODIFIED.format(paths.HPAS, key.name))
    body = combined(kept.body, status)
    answer = await client.request("PUT", paths.HPAS.object(key, "status"), body=body, allowed=allowed)
    try:
        return decode(answer)
    except codec.UNDECODABLE as error:
        raise errors.ApiError(0, "BadAnswer", f"the answer is no HorizontalPodAutoscaler: {error}") from error


def _parts(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Returns the fields of a JSON object, undecoded; none for null."""
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw] | None) or {}

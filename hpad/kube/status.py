"""Writing the status of an HPA, and nothing but the status.

By a PUT of the whole object as it came, like the original, so that whoever may act as the built-in controller may act
as hpad. What was decoded narrowly must never be written: so the bytes of each HPA are kept, without the managed fields
(which the server does not take from a write of a subresource) and without the status fields that are hpad's to write:
about 1 kB each. A JSON merge patch would spare that memory, but costs the API server more: CPU of one write of an HPA
of 1.9 kB at kube-apiserver 1.36 with its etcd 2.4 ms by PUT and 2.8 ms by PATCH; `tools/bench/kube.py` has the figures
for both sides together. Statuses are written only when they have changed.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, to_builtins
from hpad.api.metadata import Key
from hpad.kube import codec, errors, managed_fields, paths
from hpad.kube.client import Client

_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(HorizontalPodAutoscalerStatus))
_HEAD = {"apiVersion": f"{paths.HPAS.group}/{paths.HPAS.version}", "kind": paths.HPAS.kind}
_NO_WRITERS: Final[Mapping[str, str]] = MappingProxyType({})
_MODIFIED = (
    'Operation cannot be fulfilled on {} "{}": the object has been modified;'
    " please apply your changes to the latest version and try again"
)


class _Original(NamedTuple):
    """An HPA's bytes, which of its versions they are of, and which other clients write its status (see `managed`)."""

    key: Key
    version: str
    body: bytes
    writers: Mapping[str, str]


class Statuses:
    """Writes statuses. Whoever feeds a cache of HPAs decodes by `decode`, and tells of each change by `changed`.

    What has been decoded (last: a cache takes in or refuses one object before it reads the next) counts only once the
    cache has taken it in: the bytes that a status goes on top of must be those of the newest version that is known.
    `foreign` is called with each HPA that another client has written the status of, and with the name of that client.
    """

    def __init__(self, client: Client, foreign: Callable[[Key, str], None] | None = None) -> None:
        self._client = client
        self._foreign = foreign
        self._decoded: _Original | None = None
        self._originals: dict[Key, _Original] = {}

    def decode(self, raw: bytes | msgspec.Raw) -> codec.DecodedObject[HorizontalPodAutoscaler]:
        """As `codec.hpa`."""
        record = codec.hpa(raw)
        body, writers = _split(raw)
        self._decoded = _Original(record.key, record.version, body, writers)
        return record

    def changed(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        """The cache holds `new` from now on (None: nothing)."""
        before = self._originals.pop(key, None)
        decoded, self._decoded = self._decoded, None
        if new is None or decoded is None or decoded[:2] != (key, new.metadata.resource_version):
            return
        self._originals[key] = decoded
        if before is not None and old is not None and old.metadata.uid == new.metadata.uid:
            self._compare(key, before.writers, decoded.writers)

    async def write(
        self, hpa: HorizontalPodAutoscaler, status: HorizontalPodAutoscalerStatus
    ) -> HorizontalPodAutoscaler:
        """Write the status once; the object as it is afterwards. Raises ApiError; a conflict is the caller's.

        Where it is known that `hpa` is gone or has changed, the refusal is certain, and no request is made.
        """
        key, held = hpa.metadata.key, self._originals.get(hpa.metadata.key)
        if held is None:
            raise errors.ApiError(404, "NotFound", f'{paths.HPAS} "{key.name}" not found')
        if held.version != hpa.metadata.resource_version:
            raise errors.ApiError(409, "Conflict", _MODIFIED.format(paths.HPAS, key.name))
        answer = await self._client.request("PUT", paths.HPAS.object(key, "status"), body=combined(held.body, status))
        try:
            return self.decode(answer).value
        except codec.UndecodableError as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no HorizontalPodAutoscaler: {error}") from error

    def _compare(self, key: Key, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Report the clients that have written the status since the version before."""
        for manager, time in after.items():
            if self._foreign is not None and time > before.get(manager, ""):
                self._foreign(key, manager)


def original(raw: bytes | msgspec.Raw) -> bytes:
    """What must be kept of an autoscaling/v2 HPA to write a status of it; raises codec.UndecodableError."""
    return _split(raw)[0]


def _split(raw: bytes | msgspec.Raw) -> tuple[bytes, Mapping[str, str]]:
    """What must be kept of an HPA, and which other clients write its status; raises codec.UndecodableError."""
    try:
        whole = _parts(raw)
        metadata, status = _parts(whole["metadata"]), _parts(whole.get("status", b"null"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise codec.UndecodableError(str(error)) from error
    writers = managed_fields.writers_of_status(metadata.pop("managedFields", b""))
    strange = {name: value for name, value in status.items() if name not in _FIELDS}
    return msgspec.json.encode({**_HEAD, **whole, "metadata": metadata, "status": strange}), writers or _NO_WRITERS


def combined(kept: bytes, status: HorizontalPodAutoscalerStatus) -> bytes:
    """The object with that status, to be PUT; fields of the status that only a newer server knows stay."""
    whole = _parts(kept)
    written: Mapping[str, Any] = to_builtins(status)
    return msgspec.json.encode({**whole, "status": {**_parts(whole["status"]), **written}})


def _parts(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of an object, undecoded; none of null."""
    return msgspec.json.decode(raw, type=dict[str, msgspec.Raw] | None) or {}

"""The watch cache of HPAs, which also keeps the bytes that a write of a status needs."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, enc_hook
from hpad.api.metadata import Key
from hpad.kube import codec
from hpad.kube.cache import Cache
from hpad.kube.codec import DecodedObject
from hpad.kube.reflector import Kind
from hpad.kube.watch import WatchScope

_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


class HpaCache(Cache[HorizontalPodAutoscaler]):
    """All HPAs, each with the bytes that a write of its status needs (`original`).

    A version that differs only in its status keeps the stored spec object. Most versions are status writes, and a spec
    with its compiled form is half of an HPA's memory: replacing it each time would fragment the heap.
    `status_written` is called with the key of an HPA and the name of another client that has written its status.
    """

    def __init__(
        self,
        scope: WatchScope,
        kind: Kind[HorizontalPodAutoscaler],
        *,
        params: Mapping[str, str] | None = None,
        bug: Callable[[], None] | None = None,
        status_written: Callable[[Key, str], None] | None = None,
    ) -> None:
        super().__init__(scope, kind, params=params, bug=bug)
        self._status_written = status_written
        self._originals: dict[Key, codec.Original] = {}

    def put(self, decoded: DecodedObject[HorizontalPodAutoscaler], *, listed: bool = False) -> None:
        stored, before = self.get(decoded.key), self._originals.get(decoded.key)
        if stored is not None and stored.spec is not decoded.value.spec and _same_spec(stored, before, decoded):
            decoded = msgspec.structs.replace(decoded, value=msgspec.structs.replace(decoded.value, spec=stored.spec))
        super().put(decoded, listed=listed)

    def original(self, key: Key) -> codec.Original | None:
        """Returns the data for a write of the stored HPA's status; None if the HPA is not stored."""
        return self._originals.get(key)

    def _index(
        self, key: Key, old: HorizontalPodAutoscaler | None, new: DecodedObject[HorizontalPodAutoscaler] | None
    ) -> None:
        before = self._originals.get(key)
        if new is None or new.original is None:
            self._originals.pop(key, None)
            return
        self._originals[key] = new.original
        if before is None or old is None or old.metadata.uid != new.value.metadata.uid or self._status_written is None:
            return
        # An entry with a later time is a new write; entries of earlier writes stay in managedFields.
        for manager, time in new.original.status_writers.items():
            if time > before.status_writers.get(manager, ""):
                self._status_written(key, manager)


def _same_spec(
    stored: HorizontalPodAutoscaler, before: codec.Original | None, new: DecodedObject[HorizontalPodAutoscaler]
) -> bool:
    """Returns whether both specs are equal in text: "1Ki" and "1024" are equal quantities, but shown as written."""
    if before is not None and new.original is not None and before.spec == new.original.spec:
        return True
    return stored.spec == new.value.spec and _ENCODER.encode(stored.spec) == _ENCODER.encode(new.value.spec)

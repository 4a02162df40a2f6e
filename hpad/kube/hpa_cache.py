"""The watch cache of HPAs, which also keeps the bytes that a write of a status needs."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, enc_hook
from hpad.api.metadata import Key
from hpad.kube import codec, hpa_bytes, watch
from hpad.kube.cache import Cache
from hpad.kube.codec import DecodedObject
from hpad.kube.reflector import Kind, later
from hpad.kube.watch import WatchScope

_SHOWN_SECONDS: Final = 3.0
"""The longest wait for a list before old HPAs are shown."""
_INEXACT: Final = 2.0
"""Seconds by which the times of two writes may differ more than the writes: they are cut off to whole seconds, and API
servers have clocks of their own."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=enc_hook)


class HpaCache(Cache[HorizontalPodAutoscaler]):
    """All HPAs, each with the bytes that a write of its status needs (`original`).

    A version that differs only in its status keeps the stored spec object. Most versions are status writes, and a spec
    with its compiled form is half of an HPA's memory: replacing it each time would fragment the heap.
    `status_written` is called with the key of an HPA and the name of another client that has written its status.

    Where other replicas own some of the HPAs (`share`), their changes stay undecoded until `get` or `values` is called,
    or are left out of the watch (`keep`).
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
        self._foreign: Callable[[Key], bool] | None = None
        self._noticed: Callable[[Key, float], None] = lambda key, seconds: None
        self._caught_up: Callable[[], None] = lambda: None
        self._watches_all = not scope.namespaces
        self._writes = _Writes()
        self._reading = False
        """Whether a change is being decoded that has come before."""
        self._unread: dict[Key, tuple[str, bytes]] = {}
        """The resourceVersion, and the line of the watch, of the last change that is not decoded yet."""

    def share(
        self,
        foreign: Callable[[Key], bool],
        noticed: Callable[[Key, float], None],
        caught_up: Callable[[], None] = lambda: None,
    ) -> None:
        """Keeps changes of HPAs that are `foreign` as bytes until `get` or `values` asks for the HPA.

        `noticed` is called at each such change, with the key and 0.0, whether the status or something else has changed;
        and for HPAs that the watch has left out, once they are listed, with the seconds since the last write of their
        status, or fewer. `caught_up` is called when no change of some namespaces is missing any more.

        The subscribers are called when the HPA is asked for, and only if more than its status has changed.
        """
        self._foreign, self._noticed, self._caught_up = foreign, noticed, caught_up

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run())
            if self._watches_all:
                group.create_task(self.exclusion.run(), name=f"{self.kind.resource} that are left out")

    def keep(self, namespaces: Collection[str]) -> None:
        """Leaves all namespaces but these out of the watch, where that pays (`Exclusion`)."""
        if self._watches_all:
            self.exclusion.want(namespaces)

    async def caught_up(self, keys: Collection[Key]) -> None:
        """Waits until no change of these HPAs is missing, except in namespaces that are not kept any more."""
        await self.exclusion.caught_up({key.namespace for key in keys})

    async def shown(self, keys: Collection[Key] = ()) -> None:
        """Lists HPAs that the watch leaves out again before they are shown. Waits a few seconds at most.

        `keys` are the HPAs to be shown (empty: all).
        """
        await self.exclusion.shown({key.namespace for key in keys}, _SHOWN_SECONDS)

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        if key in self._unread:
            self._read(key)
        return self._values.get(key)

    def values(self) -> Collection[HorizontalPodAutoscaler]:
        for key in tuple(self._unread):
            self._read(key)
        return self._values.values()

    def has(self, key: Key, version: str) -> bool:
        unread = self._unread.get(key)
        return super().has(key, version) if unread is None else unread[0] == version

    def leaves_unread(self, key: Key, version: str, line: bytes) -> bool:
        stored = self._values.get(key)
        if self._foreign is None or stored is None or key not in self._originals or not self._foreign(key):
            return False
        before = self._unread.get(key)
        if not later(version, stored.metadata.resource_version if before is None else before[0]):
            return False
        self._touch(key, listed=False)
        self._writes.forget(key)
        self._unread[key] = version, line
        self._noticed(key, 0.0)
        return True

    def purge(self, key: Key) -> None:
        self._unread.pop(key, None)
        super().purge(key)

    def drop(self, key: Key, version: str, *, listed: bool = False) -> None:
        self.get(key)  # its version decides whether it is dropped
        super().drop(key, version, listed=listed)

    def put(self, decoded: DecodedObject[HorizontalPodAutoscaler], *, listed: bool = False) -> None:
        stored, before = self.get(decoded.key), self._originals.get(decoded.key)
        if stored is not None and stored.spec is not decoded.value.spec and _same_spec(stored, before, decoded):
            decoded = msgspec.structs.replace(decoded, value=msgspec.structs.replace(decoded.value, spec=stored.spec))
        missed = decoded.key.namespace in self.exclusion.missed
        if listed or (missed and stored is None):
            self._writes.note(decoded, missed=missed)
        else:
            self._writes.forget(decoded.key)  # the subscribers notice a change of a known HPA
        super().put(decoded, listed=listed)

    def passed_over(self, raw: msgspec.Raw) -> None:
        self._writes.note_time(hpa_bytes.status_written(raw))

    def list_begins(self, namespace: str) -> None:
        self._writes = _Writes()
        super().list_begins(namespace)

    def list_ends(self, namespace: str) -> None:
        missed = tuple(self.exclusion.missed)
        super().list_ends(namespace)
        self.list_ends_beside(missed)

    def list_begins_beside(self) -> None:
        self._writes = _Writes()

    def list_ends_beside(self, complete: Collection[str]) -> None:
        writes, self._writes = self._writes, _Writes()
        try:
            for key, seconds in writes.ages(self._scope.client.clock.now()):
                if key in self._values:
                    self._noticed(key, seconds)
            if complete:
                self._caught_up()
        except Exception as error:  # noqa: BLE001  # a bug of the callback
            self._report_bug(Key("", str(self.kind.resource)), error)

    def original(self, key: Key) -> codec.Original | None:
        """Returns the data for a write of the stored HPA's status; None if the HPA is not stored."""
        return self._originals.get(key)

    def _read(self, key: Key) -> None:
        """Decodes the last change of an HPA. An HPA that is unreadable now is dropped, as in `Reflector`."""
        self._reading = True
        try:
            self._decode_unread(key)
        finally:
            self._reading = False

    def _touch(self, key: Key, listed: bool) -> None:
        # A change counts when its line arrives; it may be older than a list that is being read while it is decoded.
        super()._touch(key, listed or self._reading)

    def _decode_unread(self, key: Key) -> None:
        version, line = self._unread.pop(key)
        raw, original = watch.decode(line).object, self._originals[key]
        try:
            changed = hpa_bytes.changed_status(raw, original)
            if changed is None:
                self.put(self.kind.decode(raw))
            else:
                read = hpa_bytes.with_status(self._values[key], original, changed)
                self._values[key] = read.value
                self._index(key, None, read)
        except codec.UNDECODABLE as error:
            self._log.error("object cannot be read", name=key.name, object_namespace=key.namespace, error=str(error))
            super().drop(key, version)

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


class _Writes:
    """The last writes of statuses in a list.

    How long ago each one was follows from the newest one; the clock of this machine counts where it is behind that. So
    a time in the future, which a client may set in managedFields, does not make the others seem long ago.
    """

    def __init__(self) -> None:
        self._newest = ""
        self._missed: dict[Key, str] = {}

    def note(self, listed: DecodedObject[HorizontalPodAutoscaler], *, missed: bool) -> None:
        self.note_time(listed.written)
        if missed and listed.value.status.conditions:
            self._missed[listed.key] = listed.written

    def forget(self, key: Key) -> None:
        """Called when a later write is noticed."""
        self._missed.pop(key, None)

    def note_time(self, written: str) -> None:
        self._newest = max(self._newest, written)

    def ages(self, now: datetime) -> Iterator[tuple[Key, float]]:
        """Yields the HPAs whose changes were missed, with the seconds since the last one; 0 where that is not known."""
        newest = _time(self._newest)
        for key, text in self._missed.items():
            written = _time(text)
            if newest is None or written is None:
                yield key, 0.0
            else:
                yield key, max(0.0, (min(newest, now) - written).total_seconds() - _INEXACT)


def _time(text: str) -> datetime | None:
    """Reads a time as the API server writes it; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def _same_spec(
    stored: HorizontalPodAutoscaler, before: codec.Original | None, new: DecodedObject[HorizontalPodAutoscaler]
) -> bool:
    """Returns whether both specs are equal in text: "1Ki" and "1024" are equal quantities, but shown as written."""
    if before is not None and new.original is not None and before.spec == new.original.spec:
        return True
    return stored.spec == new.value.spec and _ENCODER.encode(stored.spec) == _ENCODER.encode(new.value.spec)

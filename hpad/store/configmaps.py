"""Records in ConfigMaps: the storage backend in the cluster, for the replica that acts next.

Objects NAME-0, NAME-1, ... hold up to HPAS records each, packed into one value, so that a save is one write for many
HPAs. They are found by counting, past one missing object, and are never deleted, only emptied.

- A write builds on the resourceVersion seen last. After a conflict the object is read again, and only records of HPAs
  that this process owns at that moment are put on top. This prevents two replicas from overwriting each other.
- Members of a shard group divide the objects as they divide the HPAs, and each saves in its own, which avoids
  conflicts. When HPAs or objects are reassigned, records move with the next save. The copy left behind is older; the
  object's new owner drops it after a while.
- A value that cannot be read stays in the object under another name, for people to look at, cut if it is large.
- An object with a value of a later version is left alone, so that a rollback loses nothing; records go elsewhere.
"""

import asyncio
import base64
import binascii
import contextlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.kube import errors, paths
from hpad.kube.client import Client

CONFIG_MAPS: Final = paths.Resource("", "v1", "configmaps", "ConfigMap")
HPAS: Final = 64
MOST_BYTES: Final = 700_000
"""Of one value: base64 makes 930 kB of it, of the 1 MiB that a ConfigMap may have."""
_FULL: Final = 300_000
_KEPT: Final = 400_000
"""Characters of a damaged value, which stand for 300 kB: beside the largest value there is room for that."""
FORMAT: Final = 1
_VALUE, _DAMAGED = "histories", "damaged"
_LABELS: Final = {"app.kubernetes.io/managed-by": "hpad"}
_ATTEMPTS: Final = 3
_SEARCH: Final = 64
_STALE_SECONDS: Final = 300.0
"""In that time all who save anything have saved everything many times."""
_AT_ONCE: Final = 4

Object = dict[str, Any]
Changes = Mapping[Key, bytes | None]


def objects(name: str, hpas: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The ConfigMaps that so many HPAs are written to, and those that are read for them: two more, which are not there
    and so end the search (`ConfigMaps.load`)."""
    filled = max(1, -(-hpas // HPAS))
    names = tuple(f"{name}-{place}" for place in range(filled + 2))
    return names[:filled], names


class _ConfigMap(msgspec.Struct):
    """What must be there and make sense; the rest is kept as it is."""

    metadata: dict[str, Any]
    binary_data: dict[str, str] | None = msgspec.field(default=None, name="binaryData")


class _Versioned(msgspec.Struct, array_like=True):
    """What a value of every version begins with."""

    format: int


class _Packed(msgspec.Struct, array_like=True):
    format: int
    records: list[tuple[str, str, bytes]]


class _Later(ValueError):
    """The value is one of a later version."""


class _Box:
    """One ConfigMap as last seen or written: `found` is None where there is none yet. `later`: see `_Later`."""

    def __init__(self, found: Object | None = None) -> None:
        self.found = found
        self.records: dict[Key, bytes] = {}
        self.size = 0
        self.expected: set[Key] = set()
        self.later = False

    @property
    def has_room(self) -> bool:
        if self.later or self.size >= _FULL or len(self.records) >= HPAS:
            return False
        return len(self.expected) + len(self.records) < HPAS or len(self.expected | self.records.keys()) < HPAS


class ConfigMaps:
    """A storage backend for `store.persistent`, whose `Backend` says what the methods promise.

    `owns` says which HPAs this process owns at this moment.
    """

    def __init__(
        self, client: Client, namespace: str, name: str, owns: Callable[[Key], bool] = lambda key: True
    ) -> None:
        self.name = f"ConfigMaps {namespace}/{name}-*"
        self._client = client
        self._namespace = namespace
        self._prefix = name
        self._owns = owns
        self._boxes: list[_Box] = []
        self._places: dict[Key, int] = {}
        self._since: dict[int, float] = {}
        """Since when (monotonic) objects are ours, of those that we have written."""
        self._emptied = False
        self._roomy = 0
        """No object before this one is ours and has room."""
        self._log = structlog.get_logger("hpad.store", store=self.name)

    def group(self, key: Key) -> Hashable:
        """The number of the object the key is in, or will be."""
        place = self._places.get(key)
        if place is not None and self._is_ours(place):
            return place
        if place is not None:
            self._boxes[place].expected.discard(key)
        while self._roomy < len(self._boxes) and not (self._boxes[self._roomy].has_room and self._is_ours(self._roomy)):
            self._roomy += 1
        if self._roomy == len(self._boxes):
            self._roomy = self._appended()
        place = self._places[key] = self._roomy
        self._boxes[place].expected.add(key)
        return place

    def _appended(self) -> int:
        """The number of a new object of ours; those before it are for others."""
        for _ in range(_SEARCH):  # nothing is ours at all where we lead no more
            self._boxes.append(_Box())
            if self._is_ours(len(self._boxes) - 1):
                break
        return len(self._boxes) - 1

    def _is_ours(self, place: int) -> bool:
        """An object is a replica's as an HPA is, so that where several share the HPAs each has objects of its own."""
        return self._owns(self._key(place))

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        boxes: list[_Box] = []
        try:
            while len(boxes) < 2 or boxes[-1].found is not None or boxes[-2].found is not None:
                boxes.append(await self._read(len(boxes)))
        except errors.ApiError as error:
            return [], f"{self.name}: {error.message}"
        while boxes and boxes[-1].found is None:
            boxes.pop()
        self._boxes = boxes
        self._roomy = 0
        self._places = {}
        for index, box in enumerate(boxes):
            if self._is_ours(index):
                self._places.update(dict.fromkeys(box.records, index))
            else:
                self._places = {**dict.fromkeys(box.records, index), **self._places}
        return [row for box in boxes for row in box.records.items()], None

    async def save(self, changes: Changes) -> Mapping[Key, str]:
        places: dict[int, dict[Key, bytes | None]] = defaultdict(dict)
        for key, record in changes.items():
            self.group(key)
            places[self._places[key]][key] = record
        await self._fill(max(places, default=0))
        free = asyncio.Semaphore(_AT_ONCE)

        async def write(place: int, part: Changes) -> Mapping[Key, str]:
            async with free:
                return await self._write(place, part)

        failed = await asyncio.gather(*(write(place, part) for place, part in places.items()))
        return {key: why for part in failed for key, why in part.items()}

    async def _fill(self, end: int) -> None:
        """Have an object for each number below this one, so that all are found by counting; best effort."""
        for place in [place for place in range(end) if self._boxes[place].found is None and not self._is_ours(place)]:
            with contextlib.suppress(errors.ApiError):
                found = await self._read(place)
                self._keep(
                    place, found if found.found is not None else await self._put(place, found, _packed({})[0], {})
                )

    async def quarantine(self, keys: Collection[Key]) -> None:
        for key in keys:
            found = self._boxes[self._places[key]].found if key in self._places else None
            if found is not None:
                found["binaryData"][_DAMAGED] = found["binaryData"][_VALUE][:_KEPT]
        await self.save(dict.fromkeys(keys))

    def emptied(self) -> bool:
        was, self._emptied = self._emptied, False
        return was

    async def size(self) -> int:
        return sum(box.size for box in self._boxes)

    async def close(self) -> None:
        """The client is its owner's to close."""

    async def _write(self, place: int, changes: Changes) -> Mapping[Key, str]:
        """Writes one object, once; again only where another client wrote first."""
        for attempt in range(1, _ATTEMPTS + 1):
            box = self._boxes[place]
            if box.later:
                return dict.fromkeys(changes, f"{self.name}: object {place} is that of a later version now")
            records = _merged(box, changes)
            for stale in self._stale(place, changes):
                del records[stale]
            packed, refused = _packed(records)
            sent = {key: record for key, record in records.items() if key not in refused}
            try:
                self._keep(place, await self._put(place, box, packed, sent))
            except errors.ApiError as error:
                if error.status not in (404, 409) or attempt == _ATTEMPTS:
                    return dict.fromkeys(changes, f"{self.name}: {error.message}")
                try:
                    found = await self._read(place)
                    self._emptied = self._emptied or not box.records.keys() <= found.records.keys()
                    self._keep(place, found)
                except errors.ApiError as failure:
                    return dict.fromkeys(changes, f"{self.name}: {failure.message}")
                changes = {key: record for key, record in changes.items() if self._owns(key)}
            else:
                return self._moved(place, refused, changes)
        return {}

    def _stale(self, place: int, changes: Changes) -> list[Key]:
        """What others left in the object when it was theirs, and have saved elsewhere since."""
        if not self._is_ours(place):
            self._since.pop(place, None)
            return []
        now = self._client.clock.monotonic()
        if now - self._since.setdefault(place, now) < _STALE_SECONDS:
            return []
        known = self._boxes[place].records.keys() - changes.keys()
        return [key for key in known if not self._owns(key) or self._places.get(key) != place]

    def _moved(self, place: int, refused: set[Key], changes: Changes) -> Mapping[Key, str]:
        """What found no room in the object gets another one, with the next save."""
        for key in refused:
            self._places.pop(key, None)
            self._boxes[place].expected.discard(key)
        self._emptied = self._emptied or not refused <= changes.keys()
        return {key: f"{self.name}: there is no room in object {place}" for key in refused & changes.keys()}

    def _keep(self, place: int, box: _Box) -> None:
        box.expected = set() if box.later else self._boxes[place].expected - box.records.keys()
        self._boxes[place] = box
        self._roomy = min(self._roomy, place)
        for key in box.records:
            self._places.setdefault(key, place)
        for key in [key for key, held in self._places.items() if held == place and key not in box.records]:
            if key not in box.expected:
                del self._places[key]

    async def _put(self, place: int, box: _Box, packed: bytes, sent: dict[Key, bytes]) -> _Box:
        """The object with this value, which holds what is sent, in place of what was seen of it; raises ApiError."""
        key = self._key(place)
        value = {_VALUE: base64.b64encode(packed).decode()}
        if box.found is None:
            head = {"name": key.name, "namespace": key.namespace, "labels": _LABELS}
            method, path = "POST", CONFIG_MAPS.collection(key.namespace)
            body = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": head, "binaryData": value}
        else:
            method, path = "PUT", CONFIG_MAPS.object(key)
            body = {**box.found, "binaryData": {**(box.found.get("binaryData") or {}), **value}}
        answer = await self._client.request(method, path, body=msgspec.json.encode(body))
        return self._box(place, answer, (value[_VALUE], sent, len(packed)))

    async def _read(self, place: int) -> _Box:
        """The object as it is now, with `found` None where there is none; raises ApiError."""
        try:
            return self._box(place, await self._client.request("GET", CONFIG_MAPS.object(self._key(place))))
        except errors.ApiError as error:
            if error.not_found:
                return _Box()
            raise

    def _key(self, place: int) -> Key:
        return Key(self._namespace, f"{self._prefix}-{place}")

    def _box(self, place: int, answer: bytes, sent: tuple[str, dict[Key, bytes], int] | None = None) -> _Box:
        """`sent` is the value that was written, if one was, what it holds, and its size: it need not be unpacked.

        Raises ApiError for an answer that is no ConfigMap; a value that can't be read is logged, and none.
        """
        try:
            known = msgspec.json.decode(answer, type=_ConfigMap)
            box = _Box(msgspec.json.decode(answer))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no ConfigMap: {error}") from error
        key, value = self._key(place), (known.binary_data or {}).get(_VALUE)
        if value is None:
            return box
        if sent is not None and value == sent[0]:
            _, box.records, box.size = sent
            return box
        try:
            box.records, box.size = _unpacked(value)
        except ValueError as error:
            self._log.error("records cannot be read: their HPAs count as new", object=key.name, why=str(error))
            self._emptied = True
            box.later = isinstance(error, _Later)
            if not box.later:
                box.found = {**msgspec.json.decode(answer), "binaryData": {_DAMAGED: value[:_KEPT]}}
        return box


def _merged(box: _Box, changes: Changes) -> dict[Key, bytes]:
    """The records of the object with the changes on top."""
    records = {**box.records, **{key: record for key, record in changes.items() if record is not None}}
    for key in (key for key, record in changes.items() if record is None):
        records.pop(key, None)
        box.expected.discard(key)
    return records


def _packed(records: Mapping[Key, bytes]) -> tuple[bytes, set[Key]]:
    """The value for these records, and those there is no room for: the largest."""
    kept = sorted(records, key=lambda key: (len(records[key]), key))
    size = sum(map(len, records.values()))
    while True:
        rows = [(key.namespace, key.name, records[key]) for key in sorted(kept)]
        packed = zlib.compress(msgspec.msgpack.encode(_Packed(FORMAT, rows)), 1)
        if len(packed) <= MOST_BYTES:
            return packed, records.keys() - set(kept)
        room = size * MOST_BYTES // len(packed)  # as many as fit if they compress as well as all of them do
        while size > room or len(kept) == len(rows):
            size -= len(records[kept.pop()])


def _unpacked(value: str) -> tuple[dict[Key, bytes], int]:
    """The records of a value, and its size in bytes; raises ValueError where it is none, _Later for another format."""
    try:
        packed = base64.b64decode(value, validate=True)
        data = _inflated(packed)
        version = msgspec.msgpack.decode(data, type=_Versioned).format
        if version != FORMAT:
            raise _Later(f"its format is {version}, which this version does not know; it knows {FORMAT}")
        found = msgspec.msgpack.decode(data, type=_Packed)
    except (binascii.Error, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return {Key(namespace, name): record for namespace, name, record in found.records}, len(packed)


def _inflated(packed: bytes) -> bytes:
    """Raises ValueError for what would become unreasonably large."""
    inflater = zlib.decompressobj()
    data = inflater.decompress(packed, 64 * MOST_BYTES)
    if not inflater.eof:
        raise ValueError("it is cut short, or too large")
    return data

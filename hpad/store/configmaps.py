"""Records in ConfigMaps: the storage backend in the cluster, for a leader and its successors.

Objects NAME-0, NAME-1, ... hold up to HPAS records each, packed into one value, so that a save is one write for many
HPAs. They are found by counting, past one missing object, and are never deleted, only emptied.

- A write builds on the resourceVersion seen last. After a conflict the object is read again, and records are put on top
  only if this process still leads. This prevents two replicas from overwriting each other.
- A value that cannot be read stays in the object under another name for inspection, cut if it is large.
- An object with a value of a later version is left alone, so that a rollback loses nothing; records go elsewhere.
"""

import asyncio
import base64
import binascii
import zlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from typing import Any, Final

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.kube import errors, paths
from hpad.kube.client import Allowed, Client, NotAllowed

CONFIG_MAPS: Final = paths.Resource("", "v1", "configmaps", "ConfigMap")
HPAS: Final = 64
MOST_BYTES: Final = 700_000
"""Bytes of one value: 930 kB in base64, of the 1 MiB that a ConfigMap may have."""
_FULL: Final = 300_000
"""Bytes from which on an object gets no further HPAs: the records that it has may grow."""
_KEPT: Final = 400_000
"""Characters of a damaged value that are kept, 300 kB of data: they fit beside the largest value."""
FORMAT: Final = 1
_VALUE, _DAMAGED = "histories", "damaged"
_LABELS: Final = {"app.kubernetes.io/managed-by": "hpad"}
_ATTEMPTS: Final = 3
_AT_ONCE: Final = 4

Object = dict[str, Any]
Changes = Mapping[Key, bytes | None]


def objects(name: str, hpas: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the ConfigMaps that this number of HPAs is written to, and of those that are read.

    Two more are read: the search ends at two missing objects (`ConfigMaps.load`).
    """
    filled = max(1, -(-hpas // HPAS))
    names = tuple(f"{name}-{place}" for place in range(filled + 2))
    return names[:filled], names


class _ConfigMap(msgspec.Struct):
    """The fields of a ConfigMap that are read; a write keeps all others."""

    metadata: dict[str, Any]
    binary_data: dict[str, str] | None = msgspec.field(default=None, name="binaryData")


class _Versioned(msgspec.Struct, array_like=True):
    """The first field of a value, the same in all versions."""

    format: int


class _Packed(msgspec.Struct, array_like=True):
    format: int
    records: list[tuple[str, str, bytes]]


class _Later(ValueError):
    """The value was written by a later version of hpad."""


class _Box:
    """One ConfigMap as last read or written; `stored` is None if it does not exist yet. `later`: see `_Later`.

    `expected` are the HPAs that were assigned to it and have no record in it yet.
    """

    def __init__(self, stored: Object | None = None) -> None:
        self.stored = stored
        self.records: dict[Key, bytes] = {}
        self.size = 0
        self.expected: set[Key] = set()
        self.later = False

    @property
    def has_room(self) -> bool:
        if self.later or self.size >= _FULL or len(self.records) >= HPAS:
            return False
        # The sum first: it is cheap, and the union of both sets is needed only near the limit.
        return len(self.expected) + len(self.records) < HPAS or len(self.expected | self.records.keys()) < HPAS


class ConfigMaps:
    """A storage backend for `store.persistent`; the protocol `store.Backend` describes the methods.

    Each write calls `allowed` where it is handed over, which raises NotAllowed if this process may not save any more.
    """

    def __init__(self, client: Client, namespace: str, name: str, allowed: Allowed = lambda: None) -> None:
        self.name = f"ConfigMaps {namespace}/{name}-*"
        self._client = client
        self._namespace = namespace
        self._prefix = name
        self._allowed = allowed
        self._boxes: list[_Box] = []
        self._places: dict[Key, int] = {}
        self._emptied = False
        self._roomy = 0
        """No object with a lower number has room."""
        self._log = structlog.get_logger("hpad.store", store=self.name)

    def group(self, key: Key) -> Hashable:
        """Returns the number of the object that has the record of the HPA, or will have it."""
        place = self._places.get(key)
        if place is not None:
            return place
        while self._roomy < len(self._boxes) and not self._boxes[self._roomy].has_room:
            self._roomy += 1
        if self._roomy == len(self._boxes):
            self._boxes.append(_Box())
        place = self._places[key] = self._roomy
        self._boxes[place].expected.add(key)
        return place

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        boxes: list[_Box] = []
        try:
            while len(boxes) < 2 or boxes[-1].stored is not None or boxes[-2].stored is not None:
                boxes.append(await self._read(len(boxes)))
        except errors.ApiError as error:
            return [], f"{self.name}: {error.message}"
        while boxes and boxes[-1].stored is None:
            boxes.pop()
        self._boxes = boxes
        self._roomy = 0
        self._places = {}
        for index, box in enumerate(boxes):
            self._places.update(dict.fromkeys(box.records, index))
        return [row for box in boxes for row in box.records.items()], None

    async def save(self, changes: Changes) -> Mapping[Key, str]:
        places: dict[int, dict[Key, bytes | None]] = defaultdict(dict)
        for key, record in changes.items():
            self.group(key)
            places[self._places[key]][key] = record
        free = asyncio.Semaphore(_AT_ONCE)

        async def write(place: int, part: Changes) -> Mapping[Key, str]:
            async with free:
                return await self._write(place, part)

        failed = await asyncio.gather(*(write(place, part) for place, part in places.items()))
        return {key: why for part in failed for key, why in part.items()}

    async def quarantine(self, keys: Collection[Key]) -> None:
        for key in keys:
            config_map = self._boxes[self._places[key]].stored if key in self._places else None
            if config_map is not None:
                config_map["binaryData"][_DAMAGED] = config_map["binaryData"][_VALUE][:_KEPT]
        await self.save(dict.fromkeys(keys))

    def emptied(self) -> bool:
        was, self._emptied = self._emptied, False
        return was

    async def size(self) -> int:
        return sum(box.size for box in self._boxes)

    async def close(self) -> None:
        """Does nothing: the caller that made the client closes it."""

    async def _write(self, place: int, changes: Changes) -> Mapping[Key, str]:
        """Writes one object.

        Repeats the write only if another client has changed the object, and this process still leads.
        """
        attempt = 0
        while True:
            attempt += 1
            box = self._boxes[place]
            if box.later:
                return dict.fromkeys(changes, f"{self.name}: a later version of hpad has written object {place}")
            # Without the copies that several replicas of an earlier version have left in several objects.
            records = {key: each for key, each in _merged(box, changes).items() if self._places.get(key) == place}
            packed, refused = _packed(records)
            sent = {key: record for key, record in records.items() if key not in refused}
            try:
                written = await self._put(place, box, packed, sent)
                self._keep(place, written, gone={key for key, record in changes.items() if record is None})
            except NotAllowed:  # another process leads: the object may be its own already
                return {}
            except errors.ApiError as error:
                if error.status not in (404, 409) or attempt == _ATTEMPTS:
                    return dict.fromkeys(changes, f"{self.name}: {error.message}")
                try:
                    latest = await self._read(place)
                    self._emptied = self._emptied or not box.records.keys() <= latest.records.keys()
                    self._keep(place, latest)
                except errors.ApiError as failure:
                    return dict.fromkeys(changes, f"{self.name}: {failure.message}")
            else:
                return self._moved(place, refused, changes)

    def _moved(self, place: int, refused: set[Key], changes: Changes) -> Mapping[Key, str]:
        """Unassigns records for which the object has no room; the next save puts them into another object."""
        for key in refused:
            self._places.pop(key, None)
            self._boxes[place].expected.discard(key)
        self._emptied = self._emptied or not refused <= changes.keys()
        return {key: f"{self.name}: there is no room in object {place}" for key in refused & changes.keys()}

    def _keep(self, place: int, box: _Box, gone: Collection[Key] = ()) -> None:
        """Replaces an object by what was read or written; `gone` are HPAs whose records were to be deleted."""
        before = self._boxes[place]
        box.expected = set() if box.later else before.expected - box.records.keys()
        self._boxes[place] = box
        self._roomy = min(self._roomy, place)
        for key in box.records:
            self._places.setdefault(key, place)
        for key in before.records.keys() | before.expected | set(gone):
            if key not in box.records and key not in box.expected and self._places.get(key) == place:
                del self._places[key]

    async def _put(self, place: int, box: _Box, packed: bytes, sent: dict[Key, bytes]) -> _Box:
        """Creates or replaces the object with this value, which holds the records `sent`.

        Raises ApiError, and what `allowed` raises where the request is handed over.
        """
        key = self._key(place)
        value = {_VALUE: base64.b64encode(packed).decode()}
        if box.stored is None:
            head = {"name": key.name, "namespace": key.namespace, "labels": _LABELS}
            method, path = "POST", CONFIG_MAPS.collection(key.namespace)
            body = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": head, "binaryData": value}
        else:
            method, path = "PUT", CONFIG_MAPS.object(key)
            body = {**box.stored, "binaryData": {**(box.stored.get("binaryData") or {}), **value}}
        answer = await self._client.request(method, path, body=msgspec.json.encode(body), allowed=self._allowed)
        return self._box(place, answer, (value[_VALUE], sent, len(packed)))

    async def _read(self, place: int) -> _Box:
        """Returns the object as it is now; its `stored` is None if it does not exist. Raises ApiError."""
        try:
            return self._box(place, await self._client.request("GET", CONFIG_MAPS.object(self._key(place))))
        except errors.ApiError as error:
            if error.not_found:
                return _Box()
            raise

    def _key(self, place: int) -> Key:
        return Key(self._namespace, f"{self._prefix}-{place}")

    def _box(self, place: int, answer: bytes, sent: tuple[str, dict[Key, bytes], int] | None = None) -> _Box:
        """Decodes an answer. `sent` is the value just written, its records and its size: it need not be unpacked.

        Raises ApiError for an answer that is no ConfigMap. A value that cannot be read is logged and counts as empty.
        """
        try:
            config_map = msgspec.json.decode(answer, type=_ConfigMap)
            box = _Box(msgspec.json.decode(answer))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no ConfigMap: {error}") from error
        key, value = self._key(place), (config_map.binary_data or {}).get(_VALUE)
        if value is None:
            return box
        if sent is not None and value == sent[0]:
            _, box.records, box.size = sent
            return box
        try:
            box.records, box.size = _unpacked(value)
        except ValueError as error:
            self._log.error("records cannot be read: their HPAs count as new", object=key.name, error=str(error))
            self._emptied = True
            box.later = isinstance(error, _Later)
            if not box.later:
                box.stored = {**msgspec.json.decode(answer), "binaryData": {_DAMAGED: value[:_KEPT]}}
        return box


def _merged(box: _Box, changes: Changes) -> dict[Key, bytes]:
    """Returns the records of the object with the changes applied."""
    records = {**box.records, **{key: record for key, record in changes.items() if record is not None}}
    for key in (key for key, record in changes.items() if record is None):
        records.pop(key, None)
        box.expected.discard(key)
    return records


def _packed(records: Mapping[Key, bytes]) -> tuple[bytes, set[Key]]:
    """Returns the value for these records, and the keys of the largest ones if there is no room for them."""
    kept = sorted(records, key=lambda key: (len(records[key]), key))
    size = sum(map(len, records.values()))
    while True:
        rows = [(*key, records[key]) for key in sorted(kept)]
        packed = zlib.compress(msgspec.msgpack.encode(_Packed(FORMAT, rows)), 1)
        if len(packed) <= MOST_BYTES:
            return packed, records.keys() - set(kept)
        room = size * MOST_BYTES // len(packed)  # an estimate: parts compress about as well as the whole
        while size > room or len(kept) == len(rows):
            size -= len(records[kept.pop()])


def _unpacked(value: str) -> tuple[dict[Key, bytes], int]:
    """Returns the records of a value, and its size in bytes. Raises ValueError, _Later for another format."""
    try:
        compressed = base64.b64decode(value, validate=True)
        data, size = _inflated(compressed), len(compressed)
        version = msgspec.msgpack.decode(data, type=_Versioned).format
        if version != FORMAT:
            raise _Later(f"its format is {version}, which this version does not know; it knows {FORMAT}")
        packed = msgspec.msgpack.decode(data, type=_Packed)
    except (binascii.Error, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return {Key.of(namespace, name): record for namespace, name, record in packed.records}, size


def _inflated(packed: bytes) -> bytes:
    """Returns the decompressed data. Raises ValueError if it is far larger than any value that hpad writes."""
    # Bounded: another client could write a small value that decompresses to gigabytes.
    inflater = zlib.decompressobj()
    data = inflater.decompress(packed, 64 * MOST_BYTES)
    if not inflater.eof:
        raise ValueError("it is truncated, or too large")
    return data

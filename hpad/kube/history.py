"""Records of HPAs in ConfigMaps: what an hpad in the cluster remembers, for whichever replica comes next.

Objects NAME-0, NAME-1, ... hold up to HPAS of them each, packed into one value, so that a save is one write for many
HPAs; they are found by asking for one after the other and are never deleted, only emptied. A write builds on the
resourceVersion that was seen last. Where somebody else wrote in between (another replica whose HPAs share an object),
the object is read again and only what is ours at that moment is put on top.

A value that can't be read is left in the object under another name, for people to look at.
"""

import asyncio
import base64
import binascii
import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, Final

import msgspec
import structlog

from hpad.kube import errors, paths
from hpad.kube.client import Client
from hpad.model.key import Key

CONFIG_MAPS: Final = paths.Resource("", "v1", "configmaps", "ConfigMap")
HPAS: Final = 64
MOST_BYTES: Final = 700_000
"""Of one value: base64 makes 930 kB of it, of the 1 MiB that a ConfigMap may have."""
_FULL: Final = 300_000
FORMAT: Final = 1
_VALUE, _DAMAGED = "histories", "damaged"
_LABELS: Final = {"app.kubernetes.io/managed-by": "hpad"}
_ATTEMPTS: Final = 3
_AT_ONCE: Final = 4

Object = dict[str, Any]
Changes = Mapping[Key, bytes | None]


class _ConfigMap(msgspec.Struct):
    """What must be there and make sense; the rest is kept as it is."""

    metadata: dict[str, Any]
    binary_data: dict[str, str] | None = msgspec.field(default=None, name="binaryData")


class _Packed(msgspec.Struct, array_like=True):
    format: int
    records: list[tuple[str, str, bytes]]


class _Box:
    """One ConfigMap as last seen or written: `found` is None where there is none yet."""

    def __init__(self, found: Object | None = None) -> None:
        self.found = found
        self.records: dict[Key, bytes] = {}
        self.size = 0
        self.expected: set[Key] = set()

    @property
    def has_room(self) -> bool:
        return len(self.expected | self.records.keys()) < HPAS and self.size < _FULL


class ConfigMaps:
    """A shelf for `store.lasting` (whose Shelf says what the methods promise).

    `owns` tells which HPAs are ours at this moment.
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
        self._log = structlog.get_logger("hpad.store").bind(store=self.name)

    def group(self, key: Key) -> Hashable:
        """The number of the object the key is in, or will be."""
        place = self._places.get(key)
        if place is None:
            place = next((index for index, box in enumerate(self._boxes) if box.has_room), len(self._boxes))
            if place == len(self._boxes):
                self._boxes.append(_Box())
            self._boxes[place].expected.add(key)
            self._places[key] = place
        return place

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        boxes: list[_Box] = []
        try:
            while (box := await self._read(len(boxes))).found is not None:
                boxes.append(box)
        except errors.ApiError as error:
            return [], f"{self.name}: {error.message}"
        self._boxes = boxes
        self._places = {key: index for index, box in enumerate(boxes) for key in box.records}
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
            found = self._boxes[self._places[key]].found if key in self._places else None
            if found is not None:
                found["binaryData"][_DAMAGED] = found["binaryData"][_VALUE]
        await self.save(dict.fromkeys(keys))

    async def size(self) -> int:
        return sum(box.size for box in self._boxes)

    async def close(self) -> None:
        """The client is its owner's to close."""

    async def _write(self, place: int, changes: Changes) -> Mapping[Key, str]:
        """One object, once; again only where somebody else was faster."""
        for attempt in range(1, _ATTEMPTS + 1):
            box = self._boxes[place]
            records = {**box.records, **{key: record for key, record in changes.items() if record is not None}}
            for key in (key for key, record in changes.items() if record is None):
                records.pop(key, None)
                box.expected.discard(key)
            packed, refused = _packed(records)
            try:
                self._keep(place, await self._put(place, box, packed))
            except errors.ApiError as error:
                if error.status not in (404, 409) or attempt == _ATTEMPTS:
                    return dict.fromkeys(changes, f"{self.name}: {error.message}")
                try:
                    self._keep(place, await self._read(place))
                except errors.ApiError as failure:
                    return dict.fromkeys(changes, f"{self.name}: {failure.message}")
                changes = {key: record for key, record in changes.items() if self._owns(key)}
            else:
                return {key: f"{self.name}: there is no room in object {place}" for key in refused & changes.keys()}
        return {}

    def _keep(self, place: int, box: _Box) -> None:
        box.expected = self._boxes[place].expected - box.records.keys()
        self._boxes[place] = box
        self._places.update(dict.fromkeys(box.records, place))
        for key in [key for key, held in self._places.items() if held == place and key not in box.records]:
            if key not in box.expected:
                del self._places[key]

    async def _put(self, place: int, box: _Box, packed: bytes) -> _Box:
        """The object with this value, in place of what was seen of it; raises ApiError."""
        key = self._key(place)
        value = {_VALUE: base64.b64encode(packed).decode()}
        if box.found is None:
            head = {"name": key.name, "namespace": key.namespace, "labels": _LABELS}
            method, path = "POST", CONFIG_MAPS.collection(key.namespace)
            body = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "metadata": head, "binaryData": value}
        else:
            method, path = "PUT", CONFIG_MAPS.object(key)
            body = {**box.found, "binaryData": {**(box.found.get("binaryData") or {}), **value}}
        return self._box(place, await self._client.request(method, path, body=msgspec.json.encode(body)))

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

    def _box(self, place: int, answer: bytes) -> _Box:
        """Raises ApiError for an answer that is no ConfigMap; a value that is damaged is set aside."""
        try:
            known = msgspec.json.decode(answer, type=_ConfigMap)
            box = _Box(msgspec.json.decode(answer))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no ConfigMap: {error}") from error
        value = (known.binary_data or {}).get(_VALUE)
        if value is None:
            return box
        try:
            box.records, box.size = _unpacked(value)
        except ValueError as error:
            box.found = {**msgspec.json.decode(answer), "binaryData": {_DAMAGED: value}}
            self._log.error(
                "histories are damaged: their HPAs count as new", object=str(self._key(place)), why=str(error)
            )
        return box


def _packed(records: Mapping[Key, bytes]) -> tuple[bytes, set[Key]]:
    """The value for these records, and those there is no room for: the largest."""
    kept = sorted(records, key=lambda key: (len(records[key]), key))
    while True:
        rows = [(key.namespace, key.name, records[key]) for key in sorted(kept)]
        packed = zlib.compress(msgspec.msgpack.encode(_Packed(FORMAT, rows)), 1)
        if len(packed) <= MOST_BYTES:
            return packed, records.keys() - set(kept)
        kept.pop()


def _unpacked(value: str) -> tuple[dict[Key, bytes], int]:
    """The records of a value, and its size in bytes; raises ValueError where it is none, or of another format."""
    try:
        packed = base64.b64decode(value, validate=True)
        found = msgspec.msgpack.decode(_inflated(packed), type=_Packed)
    except (binascii.Error, zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    if found.format != FORMAT:
        raise ValueError(f"its format is {found.format}, which this version does not know; it knows {FORMAT}")
    return {Key(namespace, name): record for namespace, name, record in found.records}, len(packed)


def _inflated(packed: bytes) -> bytes:
    """Raises ValueError for what would become unreasonably large."""
    inflater = zlib.decompressobj()
    data = inflater.decompress(packed, 64 * MOST_BYTES)
    if not inflater.eof:
        raise ValueError("it is cut short, or too large")
    return data

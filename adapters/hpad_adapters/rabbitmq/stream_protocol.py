"""The requests of RabbitMQ's stream protocol that a lag needs, on one connection to one node.

The protocol tells the offset that a group has stored, also while no consumer is connected. Which messages there are
stands in the headers of chunks: a subscription with so many credits makes the node send so many chunks, of which only
the headers are kept. The node sends them before it answers the end of the subscription, so no chunk means that there is
no message. A subscription leaves out the chunks in which offsets are stored, each of which takes an offset of its own.

Source: RabbitMQ, deps/rabbitmq_stream/docs/PROTOCOL.adoc; osiris_log.erl for the header of a chunk.
"""

import asyncio
import contextlib
import struct
from collections.abc import Sequence
from typing import NamedTuple

OK, ABSENT, NO_NODE, NO_RIGHT = 1, 2, 6, 16
"""Response codes; further ones are in REASONS."""
REASONS = {
    ABSENT: "there is no such stream",
    NO_NODE: "the stream has no leader now",
    7: "the broker does not accept the mechanism PLAIN",
    8: "wrong user name or password",
    9: "wrong user name or password",
    11: "this user may connect from the broker's own machine only",
    12: "the user has no permission on the vhost, or there is no such vhost",
    NO_RIGHT: "the user has no permission to read the stream",
}
"""What response codes mean, as the end of a sentence."""
_NO_OFFSET = 19
_ANSWERS = 0x8000
"""The bit that tells an answer from its request."""
_SUBSCRIBE, _DELIVER, _QUERY_OFFSET, _UNSUBSCRIBE, _METADATA = 0x07, 0x08, 0x0B, 0x0C, 0x0F
_PEER_PROPERTIES, _HANDSHAKE, _AUTHENTICATE, _TUNE, _OPEN, _CLOSE, _PARTITIONS = (
    0x11,
    0x12,
    0x13,
    0x14,
    0x15,
    0x16,
    0x19,
)
_FIRST, _LAST, _FROM = 1, 2, 4
_VERSION = 1
_SUBSCRIPTION = 1
_MOST_BYTES = 1 << 20
"""Of a frame without messages."""
_MOST_FRAMES = 256
"""Chunks, heartbeats and notices before an answer: credits are fewer."""
_MOST_ELEMENTS, _MOST_PARTITIONS = 10_000, 1_000
"""Of an array, and of a super stream, whose workers are searched in a time that grows with the square."""
_PIECE = 1 << 16
_CLOSE_SECONDS = 1.0
_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">HH")
_CHUNK = struct.Struct(">BBBHIqQQiIII")
"""Subscription; of the chunk: version, type, entries, records, timestamp, epoch, first offset, checksum, lengths."""
_PROPERTIES = {"product": "hpad", "connection_name": "hpad"}


class NodeAddress(NamedTuple):
    """The host and port by which the nodes of a broker name each other to clients."""

    host: str
    port: int


class StreamRefusedError(Exception):
    """The node answers one request with a response code other than OK; the connection can be used further."""

    def __init__(self, code: int) -> None:
        super().__init__(REASONS.get(code, f"the broker answers with code {code}"))
        self.code = code


class StreamChunk(NamedTuple):
    """The offsets of the first and the last message of a chunk, and its bytes."""

    first: int
    last: int
    size: int


class StreamConnection:
    """One connection. `timeout`: seconds for each answer. `most`: bytes of the largest chunk that is read.

    All methods raise OSError, EOFError, TimeoutError, ValueError (a malformed answer) or StreamRefusedError. After any
    but the last the connection cannot be used.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float, most: int) -> None:
        self._reader, self._writer = reader, writer
        self._timeout, self._most = timeout, most
        self._correlation = 0
        self._chunks: list[StreamChunk] = []
        self.address = NodeAddress("", 0)
        """The node, as it names itself to clients."""

    async def open(self, user: str, password: str, vhost: str) -> None:
        """Logs in to a vhost."""
        properties = b"".join(_text(name) + _text(value) for name, value in _PROPERTIES.items())
        await self._checked(_PEER_PROPERTIES, _SIZE.pack(len(_PROPERTIES)) + properties)
        await self._checked(_HANDSHAKE, b"")
        secret = f"\0{user}\0{password}".encode()
        await self._checked(_AUTHENTICATE, _text("PLAIN") + _SIZE.pack(len(secret)) + secret)
        async with asyncio.timeout(self._timeout):
            tune = await self._frame(_TUNE)
            await self._send(_TUNE, tune)
        fields = await self._checked(_OPEN, _text(vhost))
        found = {fields.text(): fields.text() for _ in range(fields.count())} if fields.left else {}
        self.address = NodeAddress(found.get("advertised_host", ""), int(found.get("advertised_port", "0")))

    async def leaders(self, streams: Sequence[str]) -> dict[str, NodeAddress | int]:
        """Returns the node of the leader of each stream, or the response code of one that has none."""
        fields = await self._ask(_METADATA, _SIZE.pack(len(streams)) + b"".join(map(_text, streams)))
        nodes = {}
        for _ in range(fields.count()):
            reference = fields.short()
            nodes[reference] = NodeAddress(fields.text(), fields.long())
        found: dict[str, NodeAddress | int] = {}
        for _ in range(fields.count()):
            name, code, leader = fields.text(), fields.short(), fields.short()
            fields.skip(2 * fields.long())
            found[name] = nodes.get(leader, NO_NODE) if code == OK else code
        return found

    async def partitions(self, stream: str) -> list[str]:
        """Returns the streams of a super stream, in their order; [] if there is none."""
        try:
            fields = await self._checked(_PARTITIONS, _text(stream))
        except StreamRefusedError as error:
            if error.code == ABSENT:
                return []
            raise
        return [fields.text() for _ in range(fields.count(_MOST_PARTITIONS))]

    async def stored(self, stream: str, group: str) -> int | None:
        """Returns the offset that the consumers of this name have stored, None if they have stored none."""
        try:
            return (await self._checked(_QUERY_OFFSET, _text(group) + _text(stream))).wide()
        except StreamRefusedError as error:
            if error.code == _NO_OFFSET:
                return None
            raise

    async def last(self, stream: str) -> StreamChunk | None:
        """Returns the last chunk, None if the stream holds no message."""
        found = await self._delivered(stream, struct.pack(">H", _LAST), 1)
        return found[-1] if found else None

    async def chunks(self, stream: str, offset: int | None, most: int) -> list[StreamChunk]:
        """Returns so many chunks, from the one with this offset on, or from the first that is still there (None)."""
        where = struct.pack(">H", _FIRST) if offset is None else struct.pack(">HQ", _FROM, offset)
        return await self._delivered(stream, where, most)

    async def close(self) -> None:
        """Closes the connection. Never raises, because the connection is not used again."""
        goodbye = _SIZE.pack(self._correlation + 1) + struct.pack(">H", OK) + _text("done")
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._send(_CLOSE, goodbye)
                self._writer.close()
                await self._writer.wait_closed()
        self._writer.transport.abort()

    async def _delivered(self, stream: str, where: bytes, credit: int) -> list[StreamChunk]:
        self._chunks = []
        no_properties = _SIZE.pack(0)
        begin = bytes([_SUBSCRIPTION]) + _text(stream) + where + struct.pack(">H", credit) + no_properties
        await self._checked(_SUBSCRIBE, begin)
        await self._checked(_UNSUBSCRIBE, bytes([_SUBSCRIPTION]))
        return self._chunks

    async def _checked(self, key: int, content: bytes) -> "_Fields":
        """Returns the rest of an answer behind its response code."""
        fields = await self._ask(key, content)
        if (code := fields.short()) != OK:
            raise StreamRefusedError(code)
        return fields

    async def _ask(self, key: int, content: bytes) -> "_Fields":
        self._correlation += 1
        async with asyncio.timeout(self._timeout):
            await self._send(key, _SIZE.pack(self._correlation) + content)
            fields = _Fields(await self._frame(key | _ANSWERS))
        if (other := fields.long()) != self._correlation:
            raise ValueError(f"an answer to request {other}, not {self._correlation}")
        return fields

    async def _send(self, key: int, content: bytes) -> None:
        self._writer.write(_SIZE.pack(len(content) + _HEAD.size) + _HEAD.pack(key, _VERSION) + content)
        await self._writer.drain()

    async def _frame(self, wanted: int) -> bytes:
        """Returns the content of the next frame of this key. Chunks are noted, and other frames left out."""
        for _ in range(_MOST_FRAMES):
            (size,) = _SIZE.unpack(await self._reader.readexactly(_SIZE.size))
            key, _ = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            left = size - _HEAD.size
            if key == _DELIVER:
                await self._note_chunk(left)
                continue
            if not 0 <= left <= _MOST_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            content = await self._reader.readexactly(left)
            if key & ~_ANSWERS == wanted & ~_ANSWERS:  # RabbitMQ 3.10 leaves out the bit in answers about partitions
                return content
            if key == _CLOSE:
                raise ConnectionError(f"closed the connection: {_reason(content)}")
        raise ValueError(f"more than {_MOST_FRAMES} frames before an answer")

    async def _note_chunk(self, left: int) -> None:
        if not _CHUNK.size <= left <= self._most:
            raise ValueError(f"a chunk of {left} bytes (max_bytes: {self._most})")
        _, _, _, _, records, _, _, first, *_ = _CHUNK.unpack(await self._reader.readexactly(_CHUNK.size))
        self._chunks.append(StreamChunk(first, first + max(1, records) - 1, left))
        left -= _CHUNK.size
        while left:
            left -= len(await self._reader.readexactly(min(left, _PIECE)))


class _Fields:
    """The content of a frame, read field by field; raises ValueError where it ends too early."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def short(self) -> int:
        return self._number(2)

    def long(self) -> int:
        return self._number(4)

    def wide(self) -> int:
        return self._number(8)

    def count(self, most: int = _MOST_ELEMENTS) -> int:
        """The length of an array, of which each element takes two bytes or more."""
        number = self.long()
        if number > min(most, self.left // 2):
            raise ValueError(f"an array of {number} elements in {self.left} bytes (at most {most})")
        return number

    def skip(self, size: int) -> None:
        self._taken(size)

    def text(self) -> str:
        return self._taken(self.short()).decode()

    def _number(self, size: int) -> int:
        return int.from_bytes(self._taken(size), "big")

    def _taken(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError("an answer that ends too early")
        self._at += size
        return self._content[self._at - size : self._at]


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded


def _reason(content: bytes) -> str:
    fields = _Fields(content)
    fields.long()
    code = fields.short()
    return REASONS.get(code) or "".join(each for each in fields.text()[:200] if each.isprintable())

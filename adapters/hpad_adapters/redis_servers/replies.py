"""The Redis protocol: encodes commands, and reads replies within a budget of bytes and elements.

The budget keeps a server from filling the memory or blocking the event loop. Source: Redis, "RESP protocol
specification" (RESP2).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

MAX_BYTES = 4 << 20
"""The limit for all replies of a batch together. The summary of XPENDING takes about 60 bytes per consumer."""
MAX_ELEMENTS = 1 << 16
"""The limit for replies and array elements of a batch together."""
_DEEPEST = 8
_PAUSE_ELEMENTS = 512
_NIL = b"-1"
_LENGTH = re.compile(rb"[0-9]{1,10}\Z")
_INTEGER = re.compile(rb"[-+]?[0-9]{1,19}\Z")
_INT64 = range(-(2**63), 2**63)


class ProtocolError(Exception):
    """The reply is not RESP2, or too large; the message is the end of a sentence that begins with the server."""


class ReplyError(Exception):
    """An error reply of the server."""


Reply = str | int | list["Reply"] | None | ReplyError


def encoded(command: Sequence[str]) -> bytes:
    """Encodes a command in RESP2: an array of bulk strings, which may hold any text."""
    parts = [part.encode() for part in command]
    return b"".join((b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)))


class Budget:
    """What all replies of one batch may take together, also over several connections."""

    def __init__(self) -> None:
        self.bytes = MAX_BYTES
        self.elements = MAX_ELEMENTS

    def take_bytes(self, count: int) -> None:
        """Raises ProtocolError if less than `count` bytes remain."""
        self.bytes -= count
        if self.bytes < 0:
            raise ProtocolError(f"sent more than {MAX_BYTES >> 20} MiB, too much for an answer")

    def take_elements(self, count: int) -> None:
        """Raises ProtocolError if less than `count` elements remain."""
        self.elements -= count
        if self.elements < 0:
            raise ProtocolError(f"sent more than {MAX_ELEMENTS} elements, too many for an answer")


class Replies:
    """Reads the replies of one connection; `pause` yields to the event loop, every few hundred elements."""

    def __init__(self, reader: asyncio.StreamReader, pause: Callable[[], Awaitable[None]], budget: Budget) -> None:
        self._reader = reader
        self._pause = pause
        self._budget = budget

    async def next(self, depth: int = 0) -> Reply:
        """Reads one reply, None for nil. Raises ProtocolError, EOFError at the end of the connection, and OSError."""
        self._budget.take_elements(1)
        if self._budget.elements % _PAUSE_ELEMENTS == 0:
            await self._pause()
        line = await self._line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode("utf-8", "replace")
        if kind == b"-":
            return ReplyError(rest.decode("utf-8", "replace"))
        if kind == b":":
            return _integer(rest)
        if kind == b"$":
            return await self._bulk(rest)
        if kind == b"*":
            return await self._array(rest, depth)
        raise ProtocolError("did not answer in RESP2: is this the port of a Redis server?")

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readuntil(b"\r\n")
        except asyncio.LimitOverrunError:
            raise ProtocolError("sent a line without end") from None
        self._budget.take_bytes(len(line))
        return line[:-2]

    async def _bulk(self, size: bytes) -> str | None:
        if size == _NIL:
            return None
        length = _length(size)
        # Counted first: a length above the budget must not be allocated.
        self._budget.take_bytes(length + 2)
        text = await self._reader.readexactly(length + 2)
        if not text.endswith(b"\r\n"):
            raise ProtocolError("sent a text that is longer than its length")
        return text[:-2].decode("utf-8", "replace")

    async def _array(self, size: bytes, depth: int) -> list[Reply] | None:
        if size == _NIL:
            return None
        length = _length(size)
        if depth >= _DEEPEST:
            raise ProtocolError(f"sent arrays nested more than {_DEEPEST} levels deep")
        # The elements are counted one by one as they are read; this refuses a hopeless array at once.
        if length > self._budget.elements:
            self._budget.take_elements(length)
        return [await self.next(depth + 1) for _ in range(length)]


def _length(text: bytes) -> int:
    """Parses a length in digits. The only negative one, -1 for nil, is handled by the callers."""
    if not _LENGTH.match(text):
        raise ProtocolError(f"sent {_shown(text)} where the length of a value belongs")
    return int(text)


def _integer(text: bytes) -> int:
    if not _INTEGER.match(text) or int(text) not in _INT64:
        raise ProtocolError(f"sent {_shown(text)} where a whole number of 64 bits belongs")
    return int(text)


def _shown(text: bytes) -> str:
    return f'"{text[:40].decode("utf-8", "replace")}"'

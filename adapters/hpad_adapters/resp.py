"""RESP2, the protocol of Redis, read within a budget: a server can neither fill the memory nor keep the event loop.

Source: Redis, "RESP protocol specification" (RESP2).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

MAX_BYTES = 4 << 20
"""Of all replies of a batch together. The summary of XPENDING takes some 60 bytes per consumer."""
MAX_ELEMENTS = 1 << 16
"""Replies and entries of arrays, of a batch together."""
_DEEPEST = 8
_PAUSE_ELEMENTS = 512
_NIL = b"-1"
_LENGTH = re.compile(rb"[0-9]{1,10}\Z")
_INTEGER = re.compile(rb"[-+]?[0-9]{1,19}\Z")
_INT64 = range(-(2**63), 2**63)


class ProtocolError(Exception):
    """What the server sent is no RESP2, or too much of it; the message is the end of a sentence about the server."""


class ReplyError(Exception):
    """What the server said instead of an answer."""


Reply = str | int | list["Reply"] | None | ReplyError


def encoded(command: Sequence[str]) -> bytes:
    """A command as RESP2 has it: an array of bulk strings, in which any text is safe."""
    parts = [part.encode() for part in command]
    return b"".join((b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)))


class Replies:
    """Reads the replies of one batch; `pause` lets others run, and is awaited every few hundred elements."""

    def __init__(self, reader: asyncio.StreamReader, pause: Callable[[], Awaitable[None]]) -> None:
        self._reader = reader
        self._pause = pause
        self._bytes = MAX_BYTES
        self._elements = MAX_ELEMENTS

    async def next(self, depth: int = 0) -> Reply:
        """One reply, None for nil. Raises ProtocolError, EOFError where the connection ends, and OSError.

        A length is refused before anything of that length is read or made room for.
        """
        self._take_elements(1)
        if self._elements % _PAUSE_ELEMENTS == 0:
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
        self._take_bytes(len(line))
        return line[:-2]

    async def _bulk(self, size: bytes) -> str | None:
        if size == _NIL:
            return None
        length = _length(size)
        self._take_bytes(length + 2)
        text = await self._reader.readexactly(length + 2)
        if not text.endswith(b"\r\n"):
            raise ProtocolError("sent a text that is longer than it said")
        return text[:-2].decode("utf-8", "replace")

    async def _array(self, size: bytes, depth: int) -> list[Reply] | None:
        if size == _NIL:
            return None
        length = _length(size)
        if depth >= _DEEPEST:
            raise ProtocolError(f"sent arrays nested more than {_DEEPEST} levels deep")
        if length > self._elements:
            self._take_elements(length)
        return [await self.next(depth + 1) for _ in range(length)]

    def _take_bytes(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise ProtocolError(f"sent more than {MAX_BYTES >> 20} MiB, too much for an answer")

    def _take_elements(self, count: int) -> None:
        self._elements -= count
        if self._elements < 0:
            raise ProtocolError(f"sent more than {MAX_ELEMENTS} elements, too many for an answer")


def _length(text: bytes) -> int:
    """A length: digits alone. The only negative one, -1 for nil, is handled before."""
    if not _LENGTH.match(text):
        raise ProtocolError(f"sent {_shown(text)} where the length of a value belongs")
    return int(text)


def _integer(text: bytes) -> int:
    if not _INTEGER.match(text) or int(text) not in _INT64:
        raise ProtocolError(f"sent {_shown(text)} where a whole number of 64 bits belongs")
    return int(text)


def _shown(text: bytes) -> str:
    return f'"{text[:40].decode("utf-8", "replace")}"'

"""What an AMQP connection may bring: no frame above the negotiated size, and so many bytes for each question.

The library reads whatever length a frame claims, up to 4 GiB. All that hpad asks for fits into a few hundred bytes.
Source: AMQP 0-9-1 specification, sections 2.3.5 (frames) and 4.2.3, and connection.tune in the class reference.
"""

import asyncio
import struct
from typing import Any

FRAME_MAX = 8192
"""Bytes of a frame with its header and its end; RabbitMQ 4.1 takes no client with less. Before the server has said what
it takes, the specification allows 4096."""
ANSWER_BYTES = 1 << 16
"""For the answer to one question: a connection, or one queue."""
_FRAME_MIN = 4096
_HEADER_BYTES, _END_BYTES = 7, 1
_LENGTH = struct.Struct(">L")
_TUNE = struct.pack(">HH", 10, 30)
_FRAME_MAX_AT = slice(6, 10)


class TooMuch(ConnectionError):
    """The broker sent what nothing asked for; the message is the end of a sentence about the broker."""


class Reader:
    """What the library reads a connection with: an asyncio.StreamReader that refuses before it makes room.

    `refused` says why the connection was given up, empty while it was not.
    """

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self.refused = ""
        self._reader = reader
        self._frame_max = FRAME_MAX
        self._left = ANSWER_BYTES
        self._header = b""

    def allow(self) -> None:
        """Another question is asked."""
        self._left = ANSWER_BYTES

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def readexactly(self, count: int) -> bytes:
        """The next bytes: of a frame its type, the rest of its header, then its content with the end, as the library
        asks for them. Raises TooMuch, and as asyncio's."""
        if len(self._header) == _HEADER_BYTES and count + _HEADER_BYTES > self._frame_max:
            self._refuse(f"sent a frame of {count + _HEADER_BYTES} bytes, above the negotiated {self._frame_max}")
        self._left -= count
        if self._left < 0:
            self._refuse(f"sent more than {ANSWER_BYTES >> 10} KiB, too much for an answer")
        found = await self._reader.readexactly(count)
        if len(self._header) < _HEADER_BYTES:
            self._header += found
            return found
        self._header = b""
        return self._tuned(found) if found.startswith(_TUNE) else found

    def _tuned(self, content: bytes) -> bytes:
        """connection.tune with the size of frames that is agreed on; the library repeats it in its answer."""
        (offered,) = _LENGTH.unpack(content[_FRAME_MAX_AT]) if len(content) >= _FRAME_MAX_AT.stop else (0,)
        self._frame_max = max(_FRAME_MIN, min(offered or FRAME_MAX, FRAME_MAX))
        agreed = _LENGTH.pack(self._frame_max)
        return content[: _FRAME_MAX_AT.start] + agreed + content[_FRAME_MAX_AT.stop :]

    def _refuse(self, why: str) -> None:
        self.refused = why
        raise TooMuch(why)


class Transport:
    """The library's way to connect, `inner`, with a Reader around what it gives."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.reader: Reader | None = None

    async def create(self, url: Any, **options: Any) -> tuple[Reader, asyncio.StreamWriter]:
        """As the library's."""
        reader, writer = await self._inner.create(url, **options)
        self.reader = Reader(reader)
        return self.reader, writer

    def allow(self) -> None:
        """Another question is asked."""
        if self.reader is not None:
            self.reader.allow()

    @property
    def refused(self) -> str:
        """Why the connection was given up; empty while it was not."""
        return self.reader.refused if self.reader is not None else ""

"""Frames of SPDY/3.1 as far as a port-forward uses them: streams with headers, data, pings.

Source: SPDY Protocol, Draft 3.1 (https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/), section 2. There
is no flow control, as in Kubernetes' own implementation.
"""

import asyncio
import struct
import zlib
from typing import Final, NamedTuple

SYN_STREAM: Final = 1
SYN_REPLY: Final = 2
RST_STREAM: Final = 3
PING: Final = 6
GOAWAY: Final = 7
DATA: Final = -1
FIN: Final = 1
_VERSION: Final = 3
_CONTROL: Final = 1 << 31
_LONGEST_HEADERS: Final = 2**16
_PIECE: Final = 2**15

_NAMES: Final = (
    "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age allow "
    "authorization cache-control connection content-base content-encoding content-language content-length "
    "content-location content-md5 content-range content-type date etag expect expires from host if-match "
    "if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma "
    "proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade "
    "user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie "
    "keep-alive origin"
)
_REST: Final = (
    "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505"
    "203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden"
    "404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable"
    "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMT"
    "chunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text/javascript,"
    "publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0."
)


def _prefixed(text: str) -> bytes:
    return struct.pack(">I", len(text)) + text.encode("ascii")


DICTIONARY: Final = b"".join(_prefixed(name.replace("_", " ")) for name in _NAMES.split()) + _REST.encode("ascii")
"""The dictionary with which both sides compress headers (section 2.6.10.1)."""


class SpdyError(Exception):
    """The peer does not speak SPDY/3."""


class Frame(NamedTuple):
    """One frame. `stream` is the id of a stream or ping; `headers` are those of a SYN_STREAM, names in lower case."""

    kind: int
    stream: int
    is_last: bool = False
    headers: dict[str, str] = {}  # noqa: RUF012 - never changed
    data: bytes = b""


class Connection:
    """Reads and writes the frames of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._inflate = zlib.decompressobj(zdict=DICTIONARY)
        self._deflate = zlib.compressobj(zdict=DICTIONARY)

    async def read(self) -> Frame | None:
        """Returns the next frame, None at the end of the connection; raises SpdyError."""
        try:
            first, second = struct.unpack(">II", await self._reader.readexactly(8))
            body = await self._reader.readexactly(second & 0xFFFFFF)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        is_last = bool((second >> 24) & FIN)
        if not first & _CONTROL:
            return Frame(DATA, first, is_last, data=body)
        if (first >> 16) & 0x7FFF != _VERSION:
            raise SpdyError(f"version {(first >> 16) & 0x7FFF}")
        return self._control(first & 0xFFFF, is_last, body)

    def _control(self, kind: int, is_last: bool, body: bytes) -> Frame:
        stream = int.from_bytes(body[:4], "big") & ~_CONTROL
        headers = self._headers(body[10:]) if kind == SYN_STREAM else {}
        return Frame(kind, stream, is_last, headers)

    def _headers(self, block: bytes) -> dict[str, str]:
        try:
            text = self._inflate.decompress(block, _LONGEST_HEADERS)
            (count,) = struct.unpack_from(">I", text)
            texts, at = [], 4
            for _ in range(2 * count):
                (length,) = struct.unpack_from(">I", text, at)
                texts.append(text[at + 4 : at + 4 + length].decode("utf-8"))
                at += 4 + length
        except (zlib.error, struct.error, UnicodeDecodeError) as error:
            raise SpdyError(f"headers: {error}") from None
        return {name.lower(): value for name, value in zip(texts[::2], texts[1::2], strict=True)}

    def accept(self, stream: int) -> None:
        """Sends a SYN_REPLY without headers."""
        block = self._deflate.compress(struct.pack(">I", 0)) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._send_control(SYN_REPLY, struct.pack(">I", stream) + block)

    def pong(self, ping: int) -> None:
        """Answers a ping."""
        self._send_control(PING, struct.pack(">I", ping))

    async def send(self, stream: int, data: bytes, *, is_last: bool = False) -> None:
        """Sends data on a stream, in several frames if there is much of it."""
        pieces = [data[at : at + _PIECE] for at in range(0, len(data), _PIECE)] or [b""]
        for number, piece in enumerate(pieces, 1):
            flags = FIN if is_last and number == len(pieces) else 0
            self._writer.write(struct.pack(">II", stream, flags << 24 | len(piece)) + piece)
        await self._writer.drain()

    def _send_control(self, kind: int, body: bytes) -> None:
        self._writer.write(struct.pack(">II", _CONTROL | _VERSION << 16 | kind, len(body)) + body)

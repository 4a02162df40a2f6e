"""HTTP/2 as bytes: frames, and a connection of hpad's client without a network."""

import asyncio
from collections.abc import Iterator
from struct import pack
from typing import Any, NamedTuple

import hpack
from support.raw_http import Transport

from hpad.kube.http.exchange import Answer, Failed
from hpad.kube.http.inflight import Incoming
from hpad.kube.http.multiplexed import Multiplexed

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, PRIORITIZED = 4, 8, 32
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 3, 4, 5
REFUSED_STREAM, CANCEL = 7, 8
LAST_STREAM = 2**31 - 1
OK = b"\x88"
"""The headers of an answer: ":status: 200" in the static table (RFC 7541, appendix A)."""


class Sent(NamedTuple):
    """A frame that was sent."""

    kind: int
    flags: int
    stream: int
    content: bytes


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    return pack(">L", len(content))[1:] + bytes((kind, flags)) + pack(">L", stream) + content


def settings(*values: tuple[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(pack(">HL", *each) for each in values))


def window_update(stream: int, more: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream, pack(">L", more))


def reset(stream: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream, pack(">L", code))


def goaway(last: int, code: int = 0, text: bytes = b"") -> bytes:
    return frame(GOAWAY, 0, 0, pack(">LL", last, code) + text)


def headers(stream: int, block: bytes = OK, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block)


def data(stream: int, content: bytes, flags: int = END_STREAM) -> bytes:
    return frame(DATA, flags, stream, content)


def answer(stream: int = 1, body: bytes = b"ok") -> bytes:
    """An answer of two frames."""
    return headers(stream) + data(stream, body)


def encoded(*fields: tuple[str, str], huffman: bool = True) -> bytes:
    """Headers as a server encodes them that was told to use no dynamic table."""
    encoder = hpack.Encoder()
    encoder.header_table_size = 0
    return encoder.encode(fields, huffman=huffman)


def sent(written: bytes) -> Iterator[Sent]:
    """Reads whole frames."""
    while written:
        length = int.from_bytes(written[:3], "big")
        kind, flags, stream = written[3], written[4], int.from_bytes(written[5:9], "big")
        assert len(written) >= 9 + length, "a part of a frame"
        yield Sent(kind, flags, stream, written[9 : 9 + length])
        written = written[9 + length :]


class ReadTransport(Transport):
    """Records also whether it reads. As with real ones, what was aborted or closed is closing."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def write(self, data: Any) -> None:
        assert not self.ended, "written after the end"
        super().write(data)

    def is_closing(self) -> bool:
        return bool(self.ended)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Streams:
    """A connection on a recording transport, and its owner. `ready` sends the first SETTINGS of the server."""

    server = "https://api"

    def __init__(self, largest: int = 2**20, *, ready: bool = True) -> None:
        self.largest = largest
        self.losses = 0
        self.transport = ReadTransport()
        self.connection = Multiplexed(asyncio.get_running_loop(), self)
        self.connection.connection_made(self.transport)
        if ready:
            self.receives(settings())

    def lost(self, connection: Multiplexed) -> None:
        self.losses += 1

    def receives(self, *pieces: bytes) -> None:
        for piece in pieces:
            if piece and not self.transport.ended:
                self.connection.data_received(piece)

    async def started(
        self, head: bytes = b"\x82", body: bytes | None = None, timeout: float = 60.0
    ) -> "asyncio.Task[Answer | Failed]":
        """Sends a request; returns the task that waits for the answer."""
        task = asyncio.ensure_future(self._outcome(head, body, asyncio.get_running_loop().time() + timeout))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def answered(self, *pieces: bytes, end: bool = False) -> Answer | Failed:
        """Sends a request and receives these pieces, and with `end` the end of the connection."""
        task = await self.started()
        self.receives(*pieces)
        if end:
            self.ends()
        async with asyncio.timeout(60):
            return await task

    async def streamed(self, *pieces: bytes, silence: float = 60.0) -> Incoming:
        """Starts a stream, of which these pieces have the headers."""
        task = asyncio.ensure_future(self.connection.stream(b"\x82", silence))
        await asyncio.sleep(0)
        self.receives(*pieces)
        return await task

    def ends(self, error: Exception | None = None) -> None:
        """The server, or the network, closes the connection."""
        if not self.transport.ended and error is None:
            self.connection.eof_received()
        self.transport.ended = self.transport.ended or "lost"
        self.connection.connection_lost(error)

    def frames(self) -> list[Sent]:
        """What was sent since the last call, without the beginning of the connection and acknowledged SETTINGS."""
        written = b"".join(self.transport.written).removeprefix(PREFACE)
        self.transport.written.clear()
        return [each for each in sent(written) if each.kind != SETTINGS and each != OPENED]

    async def _outcome(self, head: bytes, body: bytes | None, deadline: float) -> Answer | Failed:
        try:
            return await self.connection.exchange(head, body, deadline)
        except Failed as failure:
            return failure


OPENED = Sent(WINDOW_UPDATE, 0, 0, pack(">L", 2**30 - (2**16 - 1)))
"""The credit of the connection, which is sent at its beginning."""

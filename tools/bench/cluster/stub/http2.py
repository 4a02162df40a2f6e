"""HTTP/2 for the stub server: many requests at once on one connection, and as few steps as possible for each.

What the server allows is what an API server allows: 100 streams, and frames and windows of 256 KiB (Kubernetes 1.36,
secure_serving.go: Serve). A client that breaks the protocol loses its connection. Clients send no trailers.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import hpack

from hpad.kube.http import frames
from tools.bench.cluster.stub import header_block, http
from tools.bench.cluster.stub.http import DATE, Answer, Handler, Request

_STREAMS: Final = 100
_WINDOW: Final = 2**18
_SETTINGS: Final = {
    frames.MAX_CONCURRENT_STREAMS: _STREAMS,
    frames.INITIAL_WINDOW_SIZE: _WINDOW,
    frames.MAX_FRAME_SIZE: _WINDOW,
}
_CONNECTION_WINDOW: Final = _STREAMS * _WINDOW


class Connection(http.Connection):
    """Handles requests as soon as they are complete; what it sends in one pass of the event loop is sent together."""

    def __init__(self, handler: Handler, others: set[http.Connection] | None = None) -> None:
        super().__init__(handler, others)
        self.initial = frames.DEFAULT_WINDOW
        """Bytes that the client takes of each answer before it gives more credit."""
        self._window = self.initial
        self._frame = frames.DEFAULT_FRAME
        self._streams: dict[int, Stream] = {}
        self._blocked: dict[int, Stream] = {}
        """Streams that wait for credit."""
        self._out: list[bytes] = []
        self._rest = b""
        self._greeted = False
        self._heading: tuple[int, int, bytes] | None = None
        """Stream, flags and beginning of headers that go on in the next frame."""
        self._headers = hpack.Decoder()
        self._consumed = 0
        self._rare: dict[int, Callable[[int, int, bytes], None]] = {
            frames.CONTINUATION: self._continue,
            frames.WINDOW_UPDATE: self._credit,
            frames.RST_STREAM: self._reset,
            frames.SETTINGS: self._set,
            frames.PING: self._ping,
        }

    # What is sent.

    def write(self, data: bytes) -> None:
        """Sends bytes at the end of this pass of the event loop."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._flush)
        self._out.append(data)

    def _flush(self) -> None:
        if self._out and not self.transport.is_closing():
            self.transport.write(b"".join(self._out))
        self._out.clear()

    def _answer(self, stream: "Stream", answer: Answer) -> None:
        number, body = stream.number, answer.body
        block = _head(answer.status, answer.media_type, DATE.text())
        head = frames.frame(frames.HEADERS, frames.END_HEADERS, number, block)
        length = len(body)
        if length <= self._frame and length <= self._window and length <= stream.window:
            self._window -= length
            del self._streams[number]
            self.write(head + frames.frame(frames.DATA, frames.END_STREAM, number, body))
        else:
            self.write(head)
            stream.ending = True
            stream.unsent.append(memoryview(body))
            self.push(stream)

    def push(self, stream: "Stream") -> None:
        """Sends what the client has given credit for, of the pieces that a stream has."""
        unsent = stream.unsent
        while unsent:
            piece = unsent[0]
            size = max(0, min(len(piece), self._frame, self._window, stream.window))
            if not size and piece:
                self._blocked[stream.number] = stream
                return
            if size < len(piece):
                unsent[0] = piece[size:]
            else:
                unsent.popleft()
            self._window -= size
            stream.window -= size
            ending = frames.END_STREAM if stream.ending and not unsent else 0
            self.write(frames.frame(frames.DATA, ending, stream.number, bytes(piece[:size])))
        self._blocked.pop(stream.number, None)
        stream.empty.set()
        if stream.ending:
            self._streams.pop(stream.number, None)

    def _drop(self, stream: "Stream") -> None:
        self._streams.pop(stream.number, None)
        self._blocked.pop(stream.number, None)
        stream.drop()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        credit = frames.number(_CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
        self.write(frames.settings(_SETTINGS) + frames.frame(frames.WINDOW_UPDATE, 0, 0, credit))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for stream in list(self._streams.values()):
            self._drop(stream)

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        try:
            self._rest = self._read(data)
        except (frames.MalformedError, hpack.HPACKError):
            self.transport.abort()

    def _read(self, data: bytes) -> bytes:
        """Handles whole frames; returns the beginning of the next one. Raises MalformedError and HPACKError."""
        at, end = 0, len(data)
        if not self._greeted:
            if end < len(frames.PREFACE):
                return data
            if not data.startswith(frames.PREFACE):
                raise frames.MalformedError("no preface")
            self._greeted, at = True, len(frames.PREFACE)
        while end - at >= frames.HEAD_SIZE:
            high, low, kind, flags, stream = frames.read_head(data, at)
            length = high << 8 | low
            if length > _WINDOW:
                raise frames.MalformedError("a frame that is larger than allowed")
            begin = at + frames.HEAD_SIZE
            if begin + length > end:
                break
            at = begin + length
            self._received(kind, flags, stream & frames.LAST_STREAM, data[begin:at])
        return data[at:]

    # What is received.

    def _received(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if self._heading is not None and kind != frames.CONTINUATION:
            raise frames.MalformedError("headers that break off")
        if kind == frames.DATA:
            self._data(stream, flags, content)
        elif kind == frames.HEADERS:
            self._begin(stream, flags, frames.unpadded(content, flags, prioritized=True))
        elif (handle := self._rare.get(kind)) is not None:
            handle(stream, flags, content)

    def _begin(self, number: int, flags: int, block: bytes) -> None:
        if not flags & frames.END_HEADERS:
            self._heading = number, flags, block
            return
        self._heading = None
        stream = self._streams[number] = Stream(self, number)
        stream.head = header_block.plain(block) or header_block.stateful(self._headers, block)
        if flags & frames.END_STREAM:
            self._handle(stream)

    def _continue(self, number: int, flags: int, content: bytes) -> None:
        if self._heading is None or self._heading[0] != number:
            raise frames.MalformedError("headers without a beginning")
        _, before, begun = self._heading
        self._begin(number, before & frames.END_STREAM | flags & frames.END_HEADERS, begun + content)

    def _data(self, number: int, flags: int, content: bytes) -> None:
        length = len(content)
        self._consumed += length
        if self._consumed > _CONNECTION_WINDOW // 2:
            self.write(frames.frame(frames.WINDOW_UPDATE, 0, 0, frames.number(self._consumed)))
            self._consumed = 0
        stream = self._streams.get(number)
        if stream is None:  # given up
            return
        stream.body.append(frames.unpadded(content, flags) if flags & frames.PADDED else content)
        if flags & frames.END_STREAM:
            self._handle(stream)
        elif length:
            self.write(frames.frame(frames.WINDOW_UPDATE, 0, number, frames.number(length)))

    def _handle(self, stream: "Stream") -> None:
        method, path, query, head = stream.head
        answer = self._handler(stream, Request(method, path, query, b"".join(stream.body), head))
        if answer is not None:
            self._answer(stream, answer)

    def _credit(self, number: int, _: int, content: bytes) -> None:
        more = _number(content)
        if not number:
            self._window += more
            self._unblock()
        elif (stream := self._streams.get(number)) is not None:
            stream.window += more
            if stream.unsent:
                self.push(stream)

    def _unblock(self) -> None:
        for stream in list(self._blocked.values()):
            self.push(stream)

    def _reset(self, number: int, _: int, __: bytes) -> None:
        if (stream := self._streams.get(number)) is not None:
            self._drop(stream)

    def _set(self, _: int, flags: int, content: bytes) -> None:
        if flags & frames.ACK:
            return
        for name, value in frames.read_settings(content):
            if name == frames.MAX_FRAME_SIZE:
                self._frame = value
            elif name == frames.INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.window += value - self.initial
                self.initial = value
        self.write(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._unblock()

    def _ping(self, _: int, flags: int, content: bytes) -> None:
        if not flags & frames.ACK:
            self.write(frames.frame(frames.PING, frames.ACK, 0, content))


class Stream:
    """One request and its answer; the channel of that request."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.head: header_block.Head = ("", "", "", b"")
        self.body: list[bytes] = []
        """What has come of the body of the request."""
        self.window = connection.initial
        self.unsent: deque[bytes | memoryview] = deque()
        """Pieces of the answer, each for frames of its own, that wait for credit."""
        self.ending = False
        """Whether the answer ends with its last piece."""
        self.closed: Callable[[], None] | None = None
        self._connection = connection
        self._dropped = False

    @functools.cached_property
    def empty(self) -> asyncio.Event:
        """Set while nothing waits for credit."""
        return asyncio.Event()

    @property
    def gone(self) -> bool:
        return self._dropped or self._connection.transport.is_closing()

    def begin(self) -> None:
        block = _head(200, b"application/json", DATE.text())
        self._connection.write(frames.frame(frames.HEADERS, frames.END_HEADERS, self.number, block))
        self.empty.set()

    def send(self, pieces: Iterable[bytes]) -> None:
        self.empty.clear()
        self.unsent.extend(pieces)
        self._connection.push(self)

    def end(self) -> None:
        self.ending = True
        self.unsent.append(b"")
        self._connection.push(self)

    async def drained(self) -> None:
        await asyncio.sleep(0)  # until all of this pass is sent, so that the connection knows whether it is writable
        await self.empty.wait()
        await self._connection.writable.wait()

    def drop(self) -> None:
        """The client takes no more."""
        self._dropped = True
        self.unsent.clear()
        self.empty.set()
        if self.closed is not None:
            self.closed()


@functools.lru_cache(64)
def _head(status: int, media_type: bytes, date: bytes) -> bytes:
    """Encodes the headers of an answer."""
    return header_block.answer(status, {"content-type": media_type.decode(), "date": date.decode()})


def _number(content: bytes) -> int:
    if len(content) != 4:
        raise frames.MalformedError("a WINDOW_UPDATE frame of a wrong size")
    return int(frames.read_number(content)[0]) & frames.LARGEST_WINDOW

"""One HTTP/2 connection to the API server, which carries many requests at once."""

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol, cast

from hpad.kube import errors
from hpad.kube.http import frames
from hpad.kube.http.connection import EARLY_S, LARGEST_HEAD
from hpad.kube.http.exchange import Answer, Failed, TooLarge
from hpad.kube.http.inflight import Exchange, Incoming, Request
from hpad.kube.http.outgoing import Outgoing

WINDOW: Final = 2**22
"""Bytes that the server may send on one stream before it has to wait for more credit."""
_CONNECTION_WINDOW: Final = 2**30
_FRAME: Final = 2**16
_SETTINGS: Final = {
    frames.HEADER_TABLE_SIZE: 0,
    frames.ENABLE_PUSH: 0,
    frames.INITIAL_WINDOW_SIZE: WINDOW,
    frames.MAX_FRAME_SIZE: _FRAME,
}
_TOGETHER_S: Final = 0.005
"""How long nothing is read after a little was: each read of a TLS connection costs more than an answer does."""
_TRICKLE: Final = 2**14
"""Of more bytes than these, more are on their way."""
_STREAMS_UNKNOWN: Final = 2**31
"""A server that names no number allows any (RFC 9113, section 6.5.2)."""


class Owner(Protocol):
    """The sender that uses a connection."""

    server: str
    largest: int

    def lost(self, connection: "Multiplexed") -> None:
        """Called once, when the connection takes no further request."""
        ...


class Multiplexed(asyncio.Protocol):
    """Carries requests, each on a stream of its own; what goes wrong with one stream ends that request alone.

    Requests of one pass of the event loop are sent together, which is most of what this protocol saves.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.closed = False
        """Whether it takes no further request."""
        self.used = False
        """Whether it has carried an answer."""
        self.problem = ""
        """What was not HTTP/2, if that came before any answer."""
        self.opened_at = loop.time()
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done once the transport is closed."""
        self.ready: asyncio.Future[None] = loop.create_future()
        """Done once the server has said what it allows, or the connection is closed."""
        self.limit = _STREAMS_UNKNOWN
        """Requests at once that the server allows."""
        self.idle_since = self.opened_at
        """When the last request has ended; infinite while there are some."""
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport
        self._exchanges: dict[int, Exchange] = {}
        self._out = Outgoing(loop)
        self._next = 1
        self._rest = b""
        self._expected: int | None = frames.SETTINGS
        """The only kind of frame that may come next: SETTINGS come first, and nothing interrupts headers."""
        self._heading = 0, 0, b""
        """Stream, flags and beginning of headers that go on in the next frame."""
        self._leaving = ""
        """The error with which the server has announced to close the connection."""
        self._holds = 0
        self._consumed = 0
        self._heard = 0
        """Counts what was received, to tell whether anything came since a request was sent."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._others: dict[int, Callable[[int, int, bytes], None]] = {
            frames.CONTINUATION: self._continue,
            frames.WINDOW_UPDATE: self._credit,
            frames.RST_STREAM: self._reset,
            frames.SETTINGS: self._set,
            frames.PING: self._ping,
            frames.GOAWAY: self._go,
            frames.PUSH_PROMISE: self._push,
        }

    @property
    def busy(self) -> int:
        """The number of requests and streams in progress."""
        return len(self._exchanges)

    async def exchange(self, head: bytes, body: bytes | None, deadline: float) -> Answer:
        """Sends a request; returns its answer. Raises Failed, at `deadline` of the loop's time at the latest."""
        return await self._answer(Request(self._loop, deadline), head, body)

    async def stream(self, head: bytes, silence: float) -> Incoming:
        """Sends a GET whose answer is read as it arrives; returns it with its headers. Raises Failed.

        It occupies the connection until it has ended, or is dropped.
        """
        incoming = Incoming(self._loop, self, silence)
        await self._answer(incoming, head, None)
        return incoming

    def drop(self, stream: int) -> None:
        """Gives up a request or stream in progress."""
        if stream in self._exchanges:
            self._cancel(stream, None)

    def acknowledge(self, stream: int) -> None:
        """Lets the server send more of a stream, as all that it sent has been read."""
        exchange = self._exchanges.get(stream)
        if exchange is not None and exchange.owed > WINDOW // 2:
            self._give(stream, exchange)

    async def _answer(self, exchange: Exchange, head: bytes, body: bytes | None) -> Answer:
        if self.closed:
            raise Failed(*errors.interrupted(self._owner.server, None), refused=True)
        exchange.heard_before = self._heard
        if self._next == 1:
            head = frames.NO_TABLE + head
        stream, self._next = self._next, self._next + 2
        self._exchanges[stream], exchange.stream = exchange, stream
        self.idle_since = math.inf
        if exchange.deadline < self._timer_at:
            self._arm(exchange.deadline)
        self._out.request(exchange, head, body)
        if self._next > frames.LAST_STREAM:
            self._leave()
        try:
            outcome = await exchange.waiter
        except asyncio.CancelledError:
            self.drop(stream)
            raise
        if isinstance(outcome, Failed):
            raise outcome
        return outcome

    def close(self, failure: Failed | None = None) -> None:
        """Closes the connection when what is in progress has ended; with a failure, it ends with that at once."""
        self._leave()
        if failure is not None:
            for stream in list(self._exchanges):
                self._settle(stream, failure)
        self._close_if_idle()

    def abort(self, failure: Failed | None = None) -> None:
        """Closes the connection at once; the requests in progress raise `failure`, or that it was interrupted."""
        self._leave()
        for stream in list(self._exchanges):
            self._settle(stream, failure if failure is not None else self._broken(stream, None))
        self._disarm()
        self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._out.transport = cast("asyncio.Transport", transport)
        credit = frames.number(_CONNECTION_WINDOW - frames.DEFAULT_WINDOW)
        opening = frames.settings(_SETTINGS), frames.frame(frames.WINDOW_UPDATE, 0, 0, credit)
        self._transport.write(b"".join((frames.PREFACE, *opening)))

    def data_received(self, data: bytes) -> None:
        self._heard += 1
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            while end - at >= frames.HEAD_SIZE:
                high, low, kind, flags, stream = frames.read_head(data, at)
                length = high << 8 | low
                if length > _FRAME:
                    raise frames.MalformedError("a frame that is larger than allowed")
                begin = at + frames.HEAD_SIZE
                if begin + length > end:
                    break
                at = begin + length
                self._received(kind, flags, stream & frames.LAST_STREAM, data[begin:at])
                if self.gone.done() or self._transport.is_closing():
                    return
        except frames.MalformedError as error:
            self.problem = "" if self.used else str(error)
            self.abort(Failed(*errors.unreadable(self._owner.server, f"not HTTP/2: {error}")))
            return
        self._rest = data[at:]
        if self._exchanges and len(data) < _TRICKLE and not self._holds:
            self._wait_for_more()

    def _wait_for_more(self) -> None:
        """Reads nothing for a moment, so that answers that arrive close together are read at once."""
        self._holds += 1
        self._transport.pause_reading()
        self._loop.call_later(_TOGETHER_S, self._read_on)

    def _read_on(self) -> None:
        self._holds -= 1
        if not self._holds and not self._transport.is_closing():
            self._transport.resume_reading()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self.gone.done():
            self.gone.set_result(None)

    # What is received.

    def _received(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if self._expected is not None and kind != self._expected:
            first = self._expected == frames.SETTINGS
            raise frames.MalformedError("no SETTINGS at the beginning" if first else "headers that break off")
        if kind == frames.DATA:
            self._data(stream, flags, content)
        elif kind == frames.HEADERS:
            self._head(stream, flags, frames.unpadded(content, flags, prioritized=True))
        elif (handle := self._others.get(kind)) is not None:
            handle(stream, flags, content)

    def _data(self, stream: int, flags: int, content: bytes) -> None:
        self._consumed += len(content)
        if self._consumed > _CONNECTION_WINDOW // 2:
            self._out.write(frames.frame(frames.WINDOW_UPDATE, 0, 0, frames.number(self._consumed)))
            self._consumed = 0
        exchange = self._found(stream)
        if exchange is None:
            return
        if exchange.status < 200:
            raise frames.MalformedError("a body without headers")
        exchange.owed += len(content)
        if exchange.owed > WINDOW:
            raise frames.MalformedError("more of a body than allowed")
        exchange.heard_before = self._heard
        if flags & frames.PADDED:
            content = frames.unpadded(content, flags)
        at_once = not content or exchange.take(content)
        if exchange.size > self._owner.largest:
            self._cancel(stream, TooLarge(exchange.status))
        elif flags & frames.END_STREAM:
            self._finish(stream, exchange)
        elif at_once and exchange.owed > WINDOW // 2:
            self._give(stream, exchange)

    def _found(self, stream: int) -> Exchange | None:
        """Returns None for a stream that has ended: the server did not know yet. Raises MalformedError."""
        exchange = self._exchanges.get(stream)
        if exchange is None and not (stream & 1 and stream < self._next):
            raise frames.MalformedError("a frame of a stream that was never opened")
        return exchange

    def _give(self, stream: int, exchange: Exchange) -> None:
        self._out.write(frames.frame(frames.WINDOW_UPDATE, 0, stream, frames.number(exchange.owed)))
        exchange.owed = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Reads nothing in this context; what the server sends waits in the socket."""
        self._holds += 1
        if self._holds == 1 and not self._transport.is_closing():
            self._transport.pause_reading()
        try:
            yield
        finally:
            self._read_on()

    def _continue(self, stream: int, flags: int, content: bytes) -> None:
        begins, before, begun = self._heading
        if self._expected is None or begins != stream:
            raise frames.MalformedError("headers without a beginning")
        self._head(stream, before & frames.END_STREAM | flags & frames.END_HEADERS, begun + content)

    def _ping(self, stream: int, flags: int, content: bytes) -> None:
        if stream or len(content) != 8:
            raise frames.MalformedError("a PING frame of a wrong size or stream")
        if not flags & frames.ACK:
            self._out.write(frames.frame(frames.PING, frames.ACK, 0, content))

    def _push(self, _: int, __: int, ___: bytes) -> None:
        raise frames.MalformedError("a PUSH_PROMISE")

    def _head(self, stream: int, flags: int, block: bytes) -> None:
        if len(block) > LARGEST_HEAD:
            raise frames.MalformedError("headers that are too large")
        if not flags & frames.END_HEADERS:
            self._expected, self._heading = frames.CONTINUATION, (stream, flags, block)
            return
        self._expected = None
        exchange = self._found(stream)
        if exchange is None:
            return
        if exchange.status < 200:  # the first ones, or those after an informational answer; later ones are trailers
            exchange.status, exchange.block = frames.status(block), block
            exchange.heard_before = self._heard
            if exchange.status >= 200:
                exchange.begin()
        if flags & frames.END_STREAM:
            self._finish(stream, exchange)

    def _finish(self, stream: int, exchange: Exchange) -> None:
        if exchange.status < 200:
            raise frames.MalformedError("an informational answer at the end")
        self.used = True
        if exchange.unsent:  # the server has answered before it had the whole body
            self._cancel(stream, None)
        else:
            self._settle(stream, None)

    def _credit(self, stream: int, _: int, content: bytes) -> None:
        if len(content) != 4:
            raise frames.MalformedError("a WINDOW_UPDATE frame of a wrong size")
        more = frames.read_number(content)[0] & frames.LARGEST_WINDOW
        self._out.credit(self._found(stream) if stream else None, more, whole=not stream)

    def _reset(self, stream: int, _: int, content: bytes) -> None:
        if len(content) != 4:
            raise frames.MalformedError("a RST_STREAM frame of a wrong size")
        exchange = self._found(stream)
        if exchange is None:
            return
        code = frames.read_number(content)[0]
        self._check(code)
        broken = errors.interrupted(self._owner.server, frames.error_text(code))
        self._settle(stream, Failed(*broken, exchange.status, refused=code == frames.REFUSED_STREAM))

    def _set(self, stream: int, flags: int, content: bytes) -> None:
        first = self._expected == frames.SETTINGS
        if stream or (flags & frames.ACK and (content or first)):
            raise frames.MalformedError("a SETTINGS frame of a wrong size, stream or time")
        self._expected = None
        if flags & frames.ACK:
            return
        for name, value in frames.read_settings(content):
            if name == frames.MAX_CONCURRENT_STREAMS:
                self.limit = max(value, 1)
            elif name == frames.MAX_FRAME_SIZE:
                self._out.largest = min(value, _FRAME)
            elif name == frames.INITIAL_WINDOW_SIZE:
                self._out.resize(value, self._exchanges.values())
        self._out.write(frames.frame(frames.SETTINGS, frames.ACK, 0))
        self._out.unblock()
        if not self.ready.done():
            self.ready.set_result(None)

    def _check(self, code: int) -> None:
        """Takes the errors that ask for HTTP/1.1 for what they are, unless HTTP/2 has worked before."""
        if code in {frames.INADEQUATE_SECURITY, frames.HTTP_1_1_REQUIRED} and not self.used:
            raise frames.MalformedError(frames.error_text(code))

    def _go(self, stream: int, __: int, content: bytes) -> None:
        """The server takes no request after the last one that it names: the others can be sent again."""
        if stream or len(content) < 8:
            raise frames.MalformedError("a GOAWAY frame of a wrong size or stream")
        last = frames.read_number(content)[0] & frames.LAST_STREAM
        code = frames.read_number(content, 4)[0]
        self._check(code)
        if code != frames.NO_ERROR:
            self._leaving = frames.error_text(code)
        self._leave()
        for stream in [each for each in self._exchanges if each > last]:
            self._settle(stream, Failed(*errors.interrupted(self._owner.server, self._leaving or None), refused=True))
        self._close_if_idle()

    # The end of an exchange, and of the connection.

    def _cancel(self, stream: int, failure: Failed | None) -> None:
        self._out.write(frames.frame(frames.RST_STREAM, 0, stream, frames.number(frames.CANCEL)))
        self._settle(stream, failure)

    def _settle(self, stream: int, failure: Failed | None) -> None:
        self._exchanges.pop(stream).end(failure)
        if not self._exchanges:
            self.idle_since = self._loop.time()
            if self.closed:
                self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._exchanges:
            self._out.flush()
            self._transport.close()

    def _broken(self, stream: int, error: Exception | None) -> Failed:
        exchange = self._exchanges[stream]
        cause = error or self._leaving or (EOFError() if exchange.status else None)
        broken = errors.interrupted(self._owner.server, cause)
        return Failed(*broken, exchange.status, unheard=not exchange.status)

    def _end(self, error: Exception | None) -> None:
        self._leave()
        self._disarm()
        for stream in list(self._exchanges):
            self._settle(stream, self._broken(stream, error))

    def _leave(self) -> None:
        if not self.closed:
            self.closed = True
            self._owner.lost(self)
            if not self.ready.done():
                self.ready.set_result(None)

    # One timer for all requests: it is moved only when it fires, or for an earlier deadline.

    def _arm(self, deadline: float) -> None:
        self._disarm()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._time_out)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer, self._timer_at = None, math.inf
        late = self._loop.time() + EARLY_S
        for stream, exchange in list(self._exchanges.items()):
            if exchange.deadline > late:
                self._timer_at = min(self._timer_at, exchange.deadline)
                continue
            failure = Failed(*errors.unreachable(self._owner.server, TimeoutError()), exchange.status)
            if exchange.heard_before == self._heard:  # the whole connection is dead
                self._settle(stream, failure)
                self.abort()
                return
            self._cancel(stream, failure)
        if self._timer_at < math.inf:
            self._arm(self._timer_at)

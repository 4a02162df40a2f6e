"""One connection to the API server: sends a request, and parses the answer as it arrives."""

import asyncio
import math
from typing import Final, Protocol, cast

import httptools

from hpad.kube import errors
from hpad.kube.http.exchange import Answer, Failed, TooLarge

LARGEST_HEAD: Final = 64 * 2**10
"""The bytes that an answer may send without progress of its body: its head, 1xx answers, and trailers."""
EARLY_S: Final = 0.002
"""Seconds by which a timer may fire early: uvloop rounds to whole milliseconds."""
_CONTENT_LENGTH: Final = b"content-length"
_TRANSFER_ENCODING: Final = b"transfer-encoding"


class Owner(Protocol):
    """The pool of a connection."""

    server: str
    largest: int

    def release(self, connection: "Connection") -> None:
        """Called when an answer is complete and the connection can carry another request."""
        ...

    def lost(self, connection: "Connection") -> None:
        """Called once, when the connection can carry no further request."""
        ...


class Connection(asyncio.Protocol):
    """Carries one request at a time.

    It is closed after bytes that belong to no request, and after anything but a complete answer: a timeout or a
    cancellation leaves an answer under way that must not become the answer to the next request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self.idle_since = 0.0
        self.used = False
        """Whether it has carried an answer: a server closes such a connection when it was idle for long."""
        self.closed = False
        self.gone: asyncio.Future[None] = loop.create_future()
        """Done once the transport is closed, which under TLS is later."""
        self._loop = loop
        self._owner = owner
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[Answer | Failed] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._fields: dict[bytes, bytes] = {}
        self.on_header = self._fields.__setitem__  # called by the parser, several times per answer
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        self._start()

    def _start(self) -> None:
        """Prepares for the next answer."""
        self._heard = self._spoiled = self._keep = False
        self._status = 0
        self._body: bytes | bytearray = b""
        self._counted = self._idle_bytes = 0
        self._answer: Answer | None = None
        self._fields.clear()

    async def exchange(self, request: bytes, deadline: float) -> Answer:
        """Sends the request; returns the answer. Raises Failed, at `deadline` of the loop's time at the latest."""
        if self.closed:
            raise Failed(*errors.interrupted(self._owner.server, None), unheard=True)
        waiter: asyncio.Future[Answer | Failed] = self._loop.create_future()
        self._waiter = waiter
        self._deadline = deadline
        if deadline < self._timer_at:
            self._arm(deadline)
        self._transport.write(request)
        try:
            outcome = await waiter
        except asyncio.CancelledError:
            if self._waiter is waiter:
                self._waiter = None
                self.abort()
            raise
        if isinstance(outcome, Failed):
            raise outcome
        return outcome

    def close(self, failure: Failed | None = None) -> None:
        """Closes the connection, under TLS with a close_notify; `failure` is raised by the exchange in progress."""
        if self._waiter is not None:
            self.abort(failure)
            return
        self._leave()
        self._transport.close()

    def abort(self, failure: Failed | None = None) -> None:
        """Closes the connection at once; `failure` is raised by the exchange in progress."""
        self._settle(failure)
        self._leave()
        self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are of classes of their own

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._parser is None:
            self.abort()  # bytes without a request
            return
        self._heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if self._answer is None:
                self._refuse("not HTTP/1.1")
                return
            self._spoiled = True
        if self._answer is not None:
            self._finish(self._answer)
        else:
            self._check(len(data))

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self.gone.done():
            self.gone.set_result(None)

    # Callbacks of the parser, besides `on_header`.

    def on_message_begin(self) -> None:
        if self._answer is not None:
            self._spoiled = True

    def on_headers_complete(self) -> None:
        if self._parser is not None:
            self._status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        if not self._body:
            self._body = part
        elif isinstance(self._body, bytearray):
            self._body += part
        else:
            self._body = bytearray(self._body) + part

    def on_message_complete(self) -> None:
        if self._answer is not None or self._parser is None:
            return
        if self._status < 200:  # informational: the answer follows
            self._status = 0
            self._fields.clear()
            return
        self._keep = self._parser.should_keep_alive()
        self._answer = Answer(self._status, self._fields.copy(), bytes(self._body))

    # The end of an exchange, and of the connection.

    def _finish(self, answer: Answer) -> None:
        reusable = self._keep and not self._spoiled and not self.closed
        # Bytes of a request that are still to be sent would be taken for the beginning of the next one.
        reusable = reusable and not self._transport.get_write_buffer_size()
        self._settle(TooLarge(answer.status) if len(answer.body) > self._owner.largest else answer)
        self._start()
        self.used = True
        if reusable:
            self._owner.release(self)
        elif not self.closed:
            self.close()

    def _check(self, received: int) -> None:
        """Bounds the memory of an answer that is under way."""
        size = len(self._body)
        if size != self._counted:
            self._counted, self._idle_bytes = size, 0
        else:
            self._idle_bytes += received
        if max(size, self._announced()) > self._owner.largest:
            self.abort(TooLarge(self._status))
        elif self._idle_bytes > LARGEST_HEAD:
            self._refuse("its headers are too large")

    def _announced(self) -> int:
        return int(self._field(_CONTENT_LENGTH) or 0) if self._status else 0

    def _field(self, name: bytes) -> bytes | None:
        return next((value for key, value in self._fields.items() if key.lower() == name), None)

    def _ends_with_connection(self) -> bool:
        """Returns whether the end of the connection is the end of the answer (RFC 9112, section 6.3)."""
        coding = self._field(_TRANSFER_ENCODING)
        if coding is not None:
            return not coding.rstrip().lower().endswith(b"chunked")
        return self._status != 0 and self._field(_CONTENT_LENGTH) is None

    def _end(self, error: Exception | None) -> None:
        """The server, or the network, has closed the connection."""
        if self._waiter is not None:
            if error is None and self._status and self._ends_with_connection():
                self.closed = True
                self._finish(Answer(self._status, self._fields.copy(), bytes(self._body)))
            else:
                self._settle(self._broken(error))
        self._leave()

    def _broken(self, error: Exception | None) -> Failed:
        cause = error if error is not None or not self._heard else EOFError()
        return Failed(*errors.interrupted(self._owner.server, cause), self._status, unheard=not self._heard)

    def _refuse(self, problem: str) -> None:
        self.abort(Failed(*errors.unreadable(self._owner.server, problem), self._status))

    def _settle(self, outcome: Answer | Failed | None) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and outcome is not None and not waiter.done():
            waiter.set_result(outcome)

    def _leave(self) -> None:
        """Leaves the pool; breaks the reference cycles with the parser and the timer."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._parser is not None:
            self._parser = None
            self._owner.lost(self)

    # One timer for all requests of a connection: it is moved only when it fires, or for an earlier deadline.

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._time_out)

    def _time_out(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._waiter is None:
            return
        if self._deadline - self._loop.time() > EARLY_S:
            self._arm(self._deadline)
        else:
            self.abort(Failed(*errors.unreachable(self._owner.server, TimeoutError()), self._status))

"""One connection of HTTP/1.1, which carries one request after the other."""

import asyncio
from typing import Final, cast

import aiohttp
import httptools

from hpad.kube import errors
from hpad.kube.exchange import AnswerTooLarge, Failed, HttpAnswer, abort

_HEAD: Final = 64 * 2**10
"""Bytes that an answer may have before its body, and beside it: headers, sizes of chunks, 1xx answers."""


class Unanswered(Failed):
    """The connection ended before the answer began."""


class KeptConnection(asyncio.Protocol):
    """Carries one request at a time. It ends with anything but a complete answer, and with bytes beside one."""

    def __init__(self, server: str, largest: int) -> None:
        self.usable = False
        """Whether it can carry another request."""
        self.used_at = 0.0
        self._server = server
        self._largest = largest
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[HttpAnswer] | None = None
        """For the answer, while there is none."""
        self._sent = False
        """Whether the request has left: what arrives before is no answer to it."""
        self._reading = _AnswerReader()
        self._ends = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def exchange(self, message: bytes, ends: float) -> HttpAnswer:
        """Sends a request and returns the answer. Raises Failed, and is closed after it, as after a cancellation."""
        loop = asyncio.get_running_loop()
        self.usable = self._sent = False
        self._reading.begin()
        self._waiter = loop.create_future()
        self._ends = ends
        if self._timer is None or ends < self._timer.when():
            self._set_timer()
        try:
            loop.call_soon(self._send, message)
            answer = await self._waiter
        except BaseException:
            self.abort()
            raise
        self.used_at = loop.time()
        return answer

    def abort(self) -> None:
        self.usable = False
        abort(self._transport)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._ends, self._on_timer)

    def _on_timer(self) -> None:
        """Ends an exchange in time. The timer of one serves those that follow: nearly all end long before."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if asyncio.get_running_loop().time() < self._ends:
            self._set_timer()
        else:
            self._time_out()

    def _send(self, message: bytes) -> None:
        """Called in the next round of the loop, so that the writes of a batch leave together: fewer wake-ups."""
        if self._waiter is None or self._waiter.done():  # cancelled, or lost
            return
        if asyncio.get_running_loop().time() >= self._ends:  # this process stood still
            self._time_out()
        else:
            self._sent = True
            self._transport.write(message)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are of classes of their own

    def data_received(self, data: bytes) -> None:
        if not self._sent or self._waiter is None or self._waiter.done():
            self.abort()
            return
        reading = self._reading
        reading.feed(data)
        if reading.answer is not None:
            self.usable = reading.ends_well and not self._transport.get_write_buffer_size()
            self._waiter.set_result(reading.answer)
        elif reading.problem:
            self._fail(Failed(errors.DISCONNECTED, f"the answer of {self._server} cannot be read: {reading.problem}"))
        elif reading.received > self._largest + _HEAD:
            self._fail(AnswerTooLarge(reading.status))

    def eof_received(self) -> None:
        self.usable = False
        self._reading.end()
        if self._reading.answer is not None and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(self._reading.answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        reading = self._reading
        if reading.received:
            broken = aiohttp.ClientPayloadError()
            self._fail(Failed(*errors.explained(self._server, broken), reading.status))
        else:
            self._fail(Unanswered(*errors.explained(self._server, exc or aiohttp.ServerDisconnectedError())))

    def _time_out(self) -> None:
        self._fail(Failed(*errors.unreachable(self._server, TimeoutError())))

    def _fail(self, failure: Failed) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)


class _AnswerReader:
    """Reads the answers on one connection, one after the other. Answers of 1xx are passed over, and so are trailers."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._clear()
        self.begin()

    def begin(self) -> None:
        """Prepares for the next answer."""
        self.answer: HttpAnswer | None = None
        self.problem = ""
        self.status = 0
        self.received = 0
        """Bytes of the answer, complete or not."""
        self.ends_well = False
        """Whether the server keeps the connection, and nothing has followed the answer."""

    def feed(self, data: bytes) -> None:
        self.received += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.problem = str(error)
            self.ends_well = False
        if self.status < 200 and self.received > _HEAD:
            self.problem = "its headers are too large"

    def end(self) -> None:
        """Completes an answer without a length, which ends with the connection. Proxies of HTTP/1.0 send such."""
        if not {name.lower() for name, _ in self._headers} & {b"content-length", b"transfer-encoding"}:
            self.on_message_complete()

    def _clear(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []

    # Called by the parser.

    def on_message_begin(self) -> None:
        self.ends_well = False
        if self.answer is None:
            self.status = 0
        self._clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.answer is None:
            self.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self.answer is None and self.status >= 200:
            self.answer = HttpAnswer(self.status, self._headers, b"".join(self._parts))
            self.ends_well = self._parser.should_keep_alive()

"""Writes to an API server, over connections of HTTP/1.1 that are kept.

Nearly every reconcile writes a status, and a request by aiohttp takes two to three times the CPU of one here: a fifth
of a reconcile. httptools parses the answers; reads, streams and proxies are aiohttp's (`hpad/kube/session.py`).
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import urlsplit

import aiohttp
import httptools
from multidict import CIMultiDict

from hpad.kube import errors
from hpad.kube.connector import Connector
from hpad.kube.exchange import KEEP_ALIVE_S, AnswerTooLarge, Failed, HttpAnswer, HttpRequest, abort

_HEAD: Final = 64 * 2**10
"""Bytes that an answer may have before its body, and beside it: headers, sizes of chunks, 1xx answers."""
_ENDS_LINE: Final = re.compile(r"[\r\n\0]").search
_REPEATED: Final = frozenset({"PUT", "DELETE"})
"""Methods of requests that may be sent again although the server may have received them."""


class _Unheard(Failed):
    """The connection ended before the answer began."""


class KeptConnections:
    """Sends requests with a body to one server. A connection carries one at a time, and is used again.

    `base` is the URL of the server, escaped; `headers` are those of all requests; an answer may have `largest` bytes.
    """

    def __init__(self, connector: Connector, base: str, headers: Mapping[str, str], largest: int) -> None:
        parts = urlsplit(base)
        self._connector = connector
        self._server = connector.server
        self._path = parts.path
        self._headers = _lines({"Host": parts.netloc, **headers})
        self._largest = largest
        self._idle: list[_Connection] = []
        """In the order of their last use."""
        self._busy: set[_Connection] = set()
        self._closed = False

    async def send(self, request: HttpRequest, ends: float) -> HttpAnswer:
        """Returns the answer, with any status. Raises Failed, at the latest at `ends`, a time of the event loop.

        Nothing of the request is sent after that. A PUT or DELETE is sent again, once, over a new connection, if the
        first one ends before the answer begins.
        """
        body = request.body or b""
        head = f"{request.method} {self._path}{request.target} HTTP/1.1\r\n{self._headers}{_lines(request.headers)}"
        message = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            return await self._exchanged(self._kept() or await self._connected(ends), message, ends)
        except _Unheard:
            if self._closed or request.method not in _REPEATED:
                raise
        return await self._exchanged(await self._connected(ends), message, ends)

    def close(self) -> None:
        """Closes all connections; what is in progress fails."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    def _kept(self) -> "_Connection | None":
        """Returns the connection that was used last, if one can be used again."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.used_at > oldest:
                return connection
            connection.abort()
        return None

    async def _connected(self, ends: float) -> "_Connection":
        """Opens a connection. Raises Failed."""
        return await self._connector.connect(lambda: _Connection(self._server, self._largest), ends)

    async def _exchanged(self, connection: "_Connection", message: bytes, ends: float) -> HttpAnswer:
        if self._closed:
            connection.abort()
            raise Failed(*errors.explained(self._server, aiohttp.ServerDisconnectedError()))
        self._busy.add(connection)
        try:
            answer = await connection.exchange(message, ends)
        finally:
            self._busy.remove(connection)
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer


class _Connection(asyncio.Protocol):
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
        self._reading = _Reading()

    async def exchange(self, message: bytes, ends: float) -> HttpAnswer:
        """Sends a request and returns the answer. Raises Failed, and is closed after it, as after a cancellation."""
        loop = asyncio.get_running_loop()
        self.usable = False
        self._reading.begin()
        self._waiter = loop.create_future()
        timer = loop.call_at(ends, self._time_out)
        try:
            if loop.time() >= ends:  # this process stood still while it connected
                self._time_out()
            else:
                self._transport.write(message)
            answer = await self._waiter
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
        self.used_at = loop.time()
        return answer

    def abort(self) -> None:
        self.usable = False
        abort(self._transport)

    # Called by the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are of classes of their own

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
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
            self._fail(_Unheard(*errors.explained(self._server, exc or aiohttp.ServerDisconnectedError())))

    def _time_out(self) -> None:
        self._fail(Failed(*errors.unreachable(self._server, TimeoutError())))

    def _fail(self, failure: Failed) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(failure)


class _Reading:
    """Reads the answers on one connection, one after the other. Answers of 1xx are passed over, and so are trailers."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
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
        self._clear()

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
        if "Content-Length" not in self._headers and "Transfer-Encoding" not in self._headers:
            self.on_message_complete()

    def _clear(self) -> None:
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._parts: list[bytes] = []

    # Called by the parser.

    def on_message_begin(self) -> None:
        self.ends_well = False
        if self.answer is None:
            self.status = 0
        self._clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:
            self._headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        if self.answer is None:
            self.status = self._parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self._parts.append(part)

    def on_message_complete(self) -> None:
        if self.answer is None and self.status >= 200:
            self.answer = HttpAnswer(self.status, self._headers, b"".join(self._parts))
            self.ends_well = self._parser.should_keep_alive()


def _lines(headers: Mapping[str, str]) -> str:
    """Returns the headers as they are sent. Raises ValueError for a value that would begin another one."""
    for name, value in headers.items():
        if _ENDS_LINE(value):
            raise ValueError(f"the value of the header {name} contains a line break or a zero byte")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])

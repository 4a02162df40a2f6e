"""HTTP requests and streams to one API server, with limits of time, size and number."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import yarl

from hpad import adapter
from hpad.kube import errors
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.connector import Connector
from hpad.kube.exchange import CONNECT_S, KEEP_ALIVE_S, AnswerTooLarge, Failed, HttpAnswer, HttpRequest, abort
from hpad.kube.kept import KeptConnections

SAFE: Final = "/%:@!$&'()*+,;=~"
"""Characters of a path that need no escape, and the one of escapes."""
AT_ONCE: Final = 32
"""Requests in progress at once; streams are not counted."""
_EARLY_S: Final = 0.01
"""Seconds by which a timer may fire early: uvloop rounds to whole milliseconds."""
_UNHEARD: Final = frozenset({errors.TIMEOUT, errors.DISCONNECTED})
"""Reasons of failures after which the server of a connection may be gone."""

Allowed = Callable[[], float | None]
"""Called right before a write connects or is sent; NotAllowed prevents the write and reaches the caller.

Returns for how many seconds the write may be in progress (None: without a limit of its own). Before, a request may have
waited for the limiter, for its turn, or for a stopped process to continue.
"""


class NotAllowed(Exception):
    """What `Allowed` raises: this process must not send the write."""


class HttpStream:
    """An answer that may go on for minutes, read as it arrives."""

    def __init__(self, server: str, answer: aiohttp.ClientResponse) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._server = server
        self._answer = answer

    async def read(self) -> bytes:
        """Returns what has arrived since, or waits for it; b"" at the end.

        Raises Failed if the connection breaks, or if nothing comes for the stream's `silence`.
        """
        try:
            return await adapter.read_part(self._answer)
        except errors.FOREIGN as error:
            raise Failed(*errors.explained(self._server, error), self.status) from error

    async def hold(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Reads nothing from the connection during `wait`, so that what arrives meanwhile is read at once."""
        connection = self._answer.connection
        transport = None if connection is None else connection.transport
        with contextlib.suppress(RuntimeError):  # it is closed
            if transport is not None:
                transport.pause_reading()
        await wait()
        with contextlib.suppress(RuntimeError):
            if transport is not None:
                transport.resume_reading()


async def whole(stream: HttpStream, largest: int) -> bytes:
    """Reads a stream to its end. Raises AnswerTooLarge."""
    parts, size = [], 0
    while part := await stream.read():
        size += len(part)
        if size > largest:
            raise AnswerTooLarge(stream.status)
        parts.append(part)
    return b"".join(parts)


class _Response(aiohttp.ClientResponse):
    """The answer to one request, and to no other."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Waits for the headers. What arrived before the request is no answer to it, as aiohttp would take it."""
        if connection.protocol is not None and connection.protocol.should_close:
            raise aiohttp.ServerDisconnectedError
        return await super().start(connection)

    def close(self) -> None:
        connection = self.connection
        transport = None if connection is None else connection.transport
        if transport is not None:
            abort(transport)
        super().close()


class _Connections:
    """What requests and streams are sent over; `kept` is None where all go by aiohttp, through a proxy.

    `users` is the number of requests and streams in progress.
    """

    def __init__(self, session: aiohttp.ClientSession, kept: KeptConnections | None) -> None:
        self.session = session
        self.kept = kept
        self.users = 0

    async def aclose(self) -> None:
        if self.kept is not None:
            self.kept.close()
        await self.session.close()


class Session:
    """Sends requests and streams to the server of a ClusterConfig. Follows no redirects.

    A GET, PUT or DELETE is repeated once, within its time, if the connection ends before an answer. After a request
    that got none, later ones use new connections: the others may lead to a server that is gone, too.
    """

    def __init__(self, config: ClusterConfig, agent: str, largest: int) -> None:
        self._server = config.server
        self._base = _base(config.server)
        self._tls_name = (config.tls_server_name or "").rstrip(".") or None  # certificates have names without a dot
        self._config = config
        self._agent = agent
        self._largest = largest
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._current: _Connections | None = None
        self._earlier: list[_Connections] = []
        """Those over which something may be in progress."""
        self._closed = False

    def renew(self) -> None:
        """Sends later requests and streams over new connections, for which the client may have another certificate.

        What is in progress keeps its connection, which is closed after it.
        """
        if self._current is not None:
            self._earlier.append(self._current)
            self._current = None

    async def aclose(self) -> None:
        """Closes all connections; what is in progress fails, and so do later requests."""
        self._closed = True
        self.renew()
        for connections in tuple(self._earlier):
            await connections.aclose()
        await asyncio.sleep(0)  # noqa: TID251  # aborted connections are closed in the next round of the loop

    async def send(self, request: HttpRequest, timeout: float, allowed: Allowed | None = None) -> HttpAnswer:
        """Returns the answer, with any status.

        Waits for its turn; calls `allowed` for a request with a body, and hands it over. `timeout` bounds everything,
        in seconds. Raises Failed without a complete answer, and what `allowed` raised. A request that ends early leaves
        nothing behind that is sent later.
        """
        loop = asyncio.get_running_loop()
        ends = loop.time() + timeout
        if self._turns.locked():
            await self._wait(ends)
        else:
            await self._turns.acquire()
        try:
            permitted = None if allowed is None or request.body is None else allowed()
            until = ends if permitted is None else min(ends, loop.time() + permitted)
            try:
                return await self._answered(request, until)
            except Failed as failure:
                limited = until < ends and failure.reason == errors.TIMEOUT
                if not limited or loop.time() < until - _EARLY_S:  # as one to connect
                    raise
                raise self._outlasted(failure) from failure
        finally:
            self._turns.release()

    @asynccontextmanager
    async def stream(self, target: str, headers: Mapping[str, str], silence: float) -> AsyncIterator[HttpStream]:
        """Starts a long GET. It has no size limit and no end, but fails after `silence` seconds without a byte.

        Entering it waits for the headers of the answer, with any status; raises Failed.
        """
        limits = aiohttp.ClientTimeout(connect=silence, sock_connect=CONNECT_S, sock_read=silence)
        connections = self._entered()
        try:
            answer = await self._requested(connections.session, HttpRequest("GET", target, headers), limits)
            try:
                yield HttpStream(self._server, answer)
            finally:
                answer.close()
        except Failed as failure:
            self._doubt(connections, failure)
            raise
        finally:
            connections.users -= 1
            await self._close_unused()

    async def _wait(self, ends: float) -> None:
        """Waits until fewer than AT_ONCE requests are in progress. Raises Failed."""
        try:
            async with asyncio.timeout_at(ends):
                await self._turns.acquire()
        except TimeoutError as error:
            raise Failed(*errors.unreachable(self._server, error)) from None

    async def _answered(self, request: HttpRequest, ends: float) -> HttpAnswer:
        seconds = ends - asyncio.get_running_loop().time()
        if seconds <= 0.0:  # which aiohttp takes for no limit
            raise Failed(*errors.unreachable(self._server, TimeoutError()))
        connections = self._entered()
        try:
            if request.body is None or connections.kept is None:
                return await self._read(connections.session, request, seconds)
            return await connections.kept.send(request, ends)
        except (Failed, asyncio.CancelledError) as error:  # callers have time limits of their own
            self._doubt(connections, error)
            raise
        finally:
            connections.users -= 1
            if self._earlier:
                await self._close_unused()

    async def _read(self, session: aiohttp.ClientSession, request: HttpRequest, seconds: float) -> HttpAnswer:
        # aiohttp would round times of more than `ceil_threshold` up to whole seconds.
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_S, ceil_threshold=math.inf)
        answer = await self._requested(session, request, limits)
        try:
            return HttpAnswer(answer.status, answer.raw_headers, await self._body(answer))
        except BaseException:
            answer.close()
            raise

    async def _requested(
        self,
        session: aiohttp.ClientSession,
        request: HttpRequest,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """Sends the request; returns its answer once the headers have arrived. Raises Failed."""
        try:
            return await session.request(
                request.method,
                yarl.URL(f"{self._base}{request.target}", encoded=True),
                headers=request.headers,
                data=request.body,
                timeout=limits,
                proxy=self._config.proxy,
                server_hostname=self._tls_name,
                allow_redirects=False,
            )
        except errors.FOREIGN as error:
            raise Failed(*errors.explained(self._server, error)) from error

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        """Reads the whole body. Raises AnswerTooLarge, before reading if a length is announced, and Failed."""
        if (answer.content_length or 0) > self._largest:
            raise AnswerTooLarge(answer.status)
        return await whole(HttpStream(self._server, answer), self._largest)

    def _outlasted(self, failure: Failed) -> Failed:
        """Returns the failure of a write whose permission has ended."""
        text = f"{self._server} did not answer before the permission for the write ended"
        return Failed(errors.TIMEOUT, text, failure.status)

    def _closed_failure(self) -> Failed:
        return Failed("Closed", f"the connection to {self._server} has been closed")

    def _entered(self) -> _Connections:
        """Returns the current connections, over which a request or stream begins. Raises Failed."""
        if self._closed:
            raise self._closed_failure()
        if self._current is None:
            self._current = self._opened()
        self._current.users += 1
        return self._current

    def _doubt(self, connections: _Connections, error: Failed | asyncio.CancelledError) -> None:
        """Leaves the connections to what is in progress, after a request was not answered.

        Raises Failed for an error that came because all connections have been closed.
        """
        if self._closed and isinstance(error, Failed):
            raise self._closed_failure() from error
        if connections is self._current and (not isinstance(error, Failed) or error.reason in _UNHEARD):
            self.renew()

    async def _close_unused(self) -> None:
        """Closes earlier connections over which nothing is in progress."""
        while unused := [each for each in self._earlier if not each.users]:
            self._earlier.remove(unused[0])  # before the wait, in which other requests end
            await unused[0].aclose()

    def _opened(self) -> _Connections:
        """`trust_env` is off: it would cost two thread switches per request."""
        config = self._config
        headers = {"User-Agent": self._agent, "Accept-Encoding": "identity"}
        options: dict[str, Any] = {} if config.ssl is None else {"ssl": config.ssl}
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S, **options),
            response_class=_Response,
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            skip_auto_headers=("Accept", "Content-Type"),
        )
        kept = None
        if config.proxy is None:
            connector = Connector(self._server, self._base, config.ssl, self._tls_name)
            kept = KeptConnections(connector, self._base, headers, self._largest)
        return _Connections(session, kept)


def _base(server: str) -> str:
    """Returns the URL of the server with its path escaped and its host in ASCII."""
    try:
        return str(yarl.URL(server)).rstrip("/")
    except ValueError:  # to resolve its host fails as well, with an error that says so
        return server

"""Requests and streams by aiohttp: what the pool does not do, which are streams and proxies."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import aiohttp
import yarl
from aiohttp.abc import AbstractStreamWriter

from hpad import adapter
from hpad.clock import Clock
from hpad.kube import errors
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.dial import CONNECT_S
from hpad.kube.http.exchange import AT_ONCE, KEEP_ALIVE_S, Allowed, Answer, Failed, Head, Stream, TooLarge, whole
from hpad.kube.http.sockets import Sockets

_UNLIMITED: Final = 0  # for watches: each occupies a connection for minutes and must not block requests


class _Body(aiohttp.BytesPayload):
    """The body of a write, which calls its check where it is handed over to the connection.

    aiohttp sends the headers together with the body, and writes the body of a repeated request again. `refusal` is what
    the check raised.
    """

    def __init__(self, content: bytes, allowed: Allowed | None) -> None:
        super().__init__(content)
        self.refusal: Exception | None = None
        self._allowed = allowed
        self._transport: asyncio.WriteTransport | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if self._allowed is not None:
            try:
                self._allowed()
            except Exception as refusal:
                self.refusal = refusal
                raise
        self._transport = getattr(writer, "transport", None)
        await super().write_with_length(writer, content_length)

    def abort(self) -> None:
        """Closes the connection at once: what it has not sent yet is dropped, which aiohttp would still send."""
        if self._transport is not None:
            self._transport.abort()


class _Streamed:
    """A Stream of aiohttp."""

    def __init__(self, server: str, answer: aiohttp.ClientResponse) -> None:
        self.status = answer.status
        self._server = server
        self._answer = answer

    @property
    def headers(self) -> dict[str, str]:
        return Answer(self.status, dict(self._answer.raw_headers), b"").headers

    async def read(self) -> bytes:
        try:
            return await adapter.read_part(self._answer)
        except errors.FOREIGN as error:
            raise Failed(*errors.explained(self._server, error), self.status) from error

    async def hold(self, wait: Callable[[], Awaitable[None]]) -> None:
        connection = self._answer.connection
        transport = None if connection is None else connection.transport
        with contextlib.suppress(RuntimeError):  # it is closed
            if transport is not None:
                transport.pause_reading()
        await wait()
        with contextlib.suppress(RuntimeError):
            if transport is not None:
                transport.resume_reading()


class Session:
    """A Sender. Its connections are of two kinds, because streams must not block requests."""

    def __init__(self, config: ClusterConfig, clock: Clock, agent: str, largest: int) -> None:
        self._config = config
        self._agent = agent
        self._largest = largest
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._sockets = Sockets(clock)
        self._closed = False

    def renew(self) -> None:
        """See Sender. Does nothing: aiohttp's connections end when they were idle."""

    async def aclose(self) -> None:
        self._closed = True
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()
        await self._sockets.closed()

    async def send(
        self, method: str, target: str, head: Head, body: bytes | None, timeout: float, allowed: Allowed | None
    ) -> Answer:
        limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_S)
        data = None if body is None else _Body(body, allowed)
        status = 0
        try:
            async with self._request(AT_ONCE, method, target, head, data, limits) as answer:
                status = answer.status
                return Answer(status, dict(answer.raw_headers), await self._body(answer))
        except asyncio.CancelledError:
            if data is not None:
                data.abort()
            raise
        except errors.FOREIGN as error:
            if data is not None:
                data.abort()
                if data.refusal is not None:
                    raise data.refusal from None
            raise Failed(*errors.explained(self._config.server, error), status) from error

    @asynccontextmanager
    async def stream(self, target: str, head: Head, silence: float) -> AsyncIterator[Stream]:
        limits = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=silence)
        async with AsyncExitStack() as stack:
            try:
                request = self._request(_UNLIMITED, "GET", target, head, None, limits)
                answer = await stack.enter_async_context(request)
            except errors.FOREIGN as error:
                raise Failed(*errors.explained(self._config.server, error)) from error
            yield _Streamed(self._config.server, answer)

    async def _body(self, answer: aiohttp.ClientResponse) -> bytes:
        """Reads the whole body. Raises TooLarge, before reading if a length is announced, and what aiohttp raises."""
        if (answer.content_length or 0) > self._largest:
            raise TooLarge(answer.status)
        return await whole(_Streamed(self._config.server, answer), self._largest)

    def _request(
        self,
        connections: int,
        method: str,
        target: str,
        head: Head,
        data: _Body | None,
        limits: aiohttp.ClientTimeout,
    ) -> Any:
        return self._session(connections).request(
            method,
            yarl.URL(f"{self._config.server}{target}", encoded=True),
            headers=head.fields,
            data=data,
            timeout=limits,
            proxy=self._config.proxy,
            server_hostname=self._config.tls_server_name,
            allow_redirects=False,
        )

    def _session(self, connections: int) -> aiohttp.ClientSession:
        """Creates the session on first use. `trust_env` is off: it would cost two thread switches per request."""
        if self._closed:
            raise Failed("Closed", f"the connection to {self._config.server} has been closed")
        session = self._sessions.get(connections)
        if session is None:
            options: dict[str, Any] = {"ssl": self._config.ssl} if self._config.ssl is not None else {}
            connector = aiohttp.TCPConnector(
                limit=connections, keepalive_timeout=KEEP_ALIVE_S, socket_factory=self._sockets.make, **options
            )
            session = self._sessions[connections] = aiohttp.ClientSession(
                connector=connector,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._agent, "Accept-Encoding": "identity"},
                skip_auto_headers=("Content-Type",),
            )
        return session

"""HTTP requests to one API server: bytes in, bytes out, with timeouts, a rate limit, and credentials kept fresh."""

import asyncio
import socket
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import structlog
import yarl

import hpad
from hpad import adapter
from hpad.clock import Clock
from hpad.kube import errors, paths
from hpad.kube.auth.credentials import ClusterConfig

_CLOSE_TIMEOUT_S: Final = 1.0
"""A TLS connection waits for the close_notify of its peer, but not longer than this."""
_POLL_S: Final = 0.005


class Sockets:
    """Creates the sockets of an aiohttp connector (its `socket_factory`), and waits until all are closed.

    A connection that is dropped in the middle of an answer, as watches are, leaves its connector at once. Under TLS its
    socket is closed later, which the connector does not report.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Creates a socket for an address in the form of `getaddrinfo`."""
        family, kind, protocol = address[:3]
        created = socket.socket(family=family, type=kind, proto=protocol)
        self._sockets.add(created)
        return created

    async def closed(self) -> None:
        """Waits until all sockets are closed, at most a second."""
        began = self._clock.monotonic()
        while any(each.fileno() >= 0 for each in self._sockets) and self._clock.monotonic() - began < _CLOSE_TIMEOUT_S:
            await self._clock.sleep(_POLL_S)


Observe = Callable[[str, str, str, float], None]
"""Called for each answer with method, host, status code as text ("<error>" if there is none), and seconds."""

LARGEST_ANSWER = 512 * 2**20
"""The size of the largest accepted answer in bytes: a list of 100,000 pods in one page, or metrics of a million."""
_CONNECTIONS = 32
_UNLIMITED = 0  # for watches: each occupies a connection for minutes and must not block requests
_KEEP_ALIVE_S = 75.0  # an API server closes idle connections after 90 s; longer than the sync period
_CONNECT_S = 5.0
_MOST_RETRIES = 3  # after answers with status 429
_LONGEST_RETRY_AFTER_S = 10.0
USER_AGENT = f"hpad/{hpad.__version__}"
_SAFE = "/%:@!$&'()*+,;=~"
_LONG_WAIT_S: Final = 1.0
_WARN_EVERY_S: Final = 60.0
_ONE: Final = 1.0 - 1e-9
"""A token, less the rounding error of adding fractions."""


Allowed = Callable[[], None]
"""Called right before the first byte of a write is sent; an exception prevents the write and reaches the caller.

By then a request may have waited for the limiter, for a connection, or for a stopped process to continue.
"""


class Limiter:
    """A token bucket like client-go's (util/flowcontrol): `qps` requests a second on average, `burst` at once.

    Requests are served in the order of arrival. A cancelled request uses no token. By default there is no limiter:
    API servers protect themselves (API priority and fairness).
    """

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self.waiting = 0
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()
        self._warned_at = -_WARN_EVERY_S
        self._first = asyncio.Lock()  # taken by the first of the waiting requests

    async def acquire(self) -> None:
        """Waits until one more request may be sent."""
        self.waiting += 1
        try:
            self._fill()
            self._warn((self.waiting - self._tokens) / self._qps)
            async with self._first:
                self._fill()
                while self._tokens < _ONE:
                    await self._clock.sleep((1.0 - self._tokens) / self._qps)
                    self._fill()
                self._tokens -= 1.0
        finally:
            self.waiting -= 1

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    def _warn(self, seconds: float) -> None:
        """Warns, at most once a minute, if the latest request will wait for a second or more."""
        now = self._clock.monotonic()
        if seconds >= _LONG_WAIT_S and now - self._warned_at >= _WARN_EVERY_S:
            self._warned_at = now
            structlog.get_logger("hpad.kube").warning(
                "requests to the API server are delayed by the limit kube_api_qps",
                kube_api_qps=self._qps,
                seconds=round(seconds, 1),
                waiting=self.waiting,
            )


class _Body(aiohttp.BytesPayload):
    """The body of a write with its check; aiohttp passes it to each request that it sends, also to a repeated one."""

    def __init__(self, content: bytes, allowed: Allowed | None) -> None:
        super().__init__(content)
        self.allowed = allowed


class _Request(aiohttp.ClientRequest):
    """Calls the check of a write once there is a connection."""

    def __init__(self, *args: Any, data: _Body | None = None, **options: Any) -> None:
        self._allowed = None if data is None else data.allowed
        super().__init__(*args, data=data, **options)

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if self._allowed is not None:
            self._allowed()
        return await super().send(conn)


class Client:
    """Sends requests to the API server of a ClusterConfig; use it as an async context manager, or call `aclose`.

    `timeout` bounds one attempt in seconds, from connecting to the last byte, without the wait for `limiter`. These
    requests are repeated: a GET or PUT (with its resourceVersion) once if its kept-alive connection was closed; any
    after 429 with Retry-After, three times; any once with renewed credentials after 401 or a failed TLS handshake. An
    answer of more than `largest` bytes is refused; streams have no such limit.
    """

    def __init__(
        self,
        config: ClusterConfig,
        clock: Clock,
        *,
        user_agent: str = USER_AGENT,
        timeout: float = 10.0,
        observe: Observe | None = None,
        limiter: Limiter | None = None,
        largest: int = LARGEST_ANSWER,
    ) -> None:
        self.config = config
        self.clock = clock
        self.requests: Counter[tuple[str, str]] = Counter()
        """Number of answers by (method, status code)."""
        self._agent = user_agent
        self._timeout = timeout
        self._observe = observe
        self._limiter = limiter
        self._largest = largest
        self._host = urlsplit(config.server).netloc
        self._sessions: dict[int, aiohttp.ClientSession] = {}
        self._sockets = Sockets(clock)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes all connections; later requests fail with status 0."""
        self._closed = True
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()
        await self._sockets.closed()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
        allowed: Allowed | None = None,
    ) -> bytes:
        """Returns the body of a 2xx answer. Raises ApiError for any other answer, and with status 0 for none.

        Calls `allowed` before it sends a request with a body; an exception of `allowed` reaches the caller.
        """
        limits = aiohttp.ClientTimeout(total=timeout or self._timeout, sock_connect=_CONNECT_S)
        headers = {"Accept": accept, **({"Content-Type": content_type} if body is not None else {})}
        data = None if body is None else _Body(body, allowed)
        waits, refused = 0, False
        while True:
            credentials = await self.config.identity.headers(self.clock)
            try:
                async with self._answer(method, path, params, {**headers, **credentials}, data, limits) as answer:
                    return await self._body(answer, method, path)
            except errors.ApiError as error:
                # Once only: a server that refuses renewed credentials as well would receive requests in a loop.
                if error.unauthenticated and not refused and self.config.identity.refuse(credentials, self.clock):
                    refused = True
                elif error.status == 429 and error.retry_after is not None and waits < _MOST_RETRIES:
                    waits += 1
                    await self.clock.sleep(min(error.retry_after, _LONGEST_RETRY_AFTER_S))
                else:
                    self._renew_after_disconnect(error, credentials)
                    raise

    async def stream(self, path: str, params: Mapping[str, str], silence: float) -> AsyncGenerator[bytes, None]:
        """Yields the chunks of a long GET as they arrive, until the server ends it.

        Raises ApiError: before the first chunk if the answer is not 2xx, later if the connection breaks or brings
        nothing for `silence` seconds.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=silence)
        credentials = await self.config.identity.headers(self.clock)
        headers = {"Accept": "application/json", **credentials}
        try:
            async with self._answer("GET", path, params, headers, None, limits, _UNLIMITED) as answer:
                while part := await adapter.read_part(answer):
                    yield part
        except errors.ApiError as error:
            if error.unauthenticated:
                self.config.identity.refuse(credentials, self.clock)
            self._renew_after_disconnect(error, credentials)
            raise

    def _renew_after_disconnect(self, error: errors.ApiError, credentials: Mapping[str, str]) -> None:
        """Reads a client certificate again after a dropped connection: with TLS 1.3 a server refuses it that way."""
        if self.config.certified and error.reason == errors.DISCONNECTED:
            self.config.identity.refuse(credentials, self.clock)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: _Body | None,
        limits: aiohttp.ClientTimeout,
        connections: int = _CONNECTIONS,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Sends the request once and counts the status code. Raises ApiError unless the answer has a 2xx status."""
        if self._limiter is not None:
            await self._limiter.acquire()
        config = self.config
        began, code = self.clock.monotonic(), "<error>"
        try:
            with errors.mapped(config.server):
                async with self._session(connections).request(
                    method,
                    _url(config.server, path, params),
                    headers=headers,
                    data=body,
                    timeout=limits,
                    proxy=config.proxy,
                    server_hostname=config.tls_server_name,
                    allow_redirects=False,
                ) as answer:
                    code = str(answer.status)
                    if not 200 <= answer.status < 300:
                        body_of_error = await self._body(answer, method, path)
                        request_text = paths.described(method, path)
                        raise errors.from_answer(answer.status, body_of_error, answer.headers, request_text)
                    yield answer
        finally:
            self.requests[method, code] += 1
            if self._observe is not None:
                self._observe(method, self._host, code, self.clock.monotonic() - began)

    async def _body(self, answer: aiohttp.ClientResponse, method: str, path: str) -> bytes:
        """Reads the whole body. Raises ApiError if it is larger than `largest` bytes."""
        parts: list[bytes] = []
        size = answer.content_length or 0
        if size <= self._largest:
            size = 0  # counted, because a chunked answer announces no length
            while size <= self._largest and (part := await adapter.read_part(answer)):
                size += len(part)
                parts.append(part)
        if size > self._largest:
            limit = f"{self._largest / 2**20:g} MiB"
            raise errors.ApiError(
                0, errors.TOO_LARGE, f"the answer to {method} {path} is larger than {limit}: not read"
            )
        return b"".join(parts)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        """Creates the session on first use. `trust_env` is off: it would cost two thread switches per request."""
        if self._closed:
            raise errors.ApiError(0, "Closed", f"the connection to {self.config.server} has been closed")
        session = self._sessions.get(connections)
        if session is None:
            options: dict[str, Any] = {"ssl": self.config.ssl} if self.config.ssl is not None else {}
            connector = aiohttp.TCPConnector(
                limit=connections, keepalive_timeout=_KEEP_ALIVE_S, socket_factory=self._sockets.make, **options
            )
            session = self._sessions[connections] = aiohttp.ClientSession(
                connector=connector,
                request_class=_Request,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._agent, "Accept-Encoding": "identity"},
                skip_auto_headers=("Content-Type",),
            )
        return session


def _url(server: str, path: str, params: Mapping[str, str] | None) -> yarl.URL:
    """Escapes the parameters, and characters of the path that are not escaped yet."""
    query = f"?{urlencode(params, quote_via=quote)}" if params else ""
    return yarl.URL(f"{server}{quote(path, safe=_SAFE)}{query}", encoded=True)

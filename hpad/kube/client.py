"""HTTP to one API server: a single session, explicit timeouts, bytes in and bytes out.

The sockets of a client, so that closing it can mean that all of them are closed.
"""

import socket
import weakref
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import yarl

import hpad
from hpad import adapter
from hpad.clock import Clock
from hpad.kube import errors, paths
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.limiter import Limiter

_PATIENCE_S: Final = 1.0
"""A TLS connection waits for the farewell of its peer; a peer that has none is not waited for longer than this."""
_LOOK_S: Final = 0.005


class Sockets:
    """Makes the sockets of an aiohttp connector (its `socket_factory`), and knows which of them are still open.

    A connection that is given up in the middle of an answer, as each watch is at the end, leaves its connector at
    once, but under TLS its socket is closed later: nobody else could tell when.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for an address as `getaddrinfo` tells it."""
        family, kind, protocol = address[:3]
        made = socket.socket(family=family, type=kind, proto=protocol)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Wait until none is open any more, for a second at most."""
        began = self._clock.monotonic()
        while any(made.fileno() >= 0 for made in self._made) and self._clock.monotonic() - began < _PATIENCE_S:
            await self._clock.sleep(_LOOK_S)


Observe = Callable[[str, str, str, float], None]
"""Told of each answer: method, host, status code as text ("<error>" where there was none), seconds."""

LARGEST_ANSWER = 512 * 2**20
"""Bytes of an answer that is read into memory: a list of 100,000 pods in one piece, or metrics of a million."""
_CONNECTIONS = 32
_UNLIMITED = 0  # for watches: each holds a connection for minutes, and must never keep a request waiting
_KEEP_ALIVE_S = 75.0  # below the 90 s after which an API server closes idle connections, above the sync period
_CONNECT_S = 5.0
_PATIENCE = 3  # times that a 429 is waited for
_LONGEST_WAIT_S = 10.0
USER_AGENT = f"hpad/{hpad.__version__}"
_SAFE = "/%:@!$&'()*+,;=~"


_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def only_if(check: Callable[[], None]) -> Iterator[None]:
    """Requests made inside are sent only if `check` does not raise at that very moment: however long they have waited
    for their turn, for a connection, or for a process that was stopped to go on. What it raises is raised."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


class _Request(aiohttp.ClientRequest):
    """Asks once more when there is a connection, right before the first byte."""

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        check = _check.get()
        if check is not None:
            check()
        return await super().send(conn)


class Client:
    """Requests to the API server of a ClusterConfig; use it as an async context manager, or call `aclose`.

    `timeout` bounds one attempt in seconds, from connecting to the last byte. A GET (or a PUT, which carries a
    resourceVersion) whose kept-alive connection turns out to be closed is sent once more; a 429 is waited for as long
    as the server asks, a bounded number of times; a 401, or a TLS connection that does not come about, is tried once
    more with credentials read anew. Nothing else is repeated here. Each attempt waits for the turn that `limiter`
    gives it; `timeout` counts from then on. An answer of more than `largest` bytes is refused; what is streamed has no
    such limit.
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
        """Answers by (method, status code); by path they would be as many as there ever were metrics and groups."""
        self._agent = user_agent
        self._timeout = timeout
        self._observe = observe
        self._limiter = limiter
        self._largest = largest
        self._host = urlsplit(config.server).netloc
        self._held: dict[int, aiohttp.ClientSession] = {}
        self._sockets = Sockets(clock)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections; requests from now on fail (status 0)."""
        self._closed = True
        while self._held:
            _, session = self._held.popitem()
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
    ) -> bytes:
        """The body of a 2xx answer. Raises ApiError for any other answer, and for none (status 0)."""
        limits = aiohttp.ClientTimeout(total=timeout or self._timeout, sock_connect=_CONNECT_S)
        headers = {"Accept": accept, **({"Content-Type": content_type} if body is not None else {})}
        waits, refused = 0, False
        while True:
            who = await self.config.identity.headers(self.clock)
            try:
                async with self._answer(method, path, params, {**headers, **who}, body, limits) as answer:
                    return await self._body(answer, method, path)
            except errors.ApiError as error:
                if error.unknown_to_each_other and not refused and self.config.identity.refuse(who, self.clock):
                    refused = True
                elif error.status == 429 and error.retry_after is not None and waits < _PATIENCE:
                    waits += 1
                    await self.clock.sleep(min(error.retry_after, _LONGEST_WAIT_S))
                else:
                    self._suspect(error, who)
                    raise

    async def stream(self, path: str, params: Mapping[str, str], quiet: float) -> AsyncGenerator[bytes, None]:
        """The chunks of a GET that stays open, as they come; ends when the server ends it.

        Raises ApiError: before the first chunk for any answer but 200, later where the connection breaks or brings
        nothing for `quiet` seconds.
        """
        limits = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=quiet)
        who = await self.config.identity.headers(self.clock)
        headers = {"Accept": "application/json", **who}
        try:
            async with self._answer("GET", path, params, headers, None, limits, _UNLIMITED) as answer:
                while part := await adapter.read_part(answer):
                    yield part
        except errors.ApiError as error:
            if error.unknown_to_each_other:
                self.config.identity.refuse(who, self.clock)
            self._suspect(error, who)
            raise

    def _suspect(self, error: errors.ApiError, who: Mapping[str, str]) -> None:
        """With TLS 1.3 a server that refuses our certificate just hangs up: have it read anew for the next request."""
        if self.config.certified and error.reason == errors.CUT:
            self.config.identity.refuse(who, self.clock)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
        limits: aiohttp.ClientTimeout,
        connections: int = _CONNECTIONS,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One attempt, up to an answer with a 2xx status; its code is counted."""
        if self._limiter is not None:
            await self._limiter.acquire()
        config = self.config
        began, code = self.clock.monotonic(), "<error>"
        try:
            with errors.border(config.server):
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
                        found = await self._body(answer, method, path)
                        asked = paths.described(method, path)
                        raise errors.from_answer(answer.status, found, answer.headers, asked)
                    yield answer
        finally:
            self._count(method, code, self.clock.monotonic() - began)

    async def _body(self, answer: aiohttp.ClientResponse, method: str, path: str) -> bytes:
        """All of it, unless it is too large: a server (or what stands before it) must not take all our memory."""
        parts: list[bytes] = []
        left = self._largest - (answer.content_length or 0)
        if left >= 0:
            left = self._largest
            while part := await adapter.read_part(answer):
                left -= len(part)
                if left < 0:
                    break
                parts.append(part)
        if left < 0:
            limit = f"{self._largest / 2**20:g} MiB"
            raise errors.ApiError(
                0, errors.TOO_LARGE, f"the answer to {method} {path} is larger than {limit}: not read"
            )
        return b"".join(parts)

    def _count(self, method: str, code: str, seconds: float) -> None:
        self.requests[method, code] += 1
        if self._observe is not None:
            self._observe(method, self._host, code, seconds)

    def _session(self, connections: int) -> aiohttp.ClientSession:
        """Made inside the running loop; `trust_env` would cost two thread hops a request, so it is off."""
        if self._closed:
            raise errors.ApiError(0, "Closed", f"the connection to {self.config.server} has been closed")
        session = self._held.get(connections)
        if session is None:
            options: dict[str, Any] = {"ssl": self.config.ssl} if self.config.ssl is not None else {}
            connector = aiohttp.TCPConnector(
                limit=connections, keepalive_timeout=_KEEP_ALIVE_S, socket_factory=self._sockets.make, **options
            )
            session = self._held[connections] = aiohttp.ClientSession(
                connector=connector,
                request_class=_Request,
                trust_env=False,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._agent, "Accept-Encoding": "identity"},
                skip_auto_headers=("Content-Type",),
            )
        return session


def _url(server: str, path: str, params: Mapping[str, str] | None) -> yarl.URL:
    """What stands in the path is escaped where it is not yet; the parameters always."""
    query = f"?{urlencode(params, quote_via=quote)}" if params else ""
    return yarl.URL(f"{server}{quote(path, safe=_SAFE)}{query}", encoded=True)

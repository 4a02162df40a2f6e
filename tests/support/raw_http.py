"""A server on loopback that sends exactly the bytes that a test says, and requests of a session to it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.exchange import Failed, HttpAnswer, HttpRequest
from hpad.kube.session import Allowed, Session

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """One connection of a server, after it has read a request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def says(self, data: bytes) -> None:
        """Sends data at once, so that the next data is a read of its own in the client, or nearly always."""
        self._writer.write(data)
        await self._writer.drain()
        await asyncio.sleep(0.001)

    async def request(self) -> bytes:
        """Reads one request, or b"" at the end of the connection."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        return head + await self._reader.readexactly(length)

    async def ended(self) -> bool:
        """Waits until the client closes the connection."""
        with contextlib.suppress(ConnectionError):
            return await self._reader.read(1) == b""
        return True

    def closes(self) -> None:
        self._writer.close()

    def resets(self) -> None:
        self._writer.transport.abort()


Reply = bytes | Callable[[Peer], Awaitable[None]]


class RawServer:
    """Answers requests with bytes, or by calling a function with the Peer; the last reply repeats."""

    def __init__(self, *replies: Reply) -> None:
        self.connections = 0
        self.closed = 0
        self.requests: list[bytes] = []
        self.port = 0
        self._replies = list(replies) or [OK]
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["RawServer"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls, limit=2**26)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        peer = Peer(reader, writer)
        try:
            while request := await peer.request():
                self.requests.append(request)
                reply = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
                if isinstance(reply, bytes):
                    await peer.says(reply)
                else:
                    await reply(peer)
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self.closed += 1
            writer.close()


def opened(url: str, largest: int = 2**20, **options: Any) -> Session:
    """Returns a session for the server; `options` are those of a ClusterConfig."""
    return Session(ClusterConfig(url, **options), "hpad", largest)


async def ask(
    session: Session,
    method: str = "GET",
    body: bytes | None = None,
    allowed: Allowed | None = None,
    timeout: float = 30.0,
) -> HttpAnswer:
    """Sends a GET by aiohttp, or a PUT over a connection of hpad's own, to which the default of `body` is {}."""
    if method != "GET" and body is None:
        body = b"{}"
    return await session.send(HttpRequest(method, "/path", {"Accept": "application/json"}, body), timeout, allowed)


async def fails(
    session: Session,
    method: str = "GET",
    body: bytes | None = None,
    allowed: Allowed | None = None,
    timeout: float = 30.0,
) -> Failed:
    with pytest.raises(Failed) as caught:
        await ask(session, method, body, allowed, timeout)
    return caught.value

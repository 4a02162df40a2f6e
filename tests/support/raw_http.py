"""HTTP as bytes: a connection without a network, and a server that sends exactly what a test says."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from hpad.kube.http.connection import Connection
from hpad.kube.http.exchange import Answer, Failed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Transport(asyncio.Transport):
    """Records what is written, and how it was closed. `unsent` is the size of its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.ended = ""
        self.unsent = 0

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"


class Exchanges:
    """A connection on a recording transport, and its pool."""

    server = "http://api"

    def __init__(self, largest: int = 2**20) -> None:
        self.largest = largest
        self.released = self.losses = 0
        self.transport = Transport()
        self.connection = Connection(asyncio.get_running_loop(), self)
        self.connection.connection_made(self.transport)

    def release(self, connection: Connection) -> None:
        self.released += 1

    def lost(self, connection: Connection) -> None:
        self.losses += 1

    async def started(self, timeout: float = 60.0) -> "asyncio.Task[Answer | Failed]":
        """Sends a request; returns the task that waits for the answer."""
        task = asyncio.ensure_future(self._outcome(asyncio.get_running_loop().time() + timeout))
        await asyncio.sleep(0)
        return task

    async def answered(self, *pieces: bytes, end: bool = False) -> Answer | Failed:
        """Sends a request and receives these pieces, and with `end` the end of the connection."""
        task = await self.started()
        for piece in pieces:
            if piece and not self.transport.ended:
                self.connection.data_received(piece)
        if end and not self.transport.ended:
            self.connection.eof_received()
            self.connection.connection_lost(None)
        async with asyncio.timeout(60):
            return await task

    async def _outcome(self, deadline: float) -> Answer | Failed:
        try:
            return await self.connection.exchange(b"request", deadline)
        except Failed as failure:
            return failure


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

"""The subresource `portforward` of pods: connections to loopback ports, over SPDY.

Newer versions of kubectl try a WebSocket first, and use SPDY where it is refused, as here.
Source: Kubernetes 1.36, cri-streaming/pkg/streaming/portforward/httpstream.go; client-go/tools/portforward.
"""

import asyncio
import contextlib
import os
from typing import Final

from aiohttp import web

from hpad.lab.cluster import errors, pods, spdy
from hpad.lab.cluster.paths import Address
from hpad.lab.cluster.resources import PODS
from hpad.lab.cluster.store import Store

_PROTOCOL: Final = "portforward.k8s.io"
_SWITCHING: Final = (
    "HTTP/1.1 101 Switching Protocols\r\n"
    "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    f"X-Stream-Protocol-Version: {_PROTOCOL}\r\n\r\n"
).encode()
_MOST_STREAMS: Final = 256
_CLOSE_SECONDS: Final = 1.0


async def answer(store: Store, request: web.Request, address: Address) -> web.StreamResponse:
    """Forwards connections until the client or the cluster ends; raises ApiError."""
    pod = store.get(PODS, address.namespace or "", address.name)
    if request.headers.get("Upgrade", "").upper() != "SPDY/3.1":
        raise errors.bad_request("Upgrade request required")
    if not pod["spec"].get("nodeName"):  # pkg/registry/core/pod/strategy.go: streamLocation
        raise errors.bad_request(f"pod {address.name} does not have a host assigned")
    if pods.phase(pod) != "Running":
        raise errors.bad_request(f"unable to forward port because pod is not running. Current status={pods.phase(pod)}")
    transport = request.transport
    if transport is None:
        return web.Response()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = _Taken(reader, request.protocol)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    writer.write(_SWITCHING)
    try:
        with contextlib.suppress(spdy.SpdyError, ConnectionError):
            await _Session(spdy.Connection(reader, writer)).run()
    finally:
        transport.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await protocol.lost.wait()
    transport.abort()
    return web.Response()


class _Taken(asyncio.StreamReaderProtocol):
    """The protocol of a connection that was taken over from aiohttp, which learns only of its end."""

    def __init__(self, reader: asyncio.StreamReader, former: asyncio.BaseProtocol) -> None:
        super().__init__(reader)
        self._former = former
        self.lost = asyncio.Event()

    def connection_lost(self, exc: BaseException | None) -> None:
        error = exc if isinstance(exc, Exception) else None
        super().connection_lost(error)
        self.lost.set()
        self._former.connection_lost(error)


class _Session:
    """The forwarded connections of one client. Each has a data stream and, with the same id, an error stream."""

    def __init__(self, connection: spdy.Connection) -> None:
        self._connection = connection
        self._error_streams: dict[str, int] = {}
        self._backends: dict[int, asyncio.StreamWriter] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serves until the client closes the connection; raises SpdyError."""
        try:
            while (frame := await self._connection.read()) is not None:
                await self._handle(frame)
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _handle(self, frame: spdy.Frame) -> None:
        if frame.kind == spdy.PING:
            self._connection.pong(frame.stream)
        elif frame.kind == spdy.SYN_STREAM:
            await self._begin(frame)
        elif frame.kind == spdy.DATA and frame.stream in self._backends:
            await self._pass_on(self._backends[frame.stream], frame)
        elif frame.kind == spdy.RST_STREAM and frame.stream in self._tasks:
            self._tasks[frame.stream].cancel()

    async def _begin(self, frame: spdy.Frame) -> None:
        if len(self._error_streams) + len(self._tasks) >= _MOST_STREAMS:
            raise spdy.SpdyError("too many streams")
        self._connection.accept(frame.stream)
        identity = frame.headers.get("requestid", "")
        if frame.headers.get("streamtype") == "error":
            self._error_streams[identity] = frame.stream
            return
        error_stream = self._error_streams.pop(identity, 0)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", int(frame.headers.get("port", "0")))
        except (OSError, ValueError, OverflowError) as error:
            await self._fail(frame, error_stream, error)
            return
        self._backends[frame.stream] = writer
        self._tasks[frame.stream] = asyncio.create_task(self._return(frame.stream, error_stream, reader, writer))

    async def _fail(self, frame: spdy.Frame, error_stream: int, error: Exception) -> None:
        port = frame.headers.get("port", "")
        reason = os.strerror(error.errno).lower() if isinstance(error, OSError) and error.errno else str(error)
        text = f"dial tcp4 127.0.0.1:{port}: connect: {reason}"
        await self._connection.send(error_stream, text.encode(), is_last=True)
        await self._connection.send(frame.stream, b"", is_last=True)

    async def _pass_on(self, backend: asyncio.StreamWriter, frame: spdy.Frame) -> None:
        with contextlib.suppress(ConnectionError):
            backend.write(frame.data)
            if frame.is_last:
                backend.write_eof()
            await backend.drain()

    async def _return(
        self, stream: int, error_stream: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Sends what the pod answers, until the pod closes the connection or the client resets the stream."""
        try:
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(2**16):
                    await self._connection.send(stream, data)
            await self._connection.send(stream, b"", is_last=True)
        finally:
            del self._backends[stream], self._tasks[stream]
            writer.close()
            await self._connection.send(error_stream, b"", is_last=True)

"""An HTTP/2 server with TLS on loopback, built on the library h2: it is strict, and none of it is hpad's own."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import h2.config
import h2.connection
import h2.events
import h2.exceptions
import h2.settings
import trustme
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.exchange import Answer, Failed, Head
from hpad.kube.http.shared import Shared

HEAD = Head({"Accept": "application/json"})
MAX_STREAMS = h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS
WINDOW = h2.settings.SettingCodes.INITIAL_WINDOW_SIZE


@dataclass(eq=False)
class Peer:
    """A request, and what the server does with it."""

    connection: "Connection"
    stream: int
    headers: dict[str, str]
    body: bytearray = field(default_factory=bytearray)
    reset: int | None = None
    """The code with which the client has reset the stream."""

    @property
    def method(self) -> str:
        return self.headers[":method"]

    @property
    def path(self) -> str:
        return self.headers[":path"]

    async def answers(self, body: bytes = b"ok", status: int = 200, **headers: str) -> None:
        self.begins(status, **headers)
        await self.says(body, end=True)

    def begins(self, status: int = 200, **headers: str) -> None:
        fields = [(":status", str(status)), *((name.replace("_", "-"), value) for name, value in headers.items())]
        self.connection.state.send_headers(self.stream, fields)
        self.connection.flush()

    async def says(self, data: bytes, *, end: bool = False) -> None:
        """Sends data within the credit of the client; does nothing on a stream or connection that has ended."""
        state = self.connection.state
        with contextlib.suppress(h2.exceptions.StreamClosedError, h2.exceptions.ProtocolError):
            while data:
                room = min(state.local_flow_control_window(self.stream), state.max_outbound_frame_size)
                if room <= 0:
                    self.connection.credit.clear()
                    await self.connection.credit.wait()
                    continue
                state.send_data(self.stream, data[:room], end_stream=end and len(data) <= room)
                data, ended = data[room:], end and len(data) <= room
                self.connection.flush()
                if ended:
                    return
            if end:
                state.end_stream(self.stream)
                self.connection.flush()

    def resets(self, code: int) -> None:
        self.connection.state.reset_stream(self.stream, code)
        self.connection.flush()


Reply = Callable[[Peer], Awaitable[None]]


async def ok(peer: Peer) -> None:
    await peer.answers()


async def echoes(peer: Peer) -> None:
    await peer.answers(f"{peer.method} {peer.path} ".encode() + bytes(peer.body))


async def never(peer: Peer) -> None:
    """Leaves the request without an answer."""


class Connection(asyncio.Protocol):
    """One connection of the server."""

    def __init__(self, server: "H2Server") -> None:
        self.credit = asyncio.Event()
        self.peers: dict[int, Peer] = {}
        self.closed = False
        self.alpn: str | None = None
        self.certificate: Any = None
        self.transport: asyncio.Transport
        self.state = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
        self.state.local_settings = h2.settings.Settings(client=False, initial_values=server.settings)
        self._server = server
        self._unread: bytearray | None = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        tls = transport.get_extra_info("ssl_object")
        self.alpn, self.certificate = tls.selected_alpn_protocol(), transport.get_extra_info("peercert")
        self._server.connections.append(self)
        if self._server.speaks:
            self.speaks()

    def speaks(self) -> None:
        """Sends its first SETTINGS, and begins to read."""
        self.state.initiate_connection()
        self.flush()
        unread, self._unread = self._unread, None
        if unread:
            self.data_received(bytes(unread))

    def data_received(self, data: bytes) -> None:
        if self._unread is not None:
            self._unread += data
            return
        try:
            events = self.state.receive_data(data)
        except h2.exceptions.ProtocolError as error:
            self._server.problems.append(error)
            self.flush()
            self.transport.close()
            return
        for event in events:
            self._happened(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.credit.set()

    def flush(self) -> None:
        data = self.state.data_to_send()
        if data and not self.transport.is_closing():
            self.transport.write(data)

    def goes_away(self, code: int = 0, last: int | None = None) -> None:
        self.state.close_connection(code, last_stream_id=last)
        self.flush()

    def _happened(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                self.peers[event.stream_id] = Peer(self, event.stream_id, dict(cast("Any", event.headers)))
            case h2.events.DataReceived():
                self.peers[event.stream_id].body += event.data
                self.state.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case h2.events.StreamEnded():
                self._server.replies_to(self.peers[event.stream_id])
            case h2.events.StreamReset():
                self.peers[event.stream_id].reset = event.error_code
                self.credit.set()
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                self.credit.set()


class H2Server:
    """Answers requests by calling a function with the Peer; the last reply repeats."""

    def __init__(self, *replies: Reply, settings: dict[int, int] | None = None) -> None:
        self.settings = {MAX_STREAMS: 100, **(settings or {})}
        self.speaks = True
        """Whether it sends anything after TLS."""
        self.connections: list[Connection] = []
        self.requests: list[Peer] = []
        self.problems: list[Exception] = []
        """What the client has done wrong."""
        self.port = 0
        self.replies = list(replies) or [ok]
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def open(self) -> list[Connection]:
        return [each for each in self.connections if not each.closed]

    def replies_to(self, peer: Peer) -> None:
        self.requests.append(peer)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        task = asyncio.ensure_future(reply(peer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext) -> AsyncIterator["H2Server"]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(self), "127.0.0.1", 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for each in self.connections:
                each.transport.abort()
            await until(lambda: not self.open)
        assert not self.problems, self.problems


def server_tls(authority: trustme.CA, *protocols: str) -> ssl.SSLContext:
    """The TLS of a server that selects one of these protocols by ALPN."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    if protocols:
        tls.set_alpn_protocols(list(protocols))
    return tls


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    authority.configure_trust(tls)
    return tls


@contextlib.asynccontextmanager
async def client_of(url: str, authority: trustme.CA, largest: int = 2**20) -> AsyncIterator[Shared]:
    """A client, which is closed at the end."""
    client = Shared(ClusterConfig(url, ssl=trusting(authority)), SystemClock(), "hpad", largest)
    try:
        yield client
    finally:
        await client.aclose()


async def ask(
    client: Any, method: str = "GET", body: bytes | None = None, *, path: str = "/path", timeout: float = 30.0
) -> Answer:
    found: Answer = await client.send(method, path, HEAD, body, timeout, None)
    return found


async def fails(client: Any, method: str = "GET", body: bytes | None = None, *, timeout: float = 30.0) -> Failed:
    try:
        answer = await ask(client, method, body, timeout=timeout)
    except Failed as failure:
        return failure
    raise AssertionError(f"answered {answer.status} {answer.body!r}")

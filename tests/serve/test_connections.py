"""More connections than the server takes: probes are answered, and the longest idle connections are closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme
from support import http_server

from hpad.daemon import process
from hpad.serve import limits
from hpad.serve.limits import Admission, Connections
from hpad.serve.server import Server
from hpad.settings.model import Serving
from hpad.telemetry import Telemetry

SOON = 120.0
PROBE = b"GET %s HTTP/1.1\r\nHost: kubelet.example\r\n\r\n"
LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, process.loop_factory()], ids=["asyncio", "default"])


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)

    async def head(self) -> bytes:
        """Returns the head of the next response, or the part of it that came before the connection ended."""
        async with asyncio.timeout(SOON):
            try:
                return await self._reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError as error:
                return error.partial
            except ConnectionError:
                return b""

    async def rest(self) -> bytes:
        """Returns everything that comes until the server closes the connection."""
        async with asyncio.timeout(SOON):
            try:
                return await self._reader.read()
            except ConnectionError:
                return b""

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof() and self._reader.exception() is None

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def clients(server: Server, count: int) -> AsyncIterator[list[Client]]:
    """Opens connections, which the server accepts in this order, and closes them."""
    host, port = server.url.partition("://")[2].split(":")
    made = []
    for _ in range(count):
        made.append(Client(*await asyncio.open_connection(host, int(port))))
        await asyncio.sleep(0.01)
    try:
        yield made
    finally:
        for client in made:
            client.close()


class Stuck(Telemetry):
    """Scrapes never end; `inside` are in progress."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = 0

    async def exposition(self) -> bytes:
        self.inside += 1
        await asyncio.Event().wait()
        return b""


@pytest.fixture
def no_keepalive_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiohttp itself closes no idle connection within the time of a test."""
    monkeypatch.setitem(limits.CONNECTION_OPTIONS, "keepalive_timeout", 3600.0)


@LOOPS
def test_probes_are_answered_beside_endless_request_heads(loop: Any) -> None:
    """140 slow connections, where 128 are allowed; each sends a byte now and then."""

    async def main() -> list[bytes]:
        async with http_server.opened(Serving()) as server, clients(server, 140) as slow:
            for client in slow:
                client.send(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
            found = []
            for path in (b"/livez", b"/readyz", b"/healthz", b"/livez"):
                for client in slow:
                    client.send(b"a")
                async with clients(server, 1) as (probe,):
                    probe.send(PROBE % path)
                    found.append((await probe.head()).partition(b"\r\n")[0])
            return found

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == [b"HTTP/1.1 200 OK"] * 4


async def test_the_longest_idle_connection_is_closed_when_the_server_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 2)
    async with http_server.opened(Serving()) as server, clients(server, 2) as (first, second):
        first.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await first.head()).startswith(b"HTTP/1.1 200")  # now the second one has been idle longest
        async with clients(server, 1) as (third,):
            assert await second.rest() == b""
            for client in (first, third):
                client.send(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert b"HTTP/1.1 200" in await client.rest()


async def test_while_all_connections_are_busy_only_probes_are_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 2)
    telemetry = Stuck()
    async with http_server.opened(Serving(), telemetry=telemetry) as server, clients(server, 2) as busy:
        for client in busy:
            client.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(SOON):
            while telemetry.inside < 2:  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.01)
        for _ in range(limits.PROBE_CONNECTIONS * 2):
            async with clients(server, 1) as (probe,):
                probe.send(PROBE % b"/livez")
                assert (await probe.rest()).startswith(b"HTTP/1.1 200")
        async with clients(server, 1) as (other,):
            other.send(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            refused = await other.rest()
        assert refused.startswith(b"HTTP/1.1 503")
        assert b"Retry-After" in refused
        assert all(client.is_open for client in busy)


@pytest.mark.usefixtures("no_keepalive_limit")
@pytest.mark.parametrize(
    ("before", "sent"),
    [
        (b"", b""),
        (b"", b"GET / HTTP/1.1\r\nHost: x\r\nX: "),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"GET / HTT"),
        (b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET / HTT"),
    ],
    ids=["nothing", "half a head", "half a second head", "half a second head at once"],
)
async def test_a_client_that_does_not_finish_a_request_head_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, before: bytes, sent: bytes
) -> None:
    # A request that must be answered may take long on a busy machine; the patience is read once per head.
    monkeypatch.setattr(limits.Connection, "head_patience", SOON if before else 0.3)
    async with http_server.opened(Serving()) as server, clients(server, 1) as (client,):
        if before:
            client.send(before)
            assert (await client.head()).startswith(b"HTTP/1.1 200")
            monkeypatch.setattr(limits.Connection, "head_patience", 1.0)
            client.send(before)
            assert (await client.head()).startswith(b"ok\nHTTP/1.1 200")  # after the rest of the first response
            await asyncio.sleep(1.5)  # longer than `head_patience`, which does not apply between requests
            assert client.is_open
        client.send(sent)
        await client.rest()


@pytest.mark.usefixtures("no_keepalive_limit")
async def test_a_head_sent_byte_by_byte_gets_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.Connection, "head_patience", 2.0)
    async with http_server.opened(Serving()) as server, clients(server, 1) as (client,):
        client.send(b"GET / HTTP/1.1\r\nX: ")

        async def trickle() -> None:
            while True:
                client.send(b"a")
                await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        assert b"200" not in await client.rest()
        trickling.cancel()


def test_a_head_has_ten_seconds() -> None:
    assert limits.Connection.head_patience == 10


async def test_tls_connections_have_the_same_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 2)
    authority = trustme.CA()
    certificate, key = http_server.write_certificate(tmp_path, authority)
    async with http_server.opened(Serving(certificate=certificate, private_key=key)) as server:
        host, port = server.url.partition("://")[2].split(":")
        tls = http_server.client(authority)
        made = [Client(*await asyncio.open_connection(host, int(port), ssl=tls)) for _ in range(5)]
        made[-1].send(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (await made[-1].rest()).startswith(b"HTTP/1.1 200")
        assert [await client.rest() for client in made[:3]] == [b""] * 3
        for client in made:
            client.close()


class OpenConnection:
    def __init__(self, idle_since: float | None) -> None:
        self.idle_since = idle_since
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_the_number_of_connections_is_limited() -> None:
    connections = Connections(2, 1)
    busy = [OpenConnection(None) for _ in range(4)]
    assert [connections.admit(connection) for connection in busy] == [
        Admission.ANY,
        Admission.ANY,
        Admission.PROBES,
        Admission.NONE,
    ]
    assert len(connections) == 3
    busy[0].idle_since, busy[2].idle_since = 5.0, 4.0
    assert (
        connections.admit(OpenConnection(1.0)) is Admission.PROBES
    )  # in place of the third, which has been idle longer than the first
    assert [connection.aborted for connection in busy] == [False, False, True, False]
    connections.remove(busy[2])
    assert len(connections) == 3
    connections.remove(busy[1])
    assert len(connections) == 2

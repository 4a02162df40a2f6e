"""Servers whose HTTP/2 is something else are spoken to in HTTP/1.1; and client certificates that are renewed."""

import asyncio
import contextlib
import re
import ssl

import pytest
import structlog.testing
from support.h2_server import HEAD, H2Server, ask, client_of, fails, ok, server_tls, trusting
from support.raw_http import OK, RawServer
from support.raw_http2 import answer, data, frame, goaway, headers, reset, settings

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig, Credentials, Identity
from hpad.kube.client import Client
from hpad.kube.errors import ApiError
from hpad.kube.http.exchange import whole
from hpad.kube.http.shared import Shared


class Broken(asyncio.Protocol):
    """A server that says `first` in HTTP/2, and answers in HTTP/1.1 where that was negotiated."""

    connections = 0

    def __init__(self, first: bytes, then: bytes) -> None:
        self._first = first
        self._then = then

    def connection_made(self, transport):
        self._transport = transport
        self._answer = OK
        if transport.get_extra_info("ssl_object").selected_alpn_protocol() == "h2":
            Broken.connections += 1
            self._answer = self._then
            transport.write(self._first)
        self._seen = b""

    def data_received(self, data):
        self._seen += data
        if self._answer is OK or re.search(b"[\x04\x05]\0\0\0\x01", self._seen):  # the headers of the first stream
            self._seen = b""
            self._transport.write(self._answer)


BROKEN = {
    "HTTP/1.1": (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""),
    "security": (goaway(0, 12), b""),
    "required": (settings() + goaway(0, 13), b""),
    "required by the stream": (settings(), reset(1, 13)),
    "a body without headers": (settings(), data(1, b"x")),
    "headers that cannot be decoded": (settings(), headers(1, b"\xbe")),
    "a cut frame": (settings(), answer(1)[:9] + b"HTTP/1.1 200 OK"),
}


@pytest.mark.parametrize("first", ["request", "stream"])
@pytest.mark.parametrize("name", BROKEN)
def test_http_1_is_used_where_http_2_does_not_work(run, authority, name, first):
    Broken.connections = 0

    async def streamed(client):
        async with client.stream("/watch", HEAD, 30.0) as stream:
            return await whole(stream, 99)

    async def main():
        loop = asyncio.get_running_loop()
        tls = server_tls(authority, "h2", "http/1.1")
        server = await loop.create_server(lambda: Broken(*BROKEN[name]), "127.0.0.1", 0, ssl=tls)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with contextlib.closing(server), structlog.testing.capture_logs() as logs:
            async with client_of(url, authority) as client:
                asks = {"request": lambda: ask(client, "POST", b"{}"), "stream": lambda: streamed(client)}[first]
                if BROKEN[name][1]:  # it was sent: it is not repeated, but reported
                    with pytest.raises(Exception, match="not HTTP/2"):
                        await asks()
                await asks()
                assert (await ask(client)).body == b"ok"
                assert await streamed(client) == b"ok"
        assert Broken.connections == 1
        (log,) = logs
        assert (log["log_level"], log["server"]) == ("warning", url)
        assert "HTTP/1.1" in log["event"]
        assert log["error"]

    run(main())


async def test_http_2_is_kept_where_it_has_worked(authority):
    """The next connection uses it again."""

    async def babbles(peer):
        peer.connection.transport.write(frame(0, 0, 0, b"x"))

    async with H2Server(ok, babbles, ok).serving(server_tls(authority, "h2", "http/1.1")) as server:
        async with client_of(server.url, authority) as client:
            await ask(client)
            assert "not HTTP/2" in (await fails(client)).message
            assert (await ask(client)).body == b"ok"
        assert [each.alpn for each in server.connections] == ["h2", "h2"]


@pytest.mark.parametrize(("value", "expected"), [("", "h2"), ("true", None), ("false", None)])
async def test_the_environment_can_disable_http_2(authority, monkeypatch, value, expected):
    """Any value does, as for client-go."""
    monkeypatch.setenv("DISABLE_HTTP2", value)
    if expected is None:
        async with RawServer(OK).serving(server_tls(authority, "h2", "http/1.1")) as raw:
            config = ClusterConfig(raw.url.replace("http:", "https:"), ssl=trusting(authority))
            async with Client(config, SystemClock()) as client:
                assert await client.request("GET", "/") == b"ok"
            assert raw.requests[0].startswith(b"GET / HTTP/1.1\r\n")
        return
    async with H2Server().serving(server_tls(authority, "h2", "http/1.1")) as server:
        config = ClusterConfig(server.url, ssl=trusting(authority))
        async with Client(config, SystemClock()) as client:
            assert await client.request("GET", "/") == b"ok"


async def test_a_connection_whose_client_certificate_is_refused_is_replaced(authority):
    """An API server judges a certificate at each request: the one of an open connection expires in use."""
    tls = server_tls(authority, "h2")
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    mine = trusting(authority)
    authority.issue_cert("hpad@example.org").configure_cert(mine)

    def reads() -> Credentials:
        authority.issue_cert("renewed@example.org").configure_cert(mine)
        return Credentials()

    async def judges(peer):
        expired = "hpad@example.org" in repr(peer.connection.certificate) and len(server.requests) > 1
        await peer.answers(b"ok", 401 if expired else 200)

    server = H2Server(judges)
    async with server.serving(tls):
        config = ClusterConfig(server.url, ssl=mine, identity=Identity(Credentials(), reads), certified=True)
        async with Client(config, SystemClock()) as client:
            assert await client.request("GET", "/") == b"ok"
            assert isinstance(client._sender, Shared)
            assert client._sender._requests._current is not None
            client._sender._requests._current.opened_at -= 5.0
            assert await client.request("PUT", "/", body=b"{}") == b"ok"
            assert "renewed@example.org" in repr(server.connections[1].certificate)
            assert len(server.requests) == 3


async def test_a_watch_whose_client_certificate_is_refused_begins_on_another_connection(authority):
    async def judges(peer):
        await peer.answers(b"ok", 401 if peer.connection is server.connections[0] else 200)

    server = H2Server(judges)
    async with server.serving(server_tls(authority, "h2")):
        identity = Identity(Credentials(), Credentials)
        config = ClusterConfig(server.url, ssl=trusting(authority), identity=identity, certified=True)
        async with Client(config, SystemClock()) as client:
            assert isinstance(client._sender, Shared)
            async with client._sender.stream("/watch", HEAD, 30.0):
                pass
            current = client._sender._streams[0]._current
            assert current is not None
            current.opened_at -= 5.0
            with pytest.raises(ApiError, match="credentials"):
                async for _ in client.stream("/watch", {}, 30.0):
                    pass
            assert [part async for part in client.stream("/watch", {}, 30.0)] == [b"ok"]
            assert len(server.connections) == 2

"""How connections are opened: addresses, names, TLS, time limits, and what fails in between."""

import asyncio
import gc
import socket
import ssl

import pytest
import trustme
from support import free_ports
from support.raw_http import OK, RawServer
from support.relay import Relay
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http import dial
from hpad.kube.http.dial import Place
from hpad.kube.http.exchange import Failed, Head
from hpad.kube.http.pool import Pool

HEAD = Head({})


def opened(url, **options):
    return Pool(ClusterConfig(url, **options), SystemClock(), "hpad", 2**20)


async def ask(client, timeout=30.0):
    return (await client.send("GET", "/", HEAD, None, timeout, None)).body


async def fails(client, timeout=30.0):
    with pytest.raises(Failed) as caught:
        await ask(client, timeout)
    return caught.value


def server_tls(authority, name="api.internal"):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(*authorities):
    context = ssl.create_default_context()
    for each in authorities:
        each.configure_trust(context)
    return context


def resolves(monkeypatch, *addresses):
    """Lets any name resolve to addresses (host, port); returns the list of resolved names."""
    asked = []

    async def getaddrinfo(host, port, **_):
        asked.append(host)
        await asyncio.sleep(0.01)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", each) for each in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    return asked


@pytest.mark.parametrize(
    ("url", "place", "header"),
    [
        ("https://api.internal:6443", (True, "api.internal", 6443, ""), "api.internal:6443"),
        ("https://API.internal", (True, "api.internal", 443, ""), "api.internal"),
        ("http://10.0.0.1:80/base path/x%20y", (False, "10.0.0.1", 80, "/base%20path/x%20y"), "10.0.0.1"),
        ("https://[fd00::1]:443", (True, "fd00::1", 443, ""), "[fd00::1]"),
        ("http://[::1]:8080", (False, "::1", 8080, ""), "[::1]:8080"),
        ("https://bücher.example", (True, "xn--bcher-kva.example", 443, ""), "xn--bcher-kva.example"),
        ("https://b..ü", (True, "b..ü", 443, ""), "b..ü"),
    ],
)
def test_the_parts_of_a_url(url, place, header):
    assert Place.of(url) == place
    assert Place.of(url).header == header


async def test_ipv6(monkeypatch):
    try:
        server = await asyncio.start_server(RawServer()._serve, "::1", 0)
    except OSError:
        pytest.skip("there is no IPv6")
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = opened(f"http://[::1]:{port}")
        assert await ask(client) == b"ok"
        await client.aclose()


async def test_the_next_address_is_used_if_one_refuses(monkeypatch):
    async with RawServer(OK).serving() as server:
        with free_ports.port() as closed:
            resolves(monkeypatch, ("127.0.0.1", closed), ("127.0.0.1", server.port))
            client = opened("http://api.internal:1")
            assert await ask(client) == b"ok"
            await client.aclose()


async def test_the_next_address_is_used_if_tls_fails(monkeypatch, authority):
    stranger = trustme.CA()
    async with (
        RawServer(OK).serving(server_tls(stranger)) as wrong,
        RawServer(OK).serving(server_tls(authority)) as right,
    ):
        resolves(monkeypatch, ("127.0.0.1", wrong.port), ("127.0.0.1", right.port))
        client = opened("https://api.internal:1", ssl=trusting(authority))
        assert await ask(client) == b"ok"
        await client.aclose()


async def test_a_burst_of_connections_resolves_the_name_once(monkeypatch):
    async with RawServer(OK).serving() as server:
        asked = resolves(monkeypatch, ("127.0.0.1", server.port))
        client = opened("http://api.internal:1")
        await asyncio.gather(*(ask(client) for _ in range(20)))
        assert server.connections == 20
        assert asked == ["api.internal"]
        client._dialer._resolved_until = 0.0
        await asyncio.gather(*(ask(client) for _ in range(21)))
        assert asked == ["api.internal"] * 2
        await client.aclose()


def test_a_name_is_resolved_by_the_system(run):
    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server.url.replace("127.0.0.1", "localhost"))
            assert await ask(client) == b"ok"
            await client.aclose()

    run(main())


def test_failed_connections_free_their_place(run):
    """More of them than there may be connections."""

    async def main():
        with free_ports.port() as port:
            client = opened(f"http://127.0.0.1:{port}")
            for failure in await asyncio.gather(*(fails(client) for _ in range(70))):
                assert failure.message == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
            assert client._open == 0
            await client.aclose()

    run(main())


def test_tls_with_a_client_certificate(run, authority):
    """It is read again from the context for each new connection."""

    async def main():
        theirs = server_tls(authority)
        theirs.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(theirs)
        ours = trusting(authority)
        async with RawServer(OK).serving(theirs) as server:
            client = opened(f"https://127.0.0.1:{server.port}", ssl=ours, tls_server_name="api.internal.")
            failure = await fails(client)  # TLS 1.3: after the handshake
            assert failure.reason in {"Disconnected", "Certificate"}
            authority.issue_cert("hpad@example.org").configure_cert(ours)
            for _ in range(3):
                assert await ask(client) == b"ok"
            assert server.connections == 1
            await client.aclose()
            gc.collect()

    run(main())


def test_certificates_are_checked(run, authority):
    async def main():
        async with RawServer(OK).serving(server_tls(authority)) as server:
            url = f"https://127.0.0.1:{server.port}"
            for options, problem in (
                ({"ssl": trusting(authority)}, "IP address mismatch"),
                ({"ssl": trusting(trustme.CA()), "tls_server_name": "api.internal"}, "local issuer certificate"),
                ({}, "local issuer certificate"),
            ):
                client = opened(url, **options)
                failure = await fails(client)
                assert failure.reason == "Certificate"
                assert failure.message.startswith(f"{url}: the certificate is not accepted: ")
                assert problem in failure.message
                assert client._open == 0
                await client.aclose()
            assert server.requests == []

    run(main())


def test_a_peer_without_tls_is_an_error(run):
    async def speak(reader, writer):
        writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    async def main():
        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = opened(url, ssl=trusting())
        failure = await fails(client)
        assert failure.reason == "Certificate"
        assert failure.message.startswith(f"{url}: no TLS connection: ")
        await client.aclose()
        server.close()

    run(main())


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_peer_that_does_not_answer_is_a_timeout(run, monkeypatch, scheme):
    """With TLS the connection is not open yet: the limit for that is its own."""
    monkeypatch.setattr(dial, "CONNECT_S", 0.05)

    async def main():
        async with RawServer(silent).serving() as server:
            url = f"{scheme}://127.0.0.1:{server.port}"
            client = opened(url, ssl=trusting())
            failure = await fails(client, 30.0 if scheme == "https" else 0.05)
            assert (failure.reason, failure.message) == ("Timeout", f"{url} did not answer in time")
            await until(lambda: server.closed == 1)
            assert client._open == 0
            await client.aclose()

    run(main())


async def silent(peer):
    await peer.ended()


@pytest.mark.parametrize("ends", ["closing", "cancelling", "timing out"])
def test_a_connection_that_is_being_opened_ends(run, authority, ends):
    async def main():
        accepted = asyncio.Event()

        async def accept(reader, writer):
            accepted.set()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = opened(url, ssl=trusting(authority))
        opening = asyncio.ensure_future(fails(client, 0.05 if ends == "timing out" else 30.0))
        await accepted.wait()
        if ends == "closing":
            await client.aclose()
            assert not [each for each in client._sockets._sockets if each.fileno() >= 0]
            assert (await opening).message == f"the connection to {url} has been closed"
        elif ends == "cancelling":
            opening.cancel()
            await asyncio.wait({opening})
        else:
            assert (await opening).reason == "Timeout"
        assert client._open == 0
        await client.aclose()
        assert not [each for each in client._sockets._sockets if each.fileno() >= 0]
        server.close()
        gc.collect()

    run(main())


def test_closing_waits_until_tls_sockets_are_closed(run, authority):
    async def main():
        async with RawServer(OK).serving(server_tls(authority)) as server:
            client = opened(f"https://127.0.0.1:{server.port}", ssl=trusting(authority), tls_server_name="api.internal")
            await asyncio.gather(*(ask(client) for _ in range(5)))
            sockets = list(client._sockets._sockets)
            assert len([each for each in sockets if each.fileno() >= 0]) == 5
            await client.aclose()
            assert [each for each in sockets if each.fileno() >= 0] == []
            gc.collect()

    run(main())


def test_a_peer_that_ignores_the_end_of_tls_does_not_delay_closing(run, authority):
    """A relay drops the close_notify."""

    async def main():
        async with RawServer(OK).serving(server_tls(authority)) as server:
            between = Relay(server.port)
            await between.start()
            url = f"https://127.0.0.1:{between.port}"
            client = opened(url, ssl=trusting(authority), tls_server_name="api.internal")
            assert await ask(client) == b"ok"
            sockets = list(client._sockets._sockets)
            between.freeze()
            await client.aclose()
            assert [each for each in sockets if each.fileno() >= 0] == []
            await between.stop()
            gc.collect()

    run(main())

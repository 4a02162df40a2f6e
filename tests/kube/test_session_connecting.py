"""How a session connects: addresses, names, TLS, client certificates that are renewed, and time limits."""

import asyncio
import contextlib
import gc
import socket
import ssl

import pytest
import trustme
from support import free_ports
from support.raw_http import OK, RawServer, ask, fails, opened
from support.relay import Relay
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube import connector, errors, session
from hpad.kube.auth.credentials import ClusterConfig, Credentials, Identity
from hpad.kube.client import Client
from hpad.kube.errors import ApiError


def server_tls(authority, name="api.internal"):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


def trusting(*authorities):
    context = ssl.create_default_context()
    for each in authorities:
        each.configure_trust(context)
    return context


def limits_connecting(monkeypatch, seconds):
    for module in (session, connector):
        monkeypatch.setattr(module, "CONNECT_S", seconds)


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
    ("url", "base"),
    [
        ("https://API.internal", "https://api.internal"),
        ("http://10.0.0.1:80/base path/x%20y", "http://10.0.0.1/base%20path/x%20y"),
        ("https://[fd00::1]:443", "https://[fd00::1]"),
        ("https://bücher.example:6443", "https://xn--bcher-kva.example:6443"),
        ("https://b..ü", "https://b..ü"),
    ],
)
def test_the_url_of_a_server_is_escaped(url, base):
    assert session._base(url) == base


async def test_the_next_address_is_used_if_one_refuses(monkeypatch, method):
    async with RawServer(OK).serving() as server:
        with free_ports.port() as closed:
            resolves(monkeypatch, ("127.0.0.1", closed), ("127.0.0.1", server.port))
            client = opened("http://api.internal:1")
            assert (await ask(client, method)).body == b"ok"
            await client.aclose()


async def closes(reader, writer):
    writer.close()


async def says_nothing(reader, writer):
    with contextlib.closing(writer):
        await reader.read()


@pytest.mark.parametrize("first", [closes, says_nothing])
async def test_the_next_address_is_used_if_tls_fails_at_one(monkeypatch, authority, method, first):
    limits_connecting(monkeypatch, 4.0)
    async with RawServer(OK).serving(server_tls(authority)) as server:
        broken = await asyncio.start_server(first, "127.0.0.1", 0)
        resolves(monkeypatch, broken.sockets[0].getsockname(), ("127.0.0.1", server.port))
        client = opened("https://api.internal:1", ssl=trusting(authority))
        assert (await ask(client, method)).body == b"ok"
        await client.aclose()
        broken.close()


async def test_an_address_whose_tls_fails_is_tried_once(monkeypatch, authority):
    tried = []

    async def breaks(reader, writer):
        tried.append(writer.get_extra_info("sockname"))
        writer.close()

    async with RawServer(OK).serving(server_tls(authority)) as server:
        broken = await asyncio.start_server(breaks, "127.0.0.1", 0)
        with free_ports.port() as closed:
            at = broken.sockets[0].getsockname()
            resolves(monkeypatch, ("127.0.0.1", closed), at, ("127.0.0.1", server.port))
            client = opened("https://api.internal:1", ssl=trusting(authority))
            assert (await ask(client, "PUT")).body == b"ok"
            assert tried == [at]
            await client.aclose()
        broken.close()


async def test_the_lookup_of_a_name_may_take_longer_than_to_connect(monkeypatch):
    """A system waits for 5 s for a name server that does not answer, before it asks the next one."""
    async with RawServer(OK).serving() as server:
        client = opened(server.url)
        getaddrinfo = asyncio.get_running_loop().getaddrinfo

        async def late(*arguments, **options):
            await asyncio.sleep(0.01)
            limits_connecting(monkeypatch, 30.0)
            return await getaddrinfo(*arguments, **options)

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", late)
        limits_connecting(monkeypatch, 0.0)
        assert (await ask(client, "PUT")).body == b"ok"
        await client.aclose()


async def test_a_name_may_end_with_a_dot(monkeypatch, authority, method):
    async with RawServer(OK).serving(server_tls(authority)) as server:
        asked = resolves(monkeypatch, ("127.0.0.1", server.port))
        client = opened("https://api.internal.", ssl=trusting(authority))
        assert (await ask(client, method)).body == b"ok"
        assert asked == ["api.internal."]
        await client.aclose()


async def test_a_burst_of_connections_resolves_the_name_once(monkeypatch, method):
    async with RawServer(OK).serving() as server:
        asked = resolves(monkeypatch, ("127.0.0.1", server.port))
        client = opened("http://api.internal:1")
        await asyncio.gather(*(ask(client, method) for _ in range(20)))
        assert server.connections == 20
        assert asked == ["api.internal"]
        await client.aclose()


def test_tls_with_a_client_certificate(run, authority, method):
    """It is read again from the context for each new connection."""

    async def main():
        theirs = server_tls(authority)
        theirs.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(theirs)
        ours = trusting(authority)
        async with RawServer(OK).serving(theirs) as server:
            client = opened(f"https://127.0.0.1:{server.port}", ssl=ours, tls_server_name="api.internal.")
            assert (await fails(client, method)).reason in {
                "Disconnected",
                "Certificate",
            }  # TLS 1.3: after the handshake
            authority.issue_cert("hpad@example.org").configure_cert(ours)
            for _ in range(3):
                assert (await ask(client, method)).body == b"ok"
            assert len(server.requests) == 3
            await client.aclose()
            gc.collect()

    run(main())


def test_certificates_are_checked(run, authority, method):
    async def main():
        async with RawServer(OK).serving(server_tls(authority)) as server:
            url = f"https://127.0.0.1:{server.port}"
            for options, problem in (
                ({"ssl": trusting(authority)}, "IP address mismatch"),
                ({"ssl": trusting(trustme.CA()), "tls_server_name": "api.internal"}, "local issuer certificate"),
                ({}, "local issuer certificate"),
            ):
                client = opened(url, **options)
                failure = await fails(client, method)
                assert failure.reason == "Certificate"
                assert failure.message.startswith(f"{url}: the certificate is not accepted: ")
                assert problem in failure.message
                await client.aclose()
            assert server.requests == []

    run(main())


async def test_a_failure_names_the_server_as_it_was_configured(method):
    with free_ports.port() as port:
        client = opened(f"http://LocalHost:{port}/k8s/cluster a")
        failure = await fails(client, method)
        assert failure.message == f"http://LocalHost:{port}/k8s/cluster a cannot be reached: Connection refused"
        await client.aclose()


def test_an_error_of_asyncio_without_a_text_is_described():
    """One for a connection that ends in the TLS handshake."""
    assert errors.unreachable("x", ConnectionResetError())[1] == "x cannot be reached: connection reset"


def test_a_peer_without_tls_is_an_error(run, method):
    async def speak(reader, writer):
        with contextlib.closing(writer):
            writer.write(b"HTTP/1.0 400 Bad Request\r\n\r\n")
            await reader.read()

    async def main():
        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = opened(url, ssl=trusting())
        failure = await fails(client, method)
        assert failure.reason == "Certificate"
        assert failure.message.startswith(f"{url}: no TLS connection: ")
        await client.aclose()
        server.close()

    run(main())


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_peer_that_does_not_answer_is_a_timeout(run, monkeypatch, scheme, method):
    """With TLS the connection is not open yet: the limit for that is its own."""
    limits_connecting(monkeypatch, 0.05)

    async def silent(peer):
        await peer.ended()

    async def main():
        async with RawServer(silent).serving() as server:
            url = f"{scheme}://127.0.0.1:{server.port}"
            client = opened(url, ssl=trusting())
            failure = await fails(client, method, timeout=30.0 if scheme == "https" else 0.05)
            assert (failure.reason, failure.message) == ("Timeout", f"{url} did not answer in time")
            await until(lambda: server.closed == server.connections)
            await client.aclose()

    run(main())


@pytest.mark.parametrize("ends", ["cancelling", "timing out"])
def test_a_connection_that_is_being_opened_ends(run, authority, ends, method):
    async def main():
        accepted, closed = asyncio.Event(), asyncio.Event()

        async def accept(reader, writer):
            accepted.set()
            with contextlib.closing(writer):
                await reader.read()
            closed.set()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = opened(url, ssl=trusting(authority))
        opening = asyncio.ensure_future(fails(client, method, timeout=4.0 if ends == "timing out" else 30.0))
        await accepted.wait()
        if ends == "cancelling":
            opening.cancel()
            await asyncio.wait({opening})
        else:
            assert (await opening).reason == "Timeout"
        await closed.wait()
        await client.aclose()
        server.close()
        gc.collect()

    run(main())


def test_closing_closes_tls_sockets_also_if_the_peer_ignores_it(run, authority, method):
    """A relay drops what it is sent."""

    async def main():
        async with RawServer(OK).serving(server_tls(authority)) as server:
            between = Relay(server.port)
            await between.start()
            url = f"https://127.0.0.1:{between.port}"
            client = opened(url, ssl=trusting(authority), tls_server_name="api.internal")
            assert (await ask(client, method)).body == b"ok"
            between.freeze()
            await client.aclose()
            gc.collect()  # a transport that is not closed warns, and warnings are errors
            await between.stop()

    run(main())


# Client certificates that are renewed.


class Judging:
    """A server that judges the certificate of a connection at each request, as API servers do."""

    def __init__(self, authority):
        self.tls = server_tls(authority)
        self.tls.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(self.tls)
        self.mine = trusting(authority)
        self.expired: set[str] = set()
        self.seen: list[tuple[str, int]] = []
        self.held = asyncio.Event()
        self._authority = authority
        self._readings = 0

    def reads(self) -> Credentials:
        self._readings += 1
        self._authority.issue_cert(f"{self._readings}@example.org").configure_cert(self.mine)
        return Credentials()

    def identity(self) -> Identity:
        return Identity(self.reads(), self.reads)

    async def judges(self, peer):
        subject = str(peer._writer.get_extra_info("peercert")["subjectAltName"][0][1])
        self.seen.append((subject, id(peer)))
        if subject in self.expired:
            await peer.says(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
        else:
            if len(self.seen) == 1:
                await self.held.wait()
            await peer.says(OK)


@pytest.mark.parametrize("watches", [False, True])
async def test_requests_after_a_renewal_use_new_connections(authority, watches):
    """The one in progress ends on its own connection, which is not used again."""
    judging = Judging(authority)
    async with RawServer(judging.judges).serving(judging.tls) as server:
        config = ClusterConfig(
            f"https://127.0.0.1:{server.port}",
            ssl=judging.mine,
            tls_server_name="api.internal",
            identity=judging.identity(),
            certified=True,
        )
        async with Client(config, SystemClock()) as client:
            busy = asyncio.ensure_future(client.request("GET", "/"))
            await until(lambda: judging.seen)
            await client.request("GET", "/")  # leaves an idle connection with the first certificate
            judging.expired.add("1@example.org")
            if watches:
                with pytest.raises(ApiError, match="credentials"):
                    async for _ in client.stream("/watch", {}, 30.0):
                        pass
                assert [part async for part in client.stream("/watch", {}, 30.0)] == [b"ok"]
            else:
                answers = await asyncio.gather(*(client.request("PUT", "/", body=b"{}") for _ in range(5)))
                assert answers == [b"ok"] * 5
            judging.held.set()
            assert await busy == b"ok"
            judging.seen.clear()
            await asyncio.gather(*(client.request("GET", "/") for _ in range(9)))
            assert {subject for subject, _ in judging.seen} == {"2@example.org"}

"""Streams over HTTP/2, and servers with which the client speaks HTTP/1.1, on both event loops."""

import asyncio
import ssl

import pytest
from support.h2_server import (
    HEAD,
    MAX_STREAMS,
    H2Server,
    ask,
    client_of,
    fails,
    never,
    ok,
    server_tls,
    trusting,
)
from support.raw_http import OK, Peer, RawServer
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.exchange import Failed, whole
from hpad.kube.http.shared import Shared

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"


async def counts(peer):
    """Sends two parts, with a pause, and ends."""
    peer.begins(x="y")
    await peer.says(b"a")
    await asyncio.sleep(0.01)
    await peer.says(b"b", end=True)


async def begins(peer):
    """Sends a part, and leaves the stream open."""
    peer.begins()
    await peer.says(b"a")


def test_a_stream_is_read_as_it_arrives_on_a_connection_of_its_own(run, authority):
    async def main():
        async with (
            H2Server(ok, counts).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            for _ in range(3):
                async with client.stream("/watch?watch=1", HEAD, 30.0) as stream:
                    assert (stream.status, stream.headers) == (200, {"X": "y"})
                    assert await whole(stream, 99) == b"ab"
            assert [each.path for each in server.requests] == ["/path", *["/watch?watch=1"] * 3]
            assert len(server.connections) == 2

    run(main())


def test_many_streams_run_at_once_and_requests_beside_them(run, authority):
    """More than the server allows on one connection: then there are several."""

    async def main():
        server = H2Server(begins, settings={MAX_STREAMS: 3})
        async with server.serving(server_tls(authority, "h2")), client_of(server.url, authority) as client:
            enough, reading = asyncio.Event(), []

            async def watch():
                async with client.stream("/watch", HEAD, 30.0) as stream:
                    assert await stream.read() == b"a"
                    reading.append(1)
                    await enough.wait()

            tasks = [asyncio.ensure_future(watch()) for _ in range(7)]
            await until(lambda: len(reading) == 7)
            assert [len(each.peers) for each in server.connections] == [3, 3, 1]
            server.replies = [ok]
            assert (await ask(client)).body == b"ok"
            enough.set()
            await asyncio.gather(*tasks)
            await until(lambda: all(each.reset == 8 for each in server.requests[:7]))
            server.replies = [begins]
            await watch()  # where there is room again
            assert len(server.connections) == 4

    run(main())


def test_a_dropped_stream_is_reset(run, authority):
    async def main():
        async with (
            H2Server(begins).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            for number in range(3):
                async with client.stream("/watch", HEAD, 30.0) as stream:
                    assert await stream.read() == b"a"
                await until(lambda: server.requests[number].reset == 8)  # noqa: B023
            assert len(server.connections) == 1

    run(main())


def test_a_stream_that_is_cancelled_before_its_headers_is_reset(run, authority):
    async def main():
        async with (
            H2Server(never).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):

            async def watch():
                async with client.stream("/watch", HEAD, 30.0):
                    raise AssertionError

            task = asyncio.ensure_future(watch())
            await until(lambda: server.requests)
            task.cancel()
            await until(lambda: server.requests[0].reset == 8)

    run(main())


@pytest.mark.parametrize("reply", [never, begins])
def test_a_silent_stream_fails_after_its_time(run, authority, reply):
    async def silent_later(peer):
        later = peer.connection is server.connections[0] and peer.stream > 1
        await (reply if later else ok)(peer)

    server = H2Server(silent_later)

    async def main():
        async with server.serving(server_tls(authority, "h2")), client_of(server.url, authority) as client:
            async with client.stream("/watch", HEAD, 30.0) as stream:
                assert await whole(stream, 99) == b"ok"
            with pytest.raises(Failed) as caught:
                async with client.stream("/watch", HEAD, 0.05) as stream:
                    await whole(stream, 99)
            assert caught.value.reason == "Timeout"
            async with client.stream("/watch", HEAD, 30.0) as stream:
                assert await whole(stream, 99) == b"ok"
            assert len(server.connections) == 2  # on the first one, nothing was heard

    run(main())


def test_what_arrives_while_a_stream_holds_is_read_at_once(run, authority):
    go = asyncio.Event()

    async def large(peer):
        peer.begins()
        await peer.says(b"a")
        await go.wait()
        for _ in range(50):
            await peer.says(b"b" * 1000)
        await peer.says(b"", end=True)

    async def main():
        async with (
            H2Server(large).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
            client.stream("/watch", HEAD, 30.0) as stream,
        ):
            assert await stream.read() == b"a"

            async def wait():
                go.set()
                await asyncio.sleep(0.1)
                assert not stream._parts

            await stream.hold(wait)
            assert await whole(stream, 10**6) == b"b" * 50_000

    run(main())


def test_a_stream_larger_than_the_window_is_read_to_its_end(run, authority):
    body = bytes(range(256)) * 2**16  # 16 MiB

    async def large(peer):
        peer.begins()
        await peer.says(body, end=True)

    async def main():
        async with (
            H2Server(large).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
            client.stream("/list", HEAD, 30.0) as stream,
        ):
            await stream.hold(lambda: asyncio.sleep(0.05))
            assert await whole(stream, 2**25) == body

    run(main())


@pytest.mark.parametrize("status", [404, 410, 500])
def test_an_error_is_read_from_a_stream(run, authority, status):
    async def refuses(peer):
        await peer.answers(b"why", status, retry_after="3")

    async def main():
        async with (
            H2Server(refuses).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
            client.stream("/watch", HEAD, 30.0) as stream,
        ):
            assert (stream.status, stream.headers, await whole(stream, 99)) == (status, {"Retry-After": "3"}, b"why")

    run(main())


def test_a_stream_that_breaks_off_fails(run, authority):
    async def breaks(peer):
        await begins(peer)
        peer.connection.transport.abort()

    async def main():
        async with (
            H2Server(breaks).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            with pytest.raises(Failed) as caught:
                async with client.stream("/watch", HEAD, 30.0) as stream:
                    await whole(stream, 99)
            assert (caught.value.reason, caught.value.status) in {("Disconnected", 200), ("Disconnected", 0)}

    run(main())


@pytest.mark.parametrize("ends", ["refuses", "aborts", "goes away"])
def test_a_stream_on_a_connection_that_turns_out_to_be_closed_is_begun_again(run, authority, ends):
    async def refusing(peer):
        if ends == "refuses":
            peer.resets(7)
        elif ends == "aborts":
            peer.connection.transport.abort()
        else:
            peer.connection.goes_away(last=peer.stream - 2)

    async def main():
        async with (
            H2Server(counts, refusing, counts).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            for _ in range(2):
                async with client.stream("/watch", HEAD, 30.0) as stream:
                    assert await whole(stream, 99) == b"ab"
            assert len(server.requests) == 3

    run(main())


def test_a_stream_goes_on_while_the_server_goes_away_and_the_next_is_on_a_new_connection(run, authority):
    """As a watch does when an API server is told to spread its clients (--goaway-chance)."""

    async def main():
        async with (
            H2Server(begins).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            async with client.stream("/watch", HEAD, 30.0) as first:
                assert await first.read() == b"a"
                (connection,) = server.connections
                # the library closes for good at once, which Go does not: so the frame is sent as bytes
                connection.transport.write(bytes.fromhex("000008 07 00 00000000 7fffffff 00000000"))
                await until(lambda: client._streams[0]._current is None)
                async with client.stream("/watch", HEAD, 30.0) as second:
                    assert await second.read() == b"a"
                await server.requests[0].says(b"b", end=True)
                assert await whole(first, 99) == b"b"
            await until(lambda: connection.closed)
            assert len(server.connections) == 2

    run(main())


def test_closing_ends_streams_and_no_stream_begins_later(run, authority):
    async def main():
        async with (
            H2Server(begins).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            async with client.stream("/watch", HEAD, 30.0) as stream:
                await stream.read()
                await client.aclose()
                with pytest.raises(Failed, match="has been closed"):
                    await stream.read()
            with pytest.raises(Failed, match="has been closed"):
                async with client.stream("/watch", HEAD, 30.0):
                    pass
            assert len(server.connections) == 1

    run(main())


async def test_no_stream_begins_on_a_client_that_was_closed_before_the_first(authority):
    async with H2Server(begins).serving(server_tls(authority, "h2")) as server:
        async with client_of(server.url, authority) as client:
            await client.aclose()
            with pytest.raises(Failed, match="has been closed"):
                async with client.stream("/watch", HEAD, 30.0):
                    pass
        assert server.connections == []


# Servers with HTTP/1.1.


@pytest.mark.parametrize("protocols", [(), ("http/1.1",)], ids=["no ALPN", "http/1.1"])
@pytest.mark.parametrize("first", ["request", "stream", "both"])
def test_a_server_without_http_2_is_spoken_to_in_http_1(run, authority, protocols, first):
    async def replies(peer: Peer) -> None:
        await peer.says(OK)

    async def main():
        async with RawServer(replies).serving(server_tls(authority, *protocols)) as server:
            url = server.url.replace("http:", "https:")
            async with client_of(url, authority) as client:
                if first == "both":
                    answers = await asyncio.gather(*(ask(client, "PUT", b"{}") for _ in range(5)), streamed(client))
                    assert [each if isinstance(each, bytes) else each.body for each in answers] == [b"ok"] * 6
                elif first == "stream":
                    assert await streamed(client) == b"ok"
                else:
                    assert (await ask(client, "POST", b"{}")).body == b"ok"
                before = server.connections
                assert (await ask(client)).body == b"ok"
                assert await streamed(client) == b"ok"
                assert await streamed(client) == b"ok"
                assert server.connections <= before + 2  # no attempt with HTTP/2 any more
                assert client._running == 0

    async def streamed(client):
        async with client.stream("/watch", HEAD, 30.0) as stream:
            return await whole(stream, 99)

    run(main())


def test_a_server_that_gives_up_http_2_is_spoken_to_in_http_1(run, authority):
    """As after it was replaced by a proxy; ALPN decides for each connection."""

    async def main():
        tls = server_tls(authority, "h2", "http/1.1")
        async with H2Server().serving(tls) as server, client_of(server.url, authority) as client:
            await ask(client)
            (connection,) = server.connections
            tls.set_alpn_protocols(["http/1.1"])
            server.speaks = False
            connection.transport.close()
            await until(lambda: connection.closed)
            task = asyncio.ensure_future(ask(client))  # the server of the library says nothing in HTTP/1.1
            await until(lambda: b"GET /path HTTP/1.1\r\n" in (server.connections[-1]._unread or b""))
            assert not client._multiplexed
            task.cancel()
            await asyncio.wait({task})

    run(main())


async def test_a_client_certificate_is_sent(authority):
    tls = server_tls(authority, "h2")
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    mine = trusting(authority)
    authority.issue_cert("hpad@example.org").configure_cert(mine)
    async with H2Server().serving(tls) as server:
        client = Shared(ClusterConfig(server.url, ssl=mine, certified=True), SystemClock(), "hpad", 99)
        assert (await ask(client)).body == b"ok"
        assert "hpad@example.org" in repr(server.connections[0].certificate)
        await client.aclose()
        stranger = Shared(ClusterConfig(server.url, ssl=trusting(authority)), SystemClock(), "hpad", 99)
        assert (await fails(stranger)).reason == "Disconnected"  # TLS 1.3 refuses it after the handshake
        with pytest.raises(Failed) as caught:
            async with stranger.stream("/watch", HEAD, 30.0):
                pass
        assert caught.value.reason == "Disconnected"
        await stranger.aclose()

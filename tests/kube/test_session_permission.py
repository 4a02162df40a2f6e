"""The permission of a write, by a session of HTTP, and streams."""

import asyncio
import contextlib
import gc
import math
import socket
import ssl
import threading

import pytest
from support.raw_http import OK, RawServer, ask, fails, opened
from support.scripted_server import until

from hpad.kube import connector, session
from hpad.kube.exchange import Failed
from hpad.kube.session import NotAllowed


def stops() -> float:
    raise NotAllowed


async def silent(peer):
    await peer.ended()


def test_a_write_that_is_not_allowed_leaves_its_turn_to_the_next(run, monkeypatch):
    monkeypatch.setattr(session, "AT_ONCE", 1)

    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server.url)
            for _ in range(3):
                with pytest.raises(NotAllowed):
                    await ask(client, "PUT", b"{}", stops)
            assert (await ask(client, "PUT", b"{}", lambda: None)).body == b"ok"
            assert await ask(client, "GET", None, stops)  # a read is not checked
            assert len(server.requests) == 2
            await client.aclose()

    run(main())


@pytest.mark.parametrize("error", [RuntimeError("mine"), OSError("mine"), TimeoutError("mine")])
async def test_an_error_of_the_check_is_not_taken_for_one_of_the_network(error):
    def check() -> float:
        raise error

    client = opened("http://127.0.0.1:1")
    with pytest.raises(type(error), match="mine"):
        await ask(client, "PUT", b"{}", check)
    await client.aclose()


async def test_the_permission_is_asked_when_a_write_has_its_turn(monkeypatch):
    monkeypatch.setattr(session, "AT_ONCE", 1)
    go, asked = asyncio.Event(), []

    async def waits(peer):
        await go.wait()
        await peer.says(OK)

    async with RawServer(waits).serving() as server:
        client = opened(server.url)
        first = asyncio.ensure_future(ask(client))
        second = asyncio.ensure_future(ask(client, "PUT", b"{}", lambda: asked.append(go.is_set())))
        await until(lambda: server.requests)
        go.set()
        await asyncio.gather(first, second)
        assert asked == [True]
        await client.aclose()


@pytest.mark.parametrize("seconds", [4.0, 0.0, -1.0])
def test_a_write_ends_with_its_permission(run, seconds):
    async def main():
        async with RawServer(silent).serving() as server:
            client = opened(server.url)
            failure = await fails(client, "PUT", b"{}", lambda: seconds, timeout=600.0)
            assert failure.reason == "Timeout"
            assert failure.message == f"{server.url} did not answer before the permission for the write ended"
            assert len(server.requests) == (1 if seconds > 0 else 0)
            failure = await fails(client, "PUT", b"{}", lambda: 600.0, timeout=0.1)
            assert failure.message == f"{server.url} did not answer in time"
            await client.aclose()

    run(main())


async def test_a_write_that_fails_before_its_permission_ends_is_not_said_to_end_with_it(monkeypatch):
    monkeypatch.setattr(connector, "CONNECT_S", 0.1)

    async def says_nothing(reader, writer):
        with contextlib.closing(writer):
            await reader.read(-1)

    async with await asyncio.start_server(says_nothing, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = opened(url)
        assert (await fails(client, "PUT", b"{}", lambda: 20.0)).message == f"{url} did not answer in time"
        await client.aclose()


async def test_a_process_that_stands_still_while_it_connects_does_not_write_later(monkeypatch):
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def stands_still(*arguments, **options):
        connected = await connect(*arguments, **options)
        resumed = loop.time() + 0.3
        while loop.time() < resumed:  # as between SIGSTOP and SIGCONT
            pass
        return connected

    async with RawServer(OK).serving() as server:
        client = opened(server.url)
        monkeypatch.setattr(loop, "create_connection", stands_still)
        failure = await fails(client, "PUT", b"{}", lambda: 0.2)
        assert failure.message == f"{server.url} did not answer before the permission for the write ended"
        await client.aclose()
        await until(lambda: server.closed == server.connections == 1)
    assert server.requests == []


async def test_the_end_of_a_permission_is_not_rounded_up(monkeypatch):
    """aiohttp does that by default, to have fewer timers."""
    loop, timers = asyncio.get_running_loop(), []
    async with RawServer(OK).serving() as server:
        client = opened(server.url)
        await ask(client)
        call_at = loop.call_at
        monkeypatch.setattr(
            loop, "call_at", lambda when, *rest, **more: timers.append(when) or call_at(when, *rest, **more)
        )
        before = loop.time()
        await ask(client, "PUT", b"{}", lambda: 8.3, timeout=600.0)
        after = loop.time()
        monkeypatch.undo()
        await client.aclose()
    assert any(before + 8.3 <= each <= after + 8.3 for each in timers)
    assert max(timers) <= after + 8.3 or math.isinf(max(timers))


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_what_the_kernel_holds_of_a_write_ends_with_its_permission(run, authority, secured):
    """A closed socket would deliver it for minutes, as soon as the network lets it."""
    server_tls, client_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server_tls)
    authority.configure_trust(client_tls)
    ended, received = threading.Event(), bytearray()

    def reads_late(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        if secured:
            connection = server_tls.wrap_socket(connection, server_side=True)
        with connection:
            ended.wait(60)
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(2**16):
                    received.extend(part)

    async def main(listener: socket.socket) -> None:
        url = f"http{'s' * secured}://127.0.0.1:{listener.getsockname()[1]}"
        reading = asyncio.create_task(asyncio.to_thread(reads_late, listener))
        client = opened(url, ssl=client_tls if secured else None)
        failure = await fails(client, "PUT", b"x" * 60_000, lambda: 4.0)
        await client.aclose()
        ended.set()
        await reading
        assert failure.reason == "Timeout"
        assert len(received) < 60_000

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # the rest stays at the sender
        listener.settimeout(30)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        run(main(listener))


# Streams.


def test_a_dropped_stream_closes_its_connection(run):
    async def begins(peer):
        await peer.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.ended()

    async def main():
        async with RawServer(begins).serving() as server:
            client = opened(server.url)
            for number in (1, 2):
                async with client.stream("/watch", {}, 30.0) as stream:
                    assert await stream.read() == b"a"
                await until(lambda: server.closed == number)  # noqa: B023
            await client.aclose()

    run(main())


def test_a_silent_stream_fails_after_its_time(run):
    async def main():
        async with RawServer(silent).serving() as server:
            client = opened(server.url)
            with pytest.raises(Failed) as caught:
                async with client.stream("/watch", {}, 0.1):
                    pass
            assert caught.value.message == f"{server.url} did not answer in time"
            await until(lambda: server.closed == server.connections)
            await client.aclose()

    run(main())


def test_a_stream_that_is_not_read_holds_a_bounded_amount(run):
    sent = 0

    async def floods(peer):
        nonlocal sent
        await peer.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await peer.says(b"10000\r\n" + b"x" * 2**16 + b"\r\n")
            sent += 2**16

    async def main():
        async with RawServer(floods).serving() as server:
            client = opened(server.url)
            async with client.stream("/watch", {}, 30.0) as stream:
                await stream.read()
                before = -1
                while before != sent:  # until the server is held up
                    before = sent
                    await asyncio.sleep(0.1)
                held = stream._answer.content.total_bytes
                assert held < 2**20
            await client.aclose()

    run(main())


def test_closing_ends_streams_and_no_stream_begins_later(run):
    async def begins(peer):
        await peer.says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await peer.ended()

    async def main():
        async with RawServer(begins).serving() as server:
            client = opened(server.url)
            async with client.stream("/watch", {}, 30.0) as stream:
                await stream.read()
                await client.aclose()
                with pytest.raises(Failed):
                    await stream.read()
            with pytest.raises(Failed, match="has been closed"):
                async with client.stream("/watch", {}, 30.0):
                    pass
            assert server.connections == 1
            gc.collect()

    run(main())

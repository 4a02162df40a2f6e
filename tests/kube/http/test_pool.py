"""Connections of requests: how many, which request gets which, and when they are closed."""

import asyncio
import gc

import pytest
from support import virtual_time
from support.raw_http import OK, Peer, RawServer
from support.requests_of_pool import HEAD, ask, fails, opened
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http import pool
from hpad.kube.http.exchange import Failed
from hpad.kube.http.pool import Pool

PART = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"


async def says_a_part_and_closes(peer: Peer) -> None:
    await peer.says(PART)
    peer.closes()


def test_requests_share_a_connection(run):
    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            for _ in range(5):
                assert (await ask(client)).body == b"ok"
            assert server.connections == 1
            await client.aclose()
            await until(lambda: server.closed == 1)

    run(main())


def test_a_connection_with_an_unfinished_answer_is_not_used_again(run):
    """Cancelled, timed out, or broken off: the rest of the answer belongs to no other request."""

    async def later(peer):
        await peer.says(PART)
        assert await peer.ended()

    async def main():
        async with RawServer(later).serving() as server:
            client = opened(server)
            cancelled = asyncio.ensure_future(ask(client))
            await until(lambda: len(server.requests) == 1)
            cancelled.cancel()
            await asyncio.wait({cancelled})
            failure = await fails(client, timeout=1.0)  # enough to connect and to send the request
            assert (failure.reason, failure.status in (0, 200)) == ("Timeout", True)
            await until(lambda: server.closed == 2)
            server._replies = [says_a_part_and_closes, OK]
            assert (await fails(client)).reason == "Disconnected"
            assert (await ask(client)).body == b"ok"
            assert server.connections == 4
            await client.aclose()

    run(main())


def test_a_connection_that_receives_more_than_its_answer_is_not_used_again(run):
    async def again(peer):
        await peer.says(OK)
        await asyncio.sleep(0.05)
        await peer.says(OK)

    async def main():
        async with RawServer(OK + OK, again, OK).serving() as server:
            client = opened(server)
            for expected in (1, 2):
                await ask(client)
                await until(lambda: server.closed == expected)  # noqa: B023
            await ask(client)
            assert server.connections == 3
            await client.aclose()

    run(main())


def test_a_server_that_speaks_first_is_refused(run):
    async def speaks(reader, writer):
        writer.write(OK)
        await reader.read()
        writer.close()

    async def main():
        server = await asyncio.start_server(speaks, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = Pool(ClusterConfig(url), SystemClock(), "hpad", 99)
        outcomes = await asyncio.gather(*(ask(client) for _ in range(9)), return_exceptions=True)
        # Bytes that arrive after the request was written cannot be told from an answer.
        assert all(isinstance(each, Failed) or each.body == b"ok" for each in outcomes)
        await client.aclose()
        server.close()

    run(main())


def test_waiting_requests_are_served_in_order(run, monkeypatch):
    monkeypatch.setattr(pool, "AT_ONCE", 1)
    go = asyncio.Event()

    async def waits(peer):
        await go.wait()
        await peer.says(OK)

    async def main():
        async with RawServer(waits).serving() as server:
            client = opened(server)
            tasks = [
                asyncio.ensure_future(client.send("GET", f"/{number}", HEAD, None, 30.0, None)) for number in range(8)
            ]
            await until(lambda: server.requests)
            tasks[3].cancel()  # it waits
            tasks[0].cancel()  # its connection is closed; the next one opens another
            await until(lambda: len(server.requests) == 2)
            assert len(client._waiting) == 5  # without the one that was cancelled
            go.set()
            await asyncio.wait(tasks)
            assert [int(each.split()[1][1:]) for each in server.requests] == [0, 1, 2, 4, 5, 6, 7]
            assert server.connections == 2
            await client.aclose()

    run(main())


def test_a_request_times_out_while_it_waits_for_a_connection(run, monkeypatch):
    monkeypatch.setattr(pool, "AT_ONCE", 1)
    go = asyncio.Event()

    async def waits(peer):
        await go.wait()
        await peer.says(OK)

    async def main():
        async with RawServer(waits).serving() as server:
            client = opened(server)
            first = asyncio.ensure_future(ask(client))
            await until(lambda: server.requests)
            failure = await fails(client, "POST", b"{}", timeout=0.02)
            assert failure.message == f"{server.url} did not answer in time"
            go.set()
            await first
            assert (await ask(client)).body == b"ok"
            assert (server.connections, len(server.requests)) == (1, 2)
            await client.aclose()

    run(main())


@pytest.mark.parametrize("gets", ["a connection", "the right to open one"])
def test_a_request_that_is_cancelled_when_its_turn_comes_passes_it_on(run, monkeypatch, gets):
    monkeypatch.setattr(pool, "AT_ONCE", 1)

    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            connection = await client._another(asyncio.get_running_loop(), asyncio.get_running_loop().time() + 9)
            waiting = [asyncio.ensure_future(ask(client)) for _ in range(2)]
            await asyncio.sleep(0)
            if gets == "a connection":
                client.release(connection)
            else:
                connection.abort()
            waiting[0].cancel()
            assert (await waiting[1]).body == b"ok"
            assert waiting[0].cancelled()
            assert (client._open, len(client._idle)) == (1, 1)
            await client.aclose()

    run(main())


def test_a_connection_that_closes_when_its_turn_comes_is_replaced(run, monkeypatch):
    """Nothing was sent on it, so that a POST is sent on another."""
    monkeypatch.setattr(pool, "AT_ONCE", 1)

    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            await ask(client)
            connection = client._reused(asyncio.get_running_loop().time())
            assert connection is not None
            waiting = asyncio.ensure_future(ask(client, "POST", b"{}"))
            await asyncio.sleep(0)
            client.release(connection)
            connection.abort()
            assert (await waiting).body == b"ok"
            assert (server.connections, client._open) == (2, 1)
            await client.aclose()

    run(main())


def test_idle_connections_are_closed_after_their_time():
    """The one used last is used first, so that the others become idle."""

    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            await asyncio.gather(*(ask(client) for _ in range(4)))
            for _ in range(7):
                await asyncio.sleep(10)
                await ask(client)
            assert server.closed == 0
            await asyncio.sleep(10)
            await until(lambda: server.closed == 3)
            await ask(client)
            await asyncio.sleep(74)
            assert server.closed == 3
            await ask(client)
            await asyncio.sleep(76)
            await until(lambda: server.closed == 4)
            assert server.connections == 4
            await ask(client)
            assert server.connections == 5
            await client.aclose()

    virtual_time.run(main(), io_grace=0.02)


async def test_a_new_connection_takes_the_place_of_an_idle_one(monkeypatch):
    """As for a repeated request, when others have taken the place of its dropped connection."""
    monkeypatch.setattr(pool, "AT_ONCE", 1)
    async with RawServer(OK).serving() as server:
        client = opened(server)
        await ask(client)
        client.release(await client._another(asyncio.get_running_loop(), asyncio.get_running_loop().time() + 30))
        await until(lambda: server.closed == 1)
        assert (server.connections, client._open, len(client._idle)) == (2, 1, 1)
        await client.aclose()


async def test_a_connection_is_not_used_after_its_time_even_if_no_timer_fired():
    """As after a process was stopped: the server has closed it, or is about to."""
    async with RawServer(OK).serving() as server:
        client = opened(server)
        await ask(client)
        client._idle[0].idle_since -= pool.KEEP_ALIVE_S
        await ask(client, "POST", b"{}")
        assert server.connections == 2
        await client.aclose()


async def test_an_idle_connection_that_the_server_closes_leaves_the_pool():
    async def once(peer):
        await peer.says(OK)
        peer.closes()

    async with RawServer(once).serving() as server:
        client = opened(server)
        await ask(client)
        await until(lambda: not client._idle)
        assert client._open == 0
        assert (await ask(client, "POST", b"{}")).body == b"ok"
        await client.aclose()


def test_a_large_body_is_sent_whole(run):
    body = b"x" * (2**25 - 1)

    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            await ask(client, "PUT", body)
            await ask(client)
            assert server.requests[0].endswith(b"\r\n\r\n" + body)
            assert server.connections == 1
            await client.aclose()

    run(main())


def test_a_large_answer_is_read_whole(run):
    body = bytes(range(256)) * 2**14

    async def main():
        async with RawServer(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        ).serving() as server:
            client = opened(server, largest=len(body))
            assert (await ask(client)).body == body
            await client.aclose()

    run(main())


def test_closing_ends_requests_in_progress_and_waiting_ones(run, monkeypatch):
    monkeypatch.setattr(pool, "AT_ONCE", 2)

    async def never(peer):
        assert await peer.ended()

    async def main():
        async with RawServer(OK, never).serving() as server:
            client = opened(server)
            await ask(client)
            tasks = [asyncio.ensure_future(fails(client)) for _ in range(5)]
            await until(lambda: len(server.requests) == 3)
            await client.aclose()
            assert {(await each).reason for each in tasks} == {"Closed"}
            assert (await fails(client)).message == f"the connection to {server.url} has been closed"
            assert not client._connections
            await until(lambda: server.closed == 2)
            gc.collect()  # a transport that is not closed warns, and warnings are errors

    run(main())

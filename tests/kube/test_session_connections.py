"""Over which connections requests go, how many run at once, and which are repeated."""

import asyncio
import gc

import pytest
from support import free_ports
from support.raw_http import OK, Peer, RawServer, ask, fails, opened
from support.scripted_server import until

from hpad.kube import kept, session
from hpad.kube.exchange import Failed, HttpRequest
from hpad.kube.session import AT_ONCE

PART = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"


async def closes(peer: Peer) -> None:
    peer.closes()


async def resets(peer: Peer) -> None:
    peer.resets()


async def silent(peer: Peer) -> None:
    await peer.ended()


def test_requests_share_connections(run, method):
    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server.url)
            for _ in range(5):
                assert (await ask(client, method)).body == b"ok"
            assert server.connections == 1
            await asyncio.gather(*(ask(client, method) for _ in range(200)))
            assert server.connections <= AT_ONCE
            await client.aclose()
            await until(lambda: server.closed == server.connections)

    run(main())


def test_a_connection_with_an_unfinished_answer_is_not_used_again(run, method):
    """Cancelled, timed out, or broken off: the rest of the answer belongs to no other request."""

    async def later(peer):
        await peer.says(PART)
        assert await peer.ended()

    async def main():
        async with RawServer(later, later, OK).serving() as server:
            client = opened(server.url)
            cancelled = asyncio.ensure_future(ask(client, method))
            await until(lambda: len(server.requests) == 1)
            cancelled.cancel()
            await asyncio.wait({cancelled})
            assert (await fails(client, method, timeout=4.0)).reason == "Timeout"
            await until(lambda: server.closed == 2)
            assert (await ask(client, method)).body == b"ok"
            assert server.connections == 3
            await client.aclose()

    run(main())


def test_a_connection_that_receives_more_than_its_answer_is_not_used_again(run, method):
    async def again(peer):
        await peer.says(OK)
        await asyncio.sleep(0.05)
        await peer.says(b"HTTP/1.1 500 Late\r\nContent-Length: 4\r\n\r\nlate")
        await asyncio.sleep(0.05)
        late.set()

    late = asyncio.Event()

    async def main():
        async with RawServer(again).serving() as server:
            client = opened(server.url)
            for expected in (1, 2, 3):
                assert (await ask(client, method)).body == b"ok"
                await asyncio.wait_for(late.wait(), 30)
                late.clear()
                assert server.connections == expected
            await client.aclose()

    run(main())


def test_waiting_requests_are_served_in_order(run, monkeypatch):
    monkeypatch.setattr(session, "AT_ONCE", 1)
    go = asyncio.Event()

    async def waits(peer):
        await go.wait()
        await peer.says(OK)

    async def main():
        async with RawServer(waits).serving() as server:
            client = opened(server.url)
            tasks = [
                asyncio.ensure_future(client.send(HttpRequest("GET", f"/{number}", {}), 30.0)) for number in range(8)
            ]
            await until(lambda: server.requests)
            tasks[3].cancel()  # it waits
            tasks[0].cancel()
            await until(lambda: len(server.requests) == 2)
            go.set()
            await asyncio.wait(tasks)
            assert [int(each.split()[1][1:]) for each in server.requests] == [0, 1, 2, 4, 5, 6, 7]
            assert server.connections == 2
            await client.aclose()

    run(main())


def test_the_wait_for_a_turn_counts_for_the_time_of_a_request(run, monkeypatch):
    monkeypatch.setattr(session, "AT_ONCE", 1)
    go = asyncio.Event()

    async def waits(peer):
        await go.wait()
        await peer.says(OK)

    async def main():
        async with RawServer(waits).serving() as server:
            client = opened(server.url)
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


def test_each_request_over_a_connection_has_its_own_time(run):
    first_over = asyncio.Event()

    async def answers_late(peer):
        await first_over.wait()
        await peer.says(OK)

    async def main():
        async with RawServer(OK, answers_late, silent).serving() as server:
            client, loop = opened(server.url), asyncio.get_running_loop()
            assert (await ask(client, "PUT", b"{}", timeout=4.0)).body == b"ok"
            longer = asyncio.ensure_future(ask(client, "PUT", b"{}", timeout=60.0))
            await asyncio.sleep(4.1)  # the time of the first request is over
            first_over.set()
            assert (await longer).body == b"ok"
            began = loop.time()
            assert (await fails(client, "PUT", b"{}", timeout=0.2)).reason == "Timeout"
            assert loop.time() - began < 30.0  # not the time of the request before
            assert (server.connections, len(server.requests)) == (1, 3)
            await client.aclose()

    run(main())


async def test_idle_connections_are_closed_after_their_time(monkeypatch):
    monkeypatch.setattr(session, "KEEP_ALIVE_S", 0.05)
    async with RawServer(OK).serving() as server:
        client = opened(server.url)
        await ask(client)
        await until(lambda: server.closed == 1)
        await ask(client, "POST", b"{}")
        assert server.connections == 2
        await client.aclose()


async def test_a_write_does_not_use_a_connection_that_was_idle_for_long(monkeypatch):
    async with RawServer(OK).serving() as server:
        client = opened(server.url)
        await asyncio.gather(*(ask(client, "PUT") for _ in range(3)))
        await ask(client, "POST")
        assert server.connections == 3
        monkeypatch.setattr(kept, "KEEP_ALIVE_S", 0.0)
        await ask(client, "POST")
        assert server.connections == 4
        await until(lambda: server.closed == 3)
        await client.aclose()


async def test_an_idle_connection_that_the_server_closes_is_not_used():
    async def once(peer):
        await peer.says(OK)
        peer.closes()

    async with RawServer(once).serving() as server:
        client = opened(server.url)
        for _ in range(3):
            assert (await ask(client, "POST")).body == b"ok"
            await until(lambda: server.closed == server.connections)
            for _ in range(10):
                await asyncio.sleep(0)  # the client reads the end of the connection
        await client.aclose()


def test_closing_ends_requests_in_progress_and_waiting_ones(run, monkeypatch, method):
    monkeypatch.setattr(session, "AT_ONCE", 2)

    async def main():
        async with RawServer(OK, silent).serving() as server:
            client = opened(server.url)
            await ask(client, method)
            tasks = [asyncio.ensure_future(fails(client, method)) for _ in range(5)]
            await until(lambda: len(server.requests) == 3)
            await client.aclose()
            assert {(await each).reason for each in tasks} == {"Closed"}
            assert (await fails(client, method)).message == f"the connection to {server.url} has been closed"
            await until(lambda: server.closed == server.connections)
            gc.collect()  # a transport that is not closed warns, and warnings are errors

    run(main())


async def test_requests_may_end_while_older_connections_are_closed(monkeypatch):
    go, closing, closed = [asyncio.Event() for _ in range(2)], [], asyncio.Event()
    aclose = session._Connections.aclose

    async def waits(peer):
        await go[len(server.requests) - 2].wait()
        await peer.says(OK)

    async def slowly(connections):
        closing.append(connections)
        await closed.wait()
        await aclose(connections)

    monkeypatch.setattr(session._Connections, "aclose", slowly)
    async with RawServer(OK, waits).serving() as server:
        client = opened(server.url)
        await ask(client)
        tasks = []
        for number in (2, 3):
            client.renew()
            tasks.append(asyncio.ensure_future(ask(client)))
            await until(lambda: len(server.requests) == number)  # noqa: B023
        go[0].set()
        await until(lambda: closing)
        go[1].set()
        await until(lambda: tasks[1].done() or len(closing) == 2)
        closed.set()
        assert [(await task).body for task in tasks] == [b"ok", b"ok"]
        await client.aclose()
    assert len({*closing}) == len(closing) == 3


def test_failed_connections_free_their_turn(run, method):
    async def main():
        with free_ports.port() as port:
            client = opened(f"http://127.0.0.1:{port}")
            for failure in await asyncio.gather(*(fails(client, method) for _ in range(2 * AT_ONCE + 1))):
                assert failure.message == f"http://127.0.0.1:{port} cannot be reached: Connection refused"
            await client.aclose()

    run(main())


@pytest.mark.parametrize(("ends", "timeout"), [(silent, 4.0), (silent, 600.0), (resets, 600.0)])
def test_after_a_request_without_an_answer_no_older_connection_is_used(run, ends, timeout):
    """They may lead to a server that is gone: each would cost a request its time."""
    begun = asyncio.Event()

    async def waits(peer):
        if len(server.requests) == 8:
            begun.set()
        await begun.wait()
        await peer.says(OK)

    async def main():
        async with server.serving():
            client = opened(server.url)
            await asyncio.gather(*(ask(client, "PUT") for _ in range(8)))
            assert server.connections == 8
            asking = asyncio.ensure_future(ask(client, "POST", timeout=timeout))
            await until(lambda: len(server.requests) == 9)
            if ends is silent and timeout == 600.0:
                asking.cancel()
            with pytest.raises((asyncio.CancelledError, Failed)):
                await asking
            assert (await ask(client, "PUT")).body == b"ok"
            assert server.connections == 9
            await until(lambda: server.closed == 8)
            await client.aclose()

    server = RawServer(*[waits] * 8, ends, OK)
    run(main())


# Repeated requests.


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("ends", [closes, resets])
def test_a_get_or_put_on_a_dropped_connection_is_repeated(run, method, ends):
    async def main():
        async with RawServer(OK, ends, OK).serving() as server:
            client = opened(server.url)
            await ask(client, method)
            assert (await ask(client, method)).body == b"ok"
            assert (server.connections, len(server.requests)) == (2, 3)
            await client.aclose()

    run(main())


async def test_a_dropped_request_is_repeated_once(method):
    async with RawServer(OK, closes).serving() as server:
        client = opened(server.url)
        await ask(client, method)
        failure = await fails(client, method)
        assert failure.message == f"{server.url} closed the connection without an answer"
        assert len(server.requests) == 3
        await client.aclose()


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@pytest.mark.parametrize("ends", [closes, resets])
async def test_other_methods_are_not_repeated(method, ends):
    async with RawServer(OK, ends).serving() as server:
        client = opened(server.url)
        await ask(client, "PUT")
        assert (await fails(client, method)).reason == "Disconnected"
        assert len(server.requests) == 2
        await client.aclose()

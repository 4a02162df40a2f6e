"""Requests over HTTP/2 to a server of the library h2, on both event loops."""

import asyncio
import gc

import pytest
from support.h2_server import HEAD, MAX_STREAMS, WINDOW, H2Server, ask, client_of, echoes, fails, never, ok, server_tls
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http import kept
from hpad.kube.http.exchange import KEEP_ALIVE_S, Head, TooLarge
from hpad.kube.http.shared import Shared


def gated(go):
    async def waits(peer):
        await go.wait()
        await peer.answers(peer.path.encode())

    return waits


def test_requests_share_a_connection(run, authority):
    async def main():
        async with (
            H2Server(echoes).serving(server_tls(authority, "h2", "http/1.1")) as server,
            client_of(server.url, authority) as client,
        ):
            assert (await ask(client)).body == b"GET /path "
            assert (await ask(client, "PUT", b"{}")).body == b"PUT /path {}"
            assert (await ask(client, "POST", b"")).body == b"POST /path "
            answers = await asyncio.gather(*(ask(client, path=f"/{number}") for number in range(50)))
            assert [each.body for each in answers] == [b"GET /%d " % number for number in range(50)]
            (connection,) = server.connections
            assert connection.alpn == "h2"
        await until(lambda: connection.closed)

    run(main())


def test_a_request_has_these_headers(run, authority):
    async def main():
        async with H2Server().serving(server_tls(authority, "h2")) as server:
            url = f"{server.url}/k8s/cluster a"
            async with client_of(url, authority) as client:
                head = Head({"Content-Type": "y", "Authorization": "Bearer ü"})
                await client.send("PUT", "/api?a=%20b", head, b"{}", 30.0, None)
                await client.send("GET", "/api", Head({"Accept": "x"}), None, 30.0, None)
            common = {
                ":scheme": "https",
                ":authority": f"127.0.0.1:{server.port}",
                "user-agent": "hpad",
                "accept-encoding": "identity",
            }
            assert [each.headers for each in server.requests] == [
                {
                    ":method": "PUT",
                    ":path": "/k8s/cluster%20a/api?a=%20b",
                    **common,
                    "content-type": "y",
                    "authorization": "Bearer ü",
                    "content-length": "2",
                },
                {":method": "GET", ":path": "/k8s/cluster%20a/api", **common, "accept": "x"},
            ]

    run(main())


@pytest.mark.parametrize("status", [200, 201, 204, 404, 409, 429, 500, 503])
def test_an_answer_has_its_status_headers_and_body(run, authority, status):
    async def replies(peer):
        await peer.answers(b"" if status == 204 else b"body", status, retry_after="7")

    async def main():
        async with (
            H2Server(replies).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            for _ in range(2):
                answer = await ask(client)
                assert (answer.status, answer.body) == (status, b"" if status == 204 else b"body")
                assert answer.headers == {"Retry-After": "7"}

    run(main())


def test_large_bodies_are_carried_both_ways_at_once(run, authority):
    """Also where the server gives little credit."""
    size = 3 * 2**20

    async def main():
        server = H2Server(echoes, settings={WINDOW: 1000})
        async with (
            server.serving(server_tls(authority, "h2")),
            client_of(server.url, authority, largest=2**24) as client,
        ):
            bodies = [bytes((number,)) * (size + number) for number in range(3)]
            answers = await asyncio.gather(*(ask(client, "PUT", each) for each in bodies))
            assert [each.body == b"PUT /path " + body for each, body in zip(answers, bodies, strict=True)] == [True] * 3

    run(main())


def test_a_large_answer_beyond_the_window_is_read_whole(run, authority):
    body = bytes(range(256)) * 2**16  # 16 MiB

    async def large(peer):
        await peer.answers(body)

    async def main():
        async with (
            H2Server(large).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority, largest=2**25) as client,
        ):
            assert [each.body == body for each in await asyncio.gather(ask(client), ask(client))] == [True, True]

    run(main())


def test_an_answer_that_is_too_large_is_not_read(run, authority):
    async def large(peer):
        await peer.answers(b"x" * 11)

    async def main():
        async with (
            H2Server(large, ok).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority, largest=10) as client,
        ):
            assert isinstance(await fails(client), TooLarge)
            assert (await ask(client)).body == b"ok"
            assert len(server.connections) == 1

    run(main())


def test_no_more_requests_run_at_once_than_the_server_allows(run, authority):
    """Also the first ones, which begin before the server has said so: it would end the connection."""
    go = asyncio.Event()

    async def main():
        server = H2Server(gated(go), settings={MAX_STREAMS: 3})
        async with server.serving(server_tls(authority, "h2")), client_of(server.url, authority) as client:
            tasks = [asyncio.ensure_future(ask(client, path=f"/{number}")) for number in range(10)]
            await until(lambda: len(server.requests) == 3)
            tasks[1].cancel()  # in progress
            tasks[5].cancel()  # waits
            await until(lambda: len(server.requests) == 4)
            go.set()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert [str(each.body, "ascii") for each in done if not isinstance(each, BaseException)] == [
                f"/{number}" for number in range(10) if number not in (1, 5)
            ]
            assert len(server.connections) == 1
            assert (client._running, len(client._waiting)) == (0, 0)

    run(main())


def test_a_server_can_allow_fewer_requests_later(run, authority):
    go = asyncio.Event()

    async def main():
        async with (
            H2Server(ok, gated(go)).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            tasks = [asyncio.ensure_future(ask(client, path=f"/{number}")) for number in range(2)]
            await until(lambda: len(server.requests) == 3)
            (connection,) = server.connections
            connection.state.update_settings({MAX_STREAMS: 1})
            connection.flush()
            await until(lambda: client._requests.limit == 1)
            tasks += [asyncio.ensure_future(ask(client, path=f"/{number}")) for number in range(2, 5)]
            await until(lambda: len(client._waiting) == 3)
            go.set()
            answers = await asyncio.gather(*tasks)
            assert [each.body for each in answers] == [b"/%d" % number for number in range(5)]
            assert (client._running, len(client._waiting)) == (0, 0)

    run(main())


def test_requests_wait_in_the_order_of_their_arrival(run, authority, monkeypatch):
    monkeypatch.setattr(kept, "MOST_AT_ONCE", 1)
    go = asyncio.Event()

    async def main():
        async with (
            H2Server(gated(go)).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            tasks = [asyncio.ensure_future(ask(client, path=f"/{number}")) for number in range(6)]
            await until(lambda: server.requests)
            tasks[3].cancel()
            failure = await fails(client, "POST", b"{}", timeout=0.02)
            assert failure.message == f"{server.url} did not answer in time"
            go.set()
            await asyncio.wait(tasks)
            assert [each.path for each in server.requests] == ["/0", "/1", "/2", "/4", "/5"]
            assert (client._running, len(client._waiting)) == (0, 0)

    run(main())


def test_a_request_that_is_cancelled_when_its_turn_comes_passes_it_on(run, authority, monkeypatch):
    monkeypatch.setattr(kept, "MOST_AT_ONCE", 1)

    async def main():
        async with (
            H2Server().serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            client._running += 1  # as another request would
            waiting = [asyncio.ensure_future(ask(client)) for _ in range(2)]
            await asyncio.sleep(0)
            client._pass_on()
            waiting[0].cancel()
            assert (await waiting[1]).body == b"ok"
            assert waiting[0].cancelled()
            assert client._running == 0

    run(main())


def test_a_write_that_is_not_allowed_is_not_sent(run, authority):
    class Stopped(Exception):
        pass

    def stops():
        raise Stopped

    async def main():
        async with (
            H2Server().serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            for _ in range(3):
                with pytest.raises(Stopped):
                    await client.send("PUT", "/", HEAD, b"{}", 30.0, stops)
            assert (await client.send("GET", "/", HEAD, None, 30.0, stops)).body == b"ok"  # a read is not checked
            assert [each.method for each in server.requests] == ["GET"]
            assert client._running == 0

    run(main())


@pytest.mark.parametrize("ends", ["closes", "aborts", "goes away", "goes away in two steps"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_a_server_that_restarts_between_requests_is_asked_again(run, authority, ends, method):
    """The client has noticed it by then."""

    async def main():
        async with (
            H2Server(echoes).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            (connection,) = server.connections
            if "steps" in ends:
                connection.goes_away(last=2**31 - 1)
            elif ends == "goes away":
                connection.goes_away(last=1)
            elif ends == "closes":
                connection.transport.close()
            else:
                connection.transport.abort()
            await until(lambda: connection.closed)
            await asyncio.sleep(0.01)
            assert (await ask(client, method, b"{}")).body == b"%b /path {}" % method.encode()
            assert len(server.connections) == 2

    run(main())


@pytest.mark.parametrize("ends", ["closes", "aborts"])
@pytest.mark.parametrize(("method", "repeated"), [("GET", True), ("PUT", True), ("POST", False), ("DELETE", False)])
def test_a_request_without_an_answer_is_repeated_once_if_that_does_no_harm(run, authority, ends, method, repeated):
    async def breaks(peer):
        if ends == "closes":
            peer.connection.transport.close()
        else:
            peer.connection.transport.abort()

    async def main():
        async with (
            H2Server(ok, breaks).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            assert (await fails(client, method, b"{}")).reason == "Disconnected"
            assert len(server.requests) == (3 if repeated else 2)
            server.replies = [breaks, ok]
            assert (await fails(client, method, b"{}")).reason == "Disconnected"  # on a new connection
            assert (await ask(client)).body == b"ok"

    run(main())


@pytest.mark.parametrize("refuses", ["REFUSED_STREAM", "GOAWAY"])
@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "PATCH", "DELETE"])
def test_a_request_that_the_server_did_not_process_is_sent_again_once(run, authority, refuses, method):
    async def refusing(peer):
        if refuses == "GOAWAY":
            peer.connection.goes_away(last=peer.stream - 2 if peer.stream > 1 else 0)
        else:
            peer.resets(7)

    async def main():
        checks = []
        async with (
            H2Server(refusing, echoes).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            answer = await client.send(method, "/path", HEAD, b"{}", 30.0, lambda: checks.append(len(server.requests)))
            assert answer.body == b"%b /path {}" % method.encode()
            assert checks == [0, 1]  # the repeated one is checked as well
            server.replies = [refusing]
            assert (await fails(client, method, b"{}")).refused
            assert len(server.requests) == 4

    run(main())


def test_requests_that_a_server_accepted_before_it_goes_away_are_answered(run, authority):
    go = asyncio.Event()

    async def goes_away(peer):
        peer.connection.goes_away(last=peer.stream)
        await go.wait()
        peer.connection.state.state_machine.state = peer.connection.state.state_machine.state.CLIENT_OPEN
        await peer.answers(b"old")

    async def main():
        async with (
            H2Server(ok, goes_away, ok).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            first = asyncio.ensure_future(ask(client, "POST", b"{}"))
            await until(lambda: client._requests._current is None)
            assert (await ask(client, "POST", b"{}")).body == b"ok"
            assert len(server.connections) == 2
            assert not first.done()

    run(main())


def test_a_cancelled_request_and_one_that_times_out_leave_the_connection_to_others(run, authority):
    async def main():
        async with (
            H2Server(ok, never).serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            cancelled = asyncio.ensure_future(ask(client))
            await until(lambda: len(server.requests) == 2)
            late = asyncio.ensure_future(fails(client, timeout=1.5))
            await until(lambda: len(server.requests) == 3)
            cancelled.cancel()
            await until(lambda: server.requests[1].reset == 8)
            server.replies = [ok]
            await ask(client)  # the connection is alive
            assert (await late).reason == "Timeout"
            await until(lambda: server.requests[2].reset == 8)
            assert len(server.connections) == 1

    run(main())


def test_a_connection_on_which_nothing_is_heard_is_replaced(run, authority):
    async def silent_later(peer):
        if peer.connection is not server.connections[0] or peer.stream == 1:
            await peer.answers()

    server = H2Server(silent_later)

    async def main():
        async with server.serving(server_tls(authority, "h2")), client_of(server.url, authority) as client:
            await ask(client)
            assert (await fails(client, timeout=0.05)).reason == "Timeout"
            assert (await ask(client, "POST", b"{}")).body == b"ok"
            assert len(server.connections) == 2

    run(main())


def test_an_idle_connection_is_not_used_after_its_time(run, authority):
    async def main():
        async with (
            H2Server().serving(server_tls(authority, "h2")) as server,
            client_of(server.url, authority) as client,
        ):
            await ask(client)
            assert client._requests._current is not None
            client._requests._current.idle_since -= KEEP_ALIVE_S
            await ask(client, "POST", b"{}")
            assert len(server.connections) == 2
            await until(lambda: server.connections[0].closed)

    run(main())


def test_closing_ends_requests_in_progress_and_waiting_ones(run, authority, monkeypatch):
    monkeypatch.setattr(kept, "MOST_AT_ONCE", 2)

    async def main():
        async with H2Server(ok, never).serving(server_tls(authority, "h2")) as server:
            async with client_of(server.url, authority) as client:
                await ask(client)
                tasks = [asyncio.ensure_future(fails(client)) for _ in range(5)]
                await until(lambda: len(server.requests) == 3)
                await client.aclose()
                assert {(await each).reason for each in tasks} == {"Closed"}
                assert (await fails(client)).message == f"the connection to {server.url} has been closed"
            assert not server.open
            gc.collect()  # a transport that is not closed warns, and warnings are errors

    run(main())


def test_closing_does_not_wait_for_a_server_that_says_nothing(run, authority):
    """It has done TLS, and then nothing; the request has an hour."""

    async def main():
        server = H2Server()
        server.speaks = False
        async with server.serving(server_tls(authority, "h2")):
            async with client_of(server.url, authority) as client:
                task = asyncio.ensure_future(fails(client, timeout=3600))
                await until(lambda: server.connections)
            assert (await task).reason == "Closed"

    run(main())


def test_a_server_that_says_nothing_does_not_answer_in_time(run, authority):
    async def main():
        server = H2Server()
        server.speaks = False
        async with server.serving(server_tls(authority, "h2")), client_of(server.url, authority) as client:
            assert (await fails(client, timeout=0.2)).reason == "Timeout"
            server.speaks = True
            assert (await ask(client)).body == b"ok"

    run(main())


def test_a_request_is_not_ended_by_the_deadline_of_the_one_that_opens_the_connection(run, authority):
    async def main():
        server = H2Server()
        server.speaks = False
        async with server.serving(server_tls(authority, "h2")), client_of(server.url, authority) as client:
            first = asyncio.ensure_future(fails(client, timeout=0.2))
            second = asyncio.ensure_future(ask(client))
            assert (await first).reason == "Timeout"
            await until(lambda: server.connections)
            server.connections[0].speaks()
            assert (await second).body == b"ok"

    run(main())


async def test_a_request_on_an_open_connection_needs_no_task_and_no_timer(authority, monkeypatch):
    loop, made = asyncio.get_running_loop(), []
    async with H2Server().serving(server_tls(authority, "h2")) as server, client_of(server.url, authority) as client:
        await ask(client, "PUT", b"{}")
        here = asyncio.current_task()

        def noted(function):
            def call(*arguments, **options):
                if asyncio.current_task() is here:  # not the server
                    made.append(arguments)
                return function(*arguments, **options)

            return call

        for name in ("create_task", "call_at", "call_later"):
            monkeypatch.setattr(loop, name, noted(getattr(loop, name)))
        await ask(client, "PUT", b"{}")
        monkeypatch.undo()
    assert made == []


async def test_requests_that_share_an_attempt_to_connect_share_its_failure(authority):
    async with H2Server().serving(server_tls(authority, "h2")) as server:
        config = ClusterConfig(server.url)  # trusts the authorities of the system, not this one
        client = Shared(config, SystemClock(), "hpad", 99)
        failures = await asyncio.gather(*(fails(client) for _ in range(3)))
        assert {each.reason for each in failures} == {"Certificate"}
        assert client._running == 0
        await client.aclose()

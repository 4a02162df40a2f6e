"""What is sent, which requests are repeated, and the check before a write."""

import asyncio

import pytest
from support.raw_http import OK, Peer, RawServer
from support.requests_of_pool import ask, fails, opened

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.exchange import Head
from hpad.kube.http.pool import Pool


class Stopped(Exception):
    """The check of a write says no."""


def stops() -> None:
    raise Stopped


async def closes(peer: Peer) -> None:
    peer.closes()


async def resets(peer: Peer) -> None:
    peer.resets()


async def test_a_request_is_written_as_one_piece_in_this_form():
    async with RawServer(OK).serving() as server:
        client = Pool(ClusterConfig(f"{server.url}/k8s/cluster a"), SystemClock(), "hpad/1", 9)
        await client.send("GET", "/api?a=%20b", Head({"Accept": "x", "Authorization": "Bearer ü"}), None, 9, None)
        await client.send("PUT", "/api", Head({"Content-Type": "y"}), b"{}", 9, None)
        await client.send("POST", "/api", Head({"Content-Type": "y"}), b"", 9, None)
        await client.aclose()
    common = f"Host: 127.0.0.1:{server.port}\r\nUser-Agent: hpad/1\r\nAccept-Encoding: identity\r\n"
    prefix = "/k8s/cluster%20a/api"
    assert [each.decode() for each in server.requests] == [
        f"GET {prefix}?a=%20b HTTP/1.1\r\n{common}Accept: x\r\nAuthorization: Bearer ü\r\n\r\n",
        f"PUT {prefix} HTTP/1.1\r\n{common}Content-Type: y\r\nContent-Length: 2\r\n\r\n{{}}",
        f"POST {prefix} HTTP/1.1\r\n{common}Content-Type: y\r\nContent-Length: 0\r\n\r\n",
    ]


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("ends", [closes, resets])
def test_a_get_or_put_on_a_dropped_connection_is_repeated_on_a_new_one(run, method, ends):
    """Not on another idle one, which was probably dropped as well."""

    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            await asyncio.gather(*(ask(client) for _ in range(3)))
            assert server.connections == 3
            server._replies = [ends, OK]
            checks = []
            answer = await ask(client, method, b"{}", lambda: checks.append(len(server.requests)))
            assert answer.body == b"ok"
            assert (server.connections, len(server.requests)) == (4, 5)
            assert checks == [3, 4]  # the repeated one is checked as well
            await client.aclose()

    run(main())


async def test_a_dropped_request_is_repeated_once():
    async with RawServer(OK, closes).serving() as server:
        client = opened(server)
        await ask(client)
        failure = await fails(client)
        assert failure.message == f"{server.url} closed the connection without an answer"
        assert len(server.requests) == 3
        await client.aclose()


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
async def test_other_methods_are_not_repeated(method):
    async with RawServer(OK, closes).serving() as server:
        client = opened(server)
        await ask(client)
        assert (await fails(client, method, b"{}")).reason == "Disconnected"
        assert len(server.requests) == 2
        await client.aclose()


@pytest.mark.parametrize("ends", [closes, resets])
async def test_a_request_on_a_new_connection_is_not_repeated(ends):
    async with RawServer(ends).serving() as server:
        client = opened(server)
        assert (await fails(client)).reason == "Disconnected"
        assert len(server.requests) == 1
        await client.aclose()


async def test_a_request_is_not_repeated_after_a_byte_of_its_answer():
    async def says_a_byte(peer):
        await peer.says(b"H")
        peer.closes()

    async with RawServer(OK, says_a_byte).serving() as server:
        client = opened(server)
        await ask(client)
        failure = await fails(client)
        assert failure.message == f"the answer of {server.url} broke off (connection closed)"
        assert len(server.requests) == 2
        await client.aclose()


async def test_a_repeated_write_that_is_no_longer_allowed_is_not_sent():
    allowed = [True]

    def check():
        if not allowed:
            raise Stopped
        allowed.pop()

    async with RawServer(OK, closes).serving() as server:
        client = opened(server)
        await ask(client)
        with pytest.raises(Stopped):
            await ask(client, "PUT", b"{}", check)
        assert len(server.requests) == 2
        await client.aclose()


def test_a_write_that_is_not_allowed_leaves_the_connection_for_the_next(run):
    async def main():
        async with RawServer(OK).serving() as server:
            client = opened(server)
            for _ in range(3):
                with pytest.raises(Stopped):
                    await ask(client, "PUT", b"{}", stops)
            assert (await ask(client, "PUT", b"{}", lambda: None)).body == b"ok"
            assert await ask(client, "GET", None, stops)  # a read is not checked
            assert (server.connections, len(server.requests)) == (1, 2)
            await client.aclose()

    run(main())


@pytest.mark.parametrize("error", [RuntimeError("mine"), OSError("mine"), TimeoutError("mine")])
async def test_an_error_of_the_check_is_not_taken_for_one_of_the_network(error):
    def check():
        raise error

    async with RawServer(OK).serving() as server:
        client = opened(server)
        with pytest.raises(type(error), match="mine"):
            await ask(client, "PUT", b"{}", check)
        await client.aclose()


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nX", "a\rX", "a\0"])
def test_a_header_that_would_begin_another_is_refused(value):
    with pytest.raises(Exception, match="Authorization contains characters such as a line break") as caught:
        Head({"Authorization": f"s3cret{value}"})
    assert "s3cret" not in repr(caught.value)

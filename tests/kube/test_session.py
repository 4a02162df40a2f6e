"""What is sent, and what is read."""

import asyncio
import ssl

import pytest
from support.raw_http import OK, Peer, RawServer, ask, fails, opened
from support.scripted_server import until

from hpad.kube.connection import KeptConnection, Unanswered
from hpad.kube.exchange import AnswerTooLarge, HttpRequest

PART = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no"


async def closes(peer: Peer) -> None:
    peer.closes()


async def test_a_request_is_sent_in_this_form():
    async with RawServer(OK).serving() as server:
        client = opened(f"{server.url}/k8s/cluster a/")
        await client.send(HttpRequest("GET", "/api?a=%20b", {"Accept": "x", "Authorization": "Bearer ü"}), 9)
        await client.send(HttpRequest("PUT", "/api", {"Content-Type": "y"}, b"{}"), 9)
        await client.send(HttpRequest("POST", "/api", {"Content-Type": "y"}, b""), 9)
        await client.aclose()
    common = {"Host": f"127.0.0.1:{server.port}", "User-Agent": "hpad", "Accept-Encoding": "identity"}
    sent = []
    for each in server.requests:
        head, _, body = each.decode().partition("\r\n\r\n")
        line, *fields = head.split("\r\n")
        sent.append((line, dict(field.split(": ") for field in fields), body))
    prefix = "/k8s/cluster%20a/api"
    assert sent == [
        (f"GET {prefix}?a=%20b HTTP/1.1", {**common, "Accept": "x", "Authorization": "Bearer ü"}, ""),
        (f"PUT {prefix} HTTP/1.1", {**common, "Content-Type": "y", "Content-Length": "2"}, "{}"),
        (f"POST {prefix} HTTP/1.1", {**common, "Content-Type": "y", "Content-Length": "0"}, ""),
    ]


async def test_a_value_that_would_begin_another_header_is_not_sent():
    async with RawServer(OK).serving() as server:
        client = opened(server.url)
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is aiohttp's
            await client.send(HttpRequest("GET", "/", {"Authorization": "s3cret\r\nX: y"}), 9)
        assert "s3cret" not in str(caught.value)
        await client.aclose()
    assert server.requests == []


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK, 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n", 200, b"ok!"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nRetry-After: 7\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 409 Conflict\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n", 409, b""),
        (b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n", 302, b""),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", 200, b"ok"),
    ],
)
def test_an_answer_is_read_whole(run, answer, status, body, method):
    async def main():
        async with RawServer(answer).serving() as server:
            client = opened(server.url)
            for _ in range(2):
                got = await ask(client, method)
                assert (got.status, got.body) == (status, body)
                assert got.headers.get("Retry-After") == ("7" if status == 409 else None)
            assert server.connections == (2 if b"close" in answer else 1)
            await client.aclose()

    run(main())


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "tls"])
def test_an_answer_without_a_length_ends_with_the_connection(run, authority, method, secured):
    """That of a proxy that speaks HTTP/1.0."""
    theirs, ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(theirs)
    authority.configure_trust(ours)

    async def until_closed(peer):
        await peer.says(b"HTTP/1.0 502 Bad Gateway\r\n\r\nto the end")
        peer.closes()

    async def main():
        async with RawServer(until_closed).serving(theirs if secured else None) as server:
            url = f"http{'s' * secured}://127.0.0.1:{server.port}"
            client = opened(url, ssl=ours if secured else None)
            for connections in (1, 2):
                answer = await ask(client, method)
                assert (answer.status, answer.body, server.connections) == (502, b"to the end", connections)
            await client.aclose()

    run(main())


@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 2x0 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2**20,
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nX: " + b"x" * 2**19,
    ],
)
async def test_anything_but_http_is_an_error(garbage, method):
    async with RawServer(garbage).serving() as server:
        client = opened(server.url)
        failure = await fails(client, method)
        assert failure.reason == "Disconnected"
        assert failure.message.startswith(f"the answer of {server.url} cannot be read: ")
        assert len(failure.message) < 300
        assert len(server.requests) == 1
        await client.aclose()


async def test_a_broken_body_is_an_error_with_the_status(method):
    for body in (b"xyz\r\n", b"2\r\nokay\r\n"):
        async with RawServer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body).serving() as server:
            client = opened(server.url)
            assert (await fails(client, method)).reason == "Disconnected"
            await client.aclose()


async def test_an_answer_that_breaks_off_is_an_error_with_the_status(method):
    async def half(peer):
        await peer.says(PART)
        peer.closes()

    async with RawServer(half).serving() as server:
        client = opened(server.url)
        failure = await fails(client, method)
        assert (failure.reason, failure.status) == ("Disconnected", 200)
        assert failure.message == f"the answer of {server.url} broke off (connection closed)"
        await client.aclose()


@pytest.mark.parametrize(
    "head", [b"Content-Length: 11\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n5\r\n"]
)
@pytest.mark.parametrize("status", [200, 500])
async def test_an_answer_that_is_too_large_is_not_read(status, head):
    async with RawServer(b"HTTP/1.1 %d X\r\n%b12345" % (status, head), OK).serving() as server:
        client = opened(server.url, largest=10)
        failure = await fails(client)
        assert (type(failure), failure.status) == (AnswerTooLarge, status)
        assert (await ask(client)).body == b"ok"
        assert server.connections == 2
        await client.aclose()


async def test_the_answer_to_a_write_may_be_that_large_and_its_headers():
    start = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
    async with RawServer(start % 10 + b"x" * 10, start % 10**6 + b"x" * 80_000).serving() as server:
        client = opened(server.url, largest=10)
        assert (await ask(client, "PUT")).body == b"x" * 10
        failure = await fails(client, "PUT")
        assert (type(failure), failure.status) == (AnswerTooLarge, 200)
        await client.aclose()


async def test_the_size_of_the_answers_before_that_to_a_write_has_a_bound():
    async with RawServer(b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000).serving() as server:
        client = opened(server.url)
        assert (await fails(client, "PUT")).message.endswith("cannot be read: its headers are too large")
        await client.aclose()


async def test_what_arrives_before_a_write_has_left_is_no_answer_to_it():
    async with RawServer(OK).serving() as server:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: KeptConnection(server.url, 99), "127.0.0.1", server.port)
        writing = asyncio.ensure_future(connection.exchange(b"PUT / HTTP/1.1\r\n\r\n", loop.time() + 30))
        await asyncio.sleep(0)
        connection.data_received(OK)
        with pytest.raises(Unanswered):
            await writing
        await until(lambda: server.closed == 1)
    assert server.requests == []


async def test_two_answers_to_a_write_are_the_last_of_a_connection():
    async with RawServer(OK + b"HTTP/1.1 500 Other\r\nContent-Length: 5\r\n\r\nother").serving() as server:
        client = opened(server.url)
        for connections in (1, 2):
            answer = await ask(client, "PUT")
            assert (answer.status, answer.body, server.connections) == (200, b"ok", connections)
        await client.aclose()


def test_large_bodies_are_carried_both_ways(run, method):
    body = b"x" * (2**20 - 1)
    answer = bytes(range(256)) * 2**14

    async def main():
        async with RawServer(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(answer), answer)
        ).serving() as server:
            client = opened(server.url, largest=len(answer))
            sent = body if method == "PUT" else b""
            assert (await ask(client, method, sent or None)).body == answer
            assert server.requests[0].endswith(b"\r\n\r\n" + sent)
            await client.aclose()

    run(main())

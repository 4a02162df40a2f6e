"""Requests behind a proxy are sent by aiohttp: both clients behave alike, and their errors read the same."""

import asyncio
import ssl

import pytest
import trustme
from support import free_ports
from support.raw_http import OK, RawServer

from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.exchange import Failed, Head, TooLarge
from hpad.kube.http.pool import Pool
from hpad.kube.http.session import Session

HEAD = Head({"Accept": "application/json", "Authorization": "Bearer s3cret"})
SENDERS = (Pool, Session)


async def closes(peer):
    peer.closes()


async def says_half_and_closes(peer):
    await peer.says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    peer.closes()


async def silent(peer):
    await peer.ended()


async def outcomes(config, *, method="GET", body=None, timeout=30.0, largest=2**20, times=1):
    """Returns what each client returns or raises for the last of equal requests."""
    found = []
    for sender in SENDERS:
        client = sender(config, SystemClock(), "hpad", largest)
        for _ in range(times):
            try:
                answer = await client.send(method, "/a?b=%20c", HEAD, body, timeout, None)
                found.append((answer.status, answer.body, answer.headers))
            except Failed as failure:
                found.append((type(failure), failure.reason, failure.message, failure.status))
        await client.aclose()
    assert "s3cret" not in repr(found)
    return found[times - 1 :: times]


async def test_requests_are_equal():
    async with RawServer(OK).serving() as server:
        for method, body in (("GET", None), ("PUT", b"{}"), ("POST", b"")):
            ours, theirs = await outcomes(ClusterConfig(server.url), method=method, body=body)
            assert ours == theirs
    for ours, theirs in zip(server.requests[::2], server.requests[1::2], strict=True):
        (line, *fields), (their_line, *their_fields) = (each.split(b"\r\n") for each in (ours, theirs))
        assert line == their_line
        assert sorted(fields) == sorted(their_fields)


@pytest.mark.parametrize(
    "reply",
    [
        OK,
        b"HTTP/1.1 404 Not Found\r\nRetry-after: 3\r\nContent-Length: 4\r\nConnection: close\r\n\r\ngone",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        closes,
    ],
)
async def test_answers_are_equal(reply):
    async with RawServer(reply).serving() as server:
        ours, theirs = await outcomes(ClusterConfig(server.url), times=2)
    assert ours == theirs


@pytest.mark.parametrize("status", [200, 500])
async def test_answers_that_are_too_large_are_equal(status):
    async with RawServer(b"HTTP/1.1 %d X\r\nContent-Length: 11\r\n\r\n12345678901" % status).serving() as server:
        ours, theirs = await outcomes(ClusterConfig(server.url), largest=10)
    assert ours == theirs
    assert (ours[0], ours[3]) == (TooLarge, status)


async def test_broken_answers_are_equal_but_for_their_cause():
    async with RawServer(says_half_and_closes).serving() as server:
        ours, theirs = await outcomes(ClusterConfig(server.url))
        assert ours[1] == theirs[1] == "Disconnected"
        assert ours[3] == theirs[3] == 200
        assert ours[2] == f"the answer of {server.url} broke off (connection closed)"
    async with RawServer(b"SSH-2.0-OpenSSH_9.6\r\n").serving() as server:
        ours, theirs = await outcomes(ClusterConfig(server.url))
        assert ours[1] == theirs[1] == "Disconnected"
        assert ours[2] == f"the answer of {server.url} cannot be read: not HTTP/1.1"


async def test_timeouts_and_refused_connections_are_equal():
    async with RawServer(silent).serving() as server:
        ours, theirs = await outcomes(ClusterConfig(server.url), timeout=0.05)
        assert ours == theirs
    with free_ports.port() as port:
        ours, theirs = await outcomes(ClusterConfig(f"http://127.0.0.1:{port}"))
        assert ours == theirs


async def test_errors_of_tls_are_equal(authority):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("api.internal").configure_cert(tls)
    trusting, other = ssl.create_default_context(), ssl.create_default_context()
    authority.configure_trust(trusting)
    trustme.CA().configure_trust(other)
    async with RawServer(OK).serving(tls) as server:
        for context in (trusting, other):
            config = ClusterConfig(f"https://127.0.0.1:{server.port}", ssl=context)
            ours, theirs = await outcomes(config)
            assert ours == theirs
            assert ours[1] == "Certificate"
        tls.verify_mode = ssl.CERT_REQUIRED
        config = ClusterConfig(f"https://127.0.0.1:{server.port}", ssl=trusting, tls_server_name="api.internal")
        ours, theirs = await outcomes(config)
        assert ours == theirs
        assert ours[1] == "Disconnected"


async def test_both_are_closed_alike():
    async with RawServer(OK).serving() as server:
        for sender in SENDERS:
            client = sender(ClusterConfig(server.url), SystemClock(), "hpad", 99)
            await client.aclose()
            with pytest.raises(Failed, match="has been closed"):
                await client.send("GET", "/", HEAD, None, 30.0, None)
    assert server.requests == []


@pytest.mark.parametrize("sender", SENDERS)
async def test_a_write_that_is_not_allowed_is_not_sent(sender):
    class Stopped(Exception):
        pass

    def stops():
        raise Stopped

    async with RawServer(OK).serving() as server:
        client = sender(ClusterConfig(server.url), SystemClock(), "hpad", 99)
        with pytest.raises(Stopped):
            await client.send("PUT", "/", HEAD, b"{}", 30.0, stops)
        assert (await client.send("PUT", "/", HEAD, b"{}", 30.0, lambda: None)).status == 200
        await client.aclose()
        await asyncio.sleep(0)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("sender", "expected"), [(Pool, False), (Session, True)])
async def test_a_request_on_an_open_connection_needs_no_task_and_no_timer(sender, expected, monkeypatch):
    """With aiohttp it does: that is a part of what a request costs."""
    loop, made = asyncio.get_running_loop(), []
    async with RawServer(OK).serving() as server:
        client = sender(ClusterConfig(server.url), SystemClock(), "hpad", 99)
        await client.send("PUT", "/", HEAD, b"{}", 30.0, None)
        here = asyncio.current_task()

        def noted(function):
            def call(*arguments, **options):
                if asyncio.current_task() is here:  # not the server
                    made.append(arguments)
                return function(*arguments, **options)

            return call

        for name in ("create_task", "call_at", "call_later"):
            monkeypatch.setattr(loop, name, noted(getattr(loop, name)))
        await client.send("PUT", "/", HEAD, b"{}", 30.0, None)
        monkeypatch.undo()
        await client.aclose()
    assert bool(made) == expected

"""Requests that are too long, and clients that do not read their response."""

import asyncio
import contextlib
import re
from typing import Any

import pytest
from support import http_server

from hpad.api.hpa import from_builtins
from hpad.daemon import process
from hpad.serve import limits
from hpad.serve.server import Server
from hpad.settings.model import Serving


async def raw_response(server: Server, request: bytes) -> bytes:
    """Returns everything that the server sends until it closes the connection."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        async with asyncio.timeout(60):
            try:
                return await reader.read()
            except ConnectionError:
                return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"H%d: 1\r\n" % n for n in range(200)) + b"\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nExpect: \xff\r\n\r\n",
        b"GET /none HTTP/1.1\r\nHost: localhost\r\nExpect: \xff\r\n\r\n",
    ],
    ids=["line", "field", "fields", "nonsense", "expect", "expect elsewhere"],
)
async def test_requests_that_are_too_long_are_refused(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the response nor the log repeats them, because they may hold a token."""
    async with http_server.opened(Serving()) as server:
        answer = await raw_response(server, request_)
        assert re.match(rb"HTTP/1\.[01] 400 [^\0]*\r\n\r\n400: Bad Request\n$", answer)
        assert b"aiohttp" not in answer
        assert (await http_server.get(server.url + "/livez"))[0] == 200
    assert caplog.text == ""


async def test_other_methods_are_refused() -> None:
    async with http_server.opened(Serving()) as server:
        answer = await raw_response(
            server, b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 405")
    assert b"Allow: GET,HEAD" in answer


async def test_responses_have_security_headers() -> None:
    async with http_server.opened(Serving()) as server:
        answer = await raw_response(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head = answer.split(b"\r\n\r\n", 1)[0]
    assert b"Content-Security-Policy: default-src 'none'; style-src 'sha256-" in head
    assert b"frame-ancestors 'none'" in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert b"aiohttp" not in head


class ManyHpas(http_server.NoHpas):
    """HPAs whose JSON is larger than all buffers between two sockets."""

    def values(self) -> tuple[Any, ...]:
        name = "x" * 2000
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": name}, "maxReplicas": 9}
        one = from_builtins({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
        return (one,) * 5000


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, process.loop_factory()], ids=["asyncio", "default"])
def test_a_client_that_does_not_read_its_response_is_disconnected(monkeypatch: pytest.MonkeyPatch, loop: Any) -> None:
    monkeypatch.setattr(limits.Connection, "patience", 1.0)

    async def main() -> int:
        async with http_server.opened(Serving(), source=ManyHpas()) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(b"GET /api/v1/hpas?limit=5000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            await asyncio.sleep(3 * limits.Connection.patience)
            taken = 0
            with contextlib.suppress(ConnectionError):
                while chunk := await reader.read(1 << 20):
                    taken += len(chunk)
            writer.close()
            return length - taken

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) > 0


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, process.loop_factory()], ids=["asyncio", "default"])
def test_a_client_that_does_not_read_does_not_delay_the_stop(loop: Any) -> None:
    async def main() -> None:
        async with http_server.opened(Serving(), source=ManyHpas()) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(b"GET /api/v1/hpas?limit=5000 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


async def test_a_client_that_reads_its_response_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.Connection, "patience", 0.5)
    async with http_server.opened(Serving()) as server:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in range(3):
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\nok\n")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.8)
        writer.close()

"""Clients that want too much: bytes, connections, time."""

import asyncio
import contextlib
import re
from typing import Any

import aiohttp
import pytest
from support import http_server

from hpad.api.hpa import from_builtins
from hpad.daemon import process
from hpad.serve import limits
from hpad.serve.server import Server
from hpad.settings.model import Serving


async def said(server: Server, request: bytes) -> bytes:
    """What a raw request gets before the connection ends."""
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
    ],
    ids=["line", "field", "fields", "nonsense"],
)
async def test_what_is_too_long_is_refused(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """And neither the answer nor the log repeats it."""
    async with http_server.opened(Serving()) as server:
        assert re.match(rb"HTTP/1\.[01] 400 [^\0]*\r\n\r\n400: Bad Request\n$", await said(server, request_))
        assert (await http_server.get(server.url + "/livez"))[0] == 200
    assert caplog.text == ""


async def test_other_methods_are_refused() -> None:
    async with http_server.opened(Serving()) as server:
        answer = await said(
            server, b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
    assert answer.startswith(b"HTTP/1.1 405")
    assert b"Allow: GET,HEAD" in answer


async def test_answers_say_what_a_browser_may_do_with_them() -> None:
    async with http_server.opened(Serving()) as server:
        answer = await said(server, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, page = answer.split(b"\r\n\r\n", 1)
    assert b"Content-Security-Policy: default-src 'none'; style-src 'sha256-" in head
    assert b"frame-ancestors 'none'" in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert b"aiohttp" not in head
    assert b"<script" not in page
    assert b"http://" not in page


class Much(http_server.NoHpas):
    """More HPAs than any buffer between two sockets holds, once they are JSON."""

    def values(self) -> tuple[Any, ...]:
        name = "x" * 200
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": name}, "maxReplicas": 9}
        one = from_builtins({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})
        return (one,) * 15_000


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, process.loop_factory()], ids=["asyncio", "default"])
def test_who_does_not_take_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch, loop: Any) -> None:
    monkeypatch.setattr(limits.Connection, "patience", 1.0)

    async def main() -> int:
        async with http_server.opened(Serving(), source=Much()) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(b"GET /api/hpas HTTP/1.1\r\nHost: localhost\r\n\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            assert server._runner is not None
            assert server._runner.server is not None
            async with asyncio.timeout(60):
                while server._runner.server.connections:  # noqa: ASYNC110  # the state of the world
                    await asyncio.sleep(0.05)
            taken = 0
            with contextlib.suppress(ConnectionError):
                while chunk := await reader.read(1 << 20):
                    taken += len(chunk)
            writer.close()
            return length - taken

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) > 0


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, process.loop_factory()], ids=["asyncio", "default"])
def test_who_does_not_take_the_answer_keeps_nobody_from_stopping(loop: Any) -> None:
    async def main() -> None:
        async with http_server.opened(Serving(), source=Much()) as server:
            host, port = server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
            writer.write(b"GET /api/hpas HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
        writer.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(main(), 60))


async def test_who_takes_the_answer_stays_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits.Connection, "patience", 0.5)
    async with http_server.opened(Serving()) as server, aiohttp.ClientSession(trust_env=False) as session:
        for _ in range(3):
            async with session.get(server.url + "/metrics") as answer:
                await answer.read()
            await asyncio.sleep(0.8)
        assert server._runner is not None
        assert server._runner.server is not None
        assert server._runner.server.requests_count == 3
        assert len(server._runner.server.connections) == 1

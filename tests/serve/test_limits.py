"""Clients that want too much: bytes, connections, time."""

import asyncio
import contextlib
import re
import socket

import pytest
from serve import windows

from hpad.model.serving import Serving
from hpad.serve import limits
from hpad.serve.server import Server


async def said(server: Server, request: bytes) -> bytes:
    """What a raw request gets before the connection ends."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        async with asyncio.timeout(10):
            try:
                return await reader.read()
            except ConnectionError:
                return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"".join(b"H%d: 1\r\n" % n for n in range(200)) + b"\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["line", "field", "fields", "nonsense"],
)
async def test_what_is_too_long_is_refused(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """And neither the answer nor the log repeats it."""
    async with windows.opened(Serving()) as server:
        assert re.match(rb"HTTP/1\.[01] 400 [^\0]*\r\n\r\n400: Bad Request\n$", await said(server, request_))
        assert (await windows.get(server.url + "/livez"))[0] == 200
    assert caplog.text == ""


async def test_other_methods_are_refused() -> None:
    async with windows.opened(Serving()) as server:
        answer = await said(server, b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 405")
    assert b"Allow: GET,HEAD" in answer


async def test_answers_say_what_a_browser_may_do_with_them() -> None:
    async with windows.opened(Serving()) as server:
        answer = await said(server, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, page = answer.split(b"\r\n\r\n", 1)
    assert b"Content-Security-Policy: default-src 'none'; style-src 'sha256-" in head
    assert b"frame-ancestors 'none'" in head
    assert b"X-Content-Type-Options: nosniff" in head
    assert b"aiohttp" not in head
    assert b"<script" not in page
    assert b"http://" not in page


class Door:
    """Counts who is inside."""

    def __init__(self) -> None:
        self.inside: list[asyncio.BaseTransport] = []

    def factory(self) -> asyncio.Protocol:
        outer = self

        class Guest(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                outer.inside.append(transport)

        return Guest()


async def test_connections_above_the_number_are_closed() -> None:
    guests = Door()
    door = limits.Door(lambda: len(guests.inside), guests.factory, 2)
    server = await asyncio.get_running_loop().create_server(door, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    writers = [(await asyncio.open_connection(*address))[1] for _ in range(2)]
    reader, writer = await asyncio.open_connection(*address)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert len(guests.inside) == 2
    for each in (*writers, writer, *guests.inside):
        each.close()
    server.close()


async def test_who_does_not_take_the_answer_is_cut_off() -> None:
    here, there = socket.socketpair()
    with there:
        there.setblocking(False)
        loop = asyncio.get_running_loop()
        lost = loop.create_future()

        class Writing(asyncio.Protocol):
            def connection_lost(self, exc: Exception | None) -> None:
                lost.set_result(exc)

        transport, _ = await loop.create_connection(Writing, sock=here)
        readers = limits.Readers(seconds=0.05)
        transport.write(b"x" * 10_000_000)
        readers.answered(transport)
        async with asyncio.timeout(5):
            await lost


async def test_who_asks_again_has_taken_the_answer() -> None:
    here, there = socket.socketpair()
    with there:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=here)
        readers = limits.Readers(seconds=0.05)
        readers.answered(transport)
        readers.asked(transport)
        transport.write(b"x" * 10_000_000)
        await asyncio.sleep(0.2)
        assert not transport.is_closing()
        transport.abort()
        await asyncio.sleep(0)

"""HTTP servers of numbers on loopback, working or with a fault."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import trustme
from support import closing, free_ports

STATUSES = ("401", "403", "404", "422", "503")
KINDS = (*STATUSES, "down", "slow", "hang", "redirect", "truncated", "big", "html", "untrusted", "dns")
_BIG = 20 << 20
SLOW_SECONDS = 60.0


class Numbers:
    """An HTTP server that answers every path with `document`, unless `kind` is a fault (see KINDS)."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self.document: Any = {"depth": 30}
        self.asked = 0
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serves one connection, kept alive."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.lower().split(b"\r\n"):
                    if line.startswith(b"content-length:"):
                        await reader.readexactly(int(line.partition(b":")[2]))
                self.asked += 1
                if self.kind in ("hang", "slow"):
                    await asyncio.sleep(SLOW_SECONDS if self.kind == "slow" else 3600)
                writer.write(self._answer())
                await writer.drain()
                if self.kind == "truncated":
                    break
        writer.close()

    def _answer(self) -> bytes:
        body, status, extra = json.dumps(self.document).encode(), "200 OK", ""
        length = len(body)
        if self.kind.isdigit():
            status, body, length = f"{self.kind} Trouble", b"{}", 2
        elif self.kind == "redirect":
            status, extra = "302 Found", "Location: http://localhost:1/elsewhere\r\n"
        elif self.kind == "truncated":
            body = body[:-3]
        elif self.kind == "big":
            body = b'{"depth": [' + b"1," * (_BIG // 2) + b"1]}"
            length = len(body)
        elif self.kind == "html":
            body = b"<html>Please log in</html>"
            length, extra = len(body), "Content-Type: text/html\r\n"
        extra = extra if "Content-Type" in extra else f"{extra}Content-Type: application/json\r\n"
        return f"HTTP/1.1 {status}\r\n{extra}Content-Length: {length}\r\n\r\n".encode() + body


@contextlib.asynccontextmanager
async def numbers(kind: str = "") -> AsyncIterator[Numbers]:
    """Starts a server of a kind; for "dns" and "down", `url` leads to no server."""
    made = Numbers(kind)
    if kind == "dns":
        made.url = "http://no-such-host.invalid"
        yield made
        return
    if kind == "down":
        with free_ports.port() as port:
            made.url = f"http://127.0.0.1:{port}"
            yield made
        return
    tls = None
    if kind == "untrusted":
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        await made.serve(reader, writer)
        connections.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        await closing.close(server)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
        await server.wait_closed()

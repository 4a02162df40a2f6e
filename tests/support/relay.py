"""A relay between hpad and the API server, that breaks connections the way networks, proxies and gatekeepers do."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from support import closing, free_ports

REFUSAL = b'{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}'


class Relay:
    """Listens on a free port of 127.0.0.1, and passes bytes on to another.

    The port stays ours from the first start to the stop. `tls` ends TLS here; with `token` set, requests without that
    bearer token are refused; `rewrite` changes what is asked, a piece of a request at a time.
    """

    def __init__(
        self, target: int, tls: ssl.SSLContext | None = None, rewrite: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.port = 0
        self.token: str | None = None
        self.tls = tls
        self._target = target
        self._rewrite = rewrite
        self._held: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Event, tuple[asyncio.StreamWriter, ...]] = {}

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        if self._held is None:
            self._held = free_ports.held()
            self.port = self._held.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)

    async def stop(self) -> None:
        """End for good."""
        await self.pause()
        if self._held is not None:
            self._held.close()

    async def pause(self) -> None:
        """Refuse new connections, and break those that are open, until the next start."""
        if self._server is not None:
            await closing.close(self._server)
            self.abort()
            await self._server.wait_closed()

    def abort(self) -> int:
        """Reset all connections; how many there were."""
        for writers in self._open.values():
            for writer in writers:
                writer.transport.abort()
        return len(self._open)

    def freeze(self) -> int:
        """Pass nothing on any more over the connections that are open now, without a word; new ones work."""
        for flowing in self._open:
            flowing.clear()
        return len(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = asyncio.Event()
        flowing.set()
        with contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
            if self._server is None or not self._server.is_serving():  # paused meanwhile
                back.close()
                writer.transport.abort()
                return
            self._open[flowing] = (writer, back)
            ways = [
                asyncio.create_task(self._pass(reader, back, flowing, writer)),
                asyncio.create_task(self._pass(there, writer, flowing)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                del self._open[flowing]
                back.close()
        writer.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        flowing: asyncio.Event,
        refuse: asyncio.StreamWriter | None = None,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await flowing.wait()
                if refuse is not None and self._is_stranger(data):
                    head = f"HTTP/1.1 401 Unauthorized\r\nContent-Length: {len(REFUSAL)}\r\nConnection: close\r\n\r\n"
                    refuse.write(head.encode() + REFUSAL)
                    await refuse.drain()
                    return
                writer.write(self._rewrite(data) if refuse is not None and self._rewrite is not None else data)
                await writer.drain()

    def _is_stranger(self, data: bytes) -> bool:
        begins = b" HTTP/1.1\r\n" in data
        return self.token is not None and begins and f"Bearer {self.token}\r\n".encode() not in data

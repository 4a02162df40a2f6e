"""A TCP relay between hpad and the API server that breaks connections as networks and proxies do."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable

from support import closing, free_ports

REFUSAL = b'{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}'


class Relay:
    """Listens on a free port of 127.0.0.1, and relays to the port `target`.

    The port stays reserved from the first `start` until `stop`. `tls` terminates TLS in the relay. With `token` set,
    requests without this bearer token get 401. `rewrite` changes the bytes of requests.
    """

    def __init__(
        self, target: int, tls: ssl.SSLContext | None = None, rewrite: Callable[[bytes], bytes] | None = None
    ) -> None:
        self.port = 0
        self.token: str | None = None
        self.tls = tls
        self._target = target
        self._rewrite = rewrite
        self._reserved: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Event, tuple[asyncio.StreamWriter, ...]] = {}

    async def start(self) -> None:
        """Listens, after a pause on the same port as before."""
        if self._reserved is None:
            self._reserved = free_ports.reserved()
            self.port = self._reserved.getsockname()[1]
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)

    async def stop(self) -> None:
        """Closes the relay; it cannot be started again."""
        await self.pause()
        if self._reserved is not None:
            self._reserved.close()

    async def pause(self) -> None:
        """Refuses new connections and resets open ones, until the next start."""
        if self._server is not None:
            await closing.close(self._server)
            self.abort()
            await self._server.wait_closed()

    def abort(self) -> int:
        """Resets all connections; returns their number."""
        for writers in self._open.values():
            for writer in writers:
                writer.transport.abort()
        return len(self._open)

    def freeze(self) -> int:
        """Stops relaying on the open connections without closing them; returns their number. New ones work."""
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
            directions = [
                asyncio.create_task(self._pass(reader, back, flowing, writer)),
                asyncio.create_task(self._pass(there, writer, flowing)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
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

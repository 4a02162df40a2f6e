"""A relay between hpad and the API server, that breaks connections the way networks, proxies and gatekeepers do."""

import asyncio
import contextlib
import ssl

REFUSAL = b'{"kind":"Status","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}'


class Relay:
    """Listens on a free port of 127.0.0.1, and passes bytes on to another.

    `tls` ends TLS here; with `token` set, requests without that bearer token are refused.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.token: str | None = None
        self.tls = tls
        self._target = target
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Event, tuple[asyncio.StreamWriter, ...]] = {}

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse new connections, and break those that are open."""
        if self._server is not None:
            self._server.close()
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
            self._open[flowing] = (writer, back)
            try:
                ways = [self._pass(reader, back, flowing, writer), self._pass(there, writer, flowing)]
                await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
            finally:
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
                writer.write(data)
                await writer.drain()

    def _is_stranger(self, data: bytes) -> bool:
        begins = b" HTTP/1.1\r\n" in data
        return self.token is not None and begins and f"Bearer {self.token}\r\n".encode() not in data

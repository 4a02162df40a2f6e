"""Serves an aiohttp application on loopback, and closes it without leaking connections."""

import asyncio
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import Iterable
from typing import Self

from aiohttp import web

from hpad.clock import SystemClock

_ACCEPT_ROUNDS = 5
"""Upper bound of the event loop iterations between the accept of a connection and its registration in the server."""


async def stop_accepting(listening: Iterable[socket.socket | TransportSocket]) -> None:
    """Stops accepting connections; returns once the server has registered all accepted ones.

    Call this before closing the server: a connection that asyncio is accepting at that moment would leak its socket.
    """
    loop = asyncio.get_running_loop()
    for each in listening:
        loop.remove_reader(each)
    for _ in range(_ACCEPT_ROUNDS):
        await SystemClock().sleep(0)


class Listener:
    """A server that runs from `open` to `close`."""

    def __init__(self, runner: web.AppRunner, listening: socket.socket) -> None:
        self._runner = runner
        self._listening = listening
        self.port: int = listening.getsockname()[1]

    @classmethod
    async def open(
        cls, application: web.Application, port: int = 0, tls: ssl.SSLContext | None = None, *, patience: float = 1.0
    ) -> Self:
        """Listens on `port` of 127.0.0.1, 0 for any free one; raises OSError when the port is taken.

        `close` gives running requests `patience` seconds to end.
        """
        listening = socket.create_server(("127.0.0.1", port))
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=patience, handler_cancellation=True)
        await runner.setup()
        await web.SockSite(runner, listening, ssl_context=tls).start()
        return cls(runner, listening)

    async def close(self) -> None:
        """Stops accepting connections, then closes the open ones. A second call has no effect."""
        if self._listening.fileno() < 0:
            return
        await stop_accepting([self._listening])
        await self._runner.cleanup()
        self._listening.close()

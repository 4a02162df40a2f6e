"""An aiohttp application on loopback, and an end of it that leaves no connection behind."""

import asyncio
import socket
import ssl
from asyncio.trsock import TransportSocket
from collections.abc import Iterable
from typing import Self

from aiohttp import web

from hpad.clock import SystemClock

_LETTING_IN = 5
"""Rounds of the loop that asyncio takes at most from the accept of a connection to where the server knows of it."""


async def let_nobody_in(listening: Iterable[socket.socket | TransportSocket]) -> None:
    """Return when no more connections are accepted, and the server knows of everybody who has been let in.

    To be done before it closes: whom asyncio is letting in at that moment has a socket that nobody closes.
    """
    loop = asyncio.get_running_loop()
    for each in listening:
        loop.remove_reader(each)
    for _ in range(_LETTING_IN):
        await SystemClock().sleep(0)


class Listener:
    """Serves from `open` to `close`."""

    def __init__(self, runner: web.AppRunner, listening: socket.socket) -> None:
        self._runner = runner
        self._listening = listening
        self.port: int = listening.getsockname()[1]

    @classmethod
    async def open(
        cls, application: web.Application, port: int = 0, tls: ssl.SSLContext | None = None, *, patience: float = 1.0
    ) -> Self:
        """Listen on 127.0.0.1, at any free port unless told; raises OSError where the port is taken.

        Requests have `patience` seconds to end when it closes.
        """
        listening = socket.create_server(("127.0.0.1", port))
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=patience, handler_cancellation=True)
        await runner.setup()
        await web.SockSite(runner, listening, ssl_context=tls).start()
        return cls(runner, listening)

    async def close(self) -> None:
        """Let nobody in any more, then see off whoever has been. Nothing happens where that has been done."""
        if self._listening.fileno() < 0:
            return
        await let_nobody_in([self._listening])
        await self._runner.cleanup()
        self._listening.close()

"""A connection of HTTP/2 that is opened when it is needed, and again after it was lost."""

import asyncio
from typing import Final, cast

from hpad.kube import errors
from hpad.kube.http import frames
from hpad.kube.http.dial import Dialer
from hpad.kube.http.exchange import KEEP_ALIVE_S, Failed
from hpad.kube.http.multiplexed import Multiplexed, Owner
from hpad.kube.http.sockets import CLOSE_TIMEOUT_S

MOST_AT_ONCE: Final = 64
"""Twice those of a Pool, as they share a connection: those of one tick hardly ever wait for each other."""


class _Arriving(asyncio.Protocol):
    """A connection of which the server has not said yet whether it speaks HTTP/2."""

    def __init__(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> None:
        self._loop = loop
        self._owner = owner
        self.chosen: Multiplexed | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        tls = transport.get_extra_info("ssl_object")
        if tls is None or tls.selected_alpn_protocol() != frames.PROTOCOL:
            transport.close()
            return
        self.chosen = Multiplexed(self._loop, self._owner)
        cast("asyncio.Transport", transport).set_protocol(self.chosen)
        self.chosen.connection_made(transport)


class Kept:
    """One connection at a time. Those that the server wants to close end what they have begun."""

    def __init__(self, dialer: Dialer, server: str, largest: int) -> None:
        self.server = server
        self.largest = largest
        self.limit = MOST_AT_ONCE
        """Requests at once, or fewer if the server allows fewer."""
        self._dialer = dialer
        self._current: Multiplexed | None = None
        self._open: set[Multiplexed] = set()
        self._opening: asyncio.Task[Multiplexed | None] | None = None
        self._closed: Failed | None = None

    async def connection(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Multiplexed | None:
        """Returns the connection, or opens one; None if the server does not speak HTTP/2. Raises Failed."""
        current = self._current
        if current is not None:
            if loop.time() - current.idle_since < KEEP_ALIVE_S:
                return current
            current.close()  # it may be dead: the process may have been stopped for a while
        if self._closed is not None:
            raise self._closed
        if self._opening is None:
            self._opening = loop.create_task(self._opened(loop, deadline))
            self._opening.add_done_callback(self._has_opened)
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(self._opening)
        except TimeoutError as error:
            raise Failed(*errors.unreachable(self.server, error)) from None

    async def aclose(self, failure: Failed) -> None:
        """Closes the connection; what is in progress raises `failure`. Waits up to a second."""
        self._closed = failure
        if self._opening is not None:
            await asyncio.wait([self._opening])
        closing = list(self._open)
        for each in closing:
            each.close(failure)
        if closing:
            await asyncio.wait([each.gone for each in closing], timeout=CLOSE_TIMEOUT_S)
        for each in closing:
            each.abort()

    def lost(self, connection: Multiplexed) -> None:
        """Uses the connection for no further request."""
        if self._current is connection:
            self._current = None

    async def _opened(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Multiplexed | None:
        """Opens a connection, and waits for what the server allows: it comes first, so it is there at once."""
        try:
            arriving = await self._dialer.open(lambda: _Arriving(loop, self), deadline)
            made = arriving.chosen
            if made is None:
                return None
            self._open.add(made)
            made.gone.add_done_callback(lambda _: self._open.discard(made))
            try:
                async with asyncio.timeout_at(deadline):
                    await made.ready
            except TimeoutError as error:
                made.abort()
                raise Failed(*errors.unreachable(self.server, error)) from None
        except Failed as failure:
            raise self._closed or failure from failure
        if self._closed is not None:
            made.abort()
            raise self._closed
        if not made.closed:
            self._current, self.limit = made, min(MOST_AT_ONCE, made.limit)
        return made

    def _has_opened(self, task: asyncio.Task[Multiplexed | None]) -> None:
        self._opening = None
        if not task.cancelled():
            task.exception()  # raised by the requests that waited, if there are any left

"""A connection of HTTP/2 that is opened when it is needed, and again after it was lost."""

import asyncio
from typing import Final, cast

from hpad.kube import errors
from hpad.kube.http import frames
from hpad.kube.http.dial import CONNECT_S, Dialer
from hpad.kube.http.exchange import KEEP_ALIVE_S, Failed
from hpad.kube.http.multiplexed import Multiplexed, Owner
from hpad.kube.http.sockets import CLOSE_TIMEOUT_S

MOST_AT_ONCE: Final = 64
"""Twice those of a Pool, as they share a connection: those of one tick hardly ever wait for each other."""
_OPEN_S: Final = 30.0
"""Seconds to open a connection, of whatever addresses the server has."""
_NEW_S: Final = 5.0
"""Seconds for which a connection is not replaced: requests that are refused together replace it once."""


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
        self.problem = ""
        """What was not HTTP/2 on a connection that carried no answer: there is no other attempt."""
        self._dialer = dialer
        self._limit = MOST_AT_ONCE
        self._current: Multiplexed | None = None
        self._open: set[Multiplexed] = set()
        self._waiters = 0
        """Requests that wait for `_opening`."""
        self._opening: asyncio.Task[Multiplexed | None] | None = None
        self._closed: Failed | None = None

    @property
    def limit(self) -> int:
        """Requests at once, or fewer if the server allows fewer, as far as is known."""
        if self._current is not None:
            self._limit = min(MOST_AT_ONCE, self._current.limit)
        return self._limit

    async def connection(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Multiplexed | None:
        """Returns the connection, or opens one; None if the server does not speak HTTP/2. Raises Failed."""
        current = self._current
        if current is not None:
            if loop.time() - current.idle_since < KEEP_ALIVE_S:
                return current
            current.close()  # it may be dead: the process may have been stopped for a while
        if self._closed is not None:
            raise self._closed
        if self.problem:
            return None
        if self._opening is None:
            self._opening = loop.create_task(self._opened(loop))
            self._opening.add_done_callback(self._has_opened)
        return await self._shared(self._opening, deadline)

    def renew(self, now: float) -> None:
        """Uses the connection for no further request, unless it is new."""
        if self._current is not None and now - self._current.opened_at >= _NEW_S:
            self._current.close()

    async def aclose(self, failure: Failed) -> None:
        """Closes the connection; what is in progress raises `failure`. Waits up to a second."""
        self._closed = failure
        closing = list(self._open)
        for each in closing:  # also one that the server has not answered yet, which ends the attempt
            each.close(failure)
        if self._opening is not None:
            await asyncio.wait([self._opening])
        if closing:
            await asyncio.wait([each.gone for each in closing], timeout=CLOSE_TIMEOUT_S)
        for each in closing:
            each.abort()

    def lost(self, connection: Multiplexed) -> None:
        """Uses the connection for no further request."""
        self.problem = self.problem or connection.problem
        if self._current is connection:
            self._current = None

    async def _shared(self, opening: asyncio.Task[Multiplexed | None], deadline: float) -> Multiplexed | None:
        """Waits for an attempt to connect, which ends with the last request that waits for it."""
        self._waiters += 1
        try:
            async with asyncio.timeout_at(deadline):
                return await asyncio.shield(opening)
        except TimeoutError as error:
            raise Failed(*errors.unreachable(self.server, error)) from None
        finally:
            self._waiters -= 1
            if not self._waiters and not opening.done():
                opening.cancel()
                self._opening = None

    async def _opened(self, loop: asyncio.AbstractEventLoop) -> Multiplexed | None:
        """Opens a connection, and waits for what the server allows: it comes first, so it is there at once."""
        try:
            arriving = await self._dialer.open(lambda: _Arriving(loop, self), loop.time() + _OPEN_S)
            made = arriving.chosen
            if made is None:
                return None
            self._open.add(made)
            made.gone.add_done_callback(lambda _: self._open.discard(made))
            await self._readied(made)
        except Failed as failure:
            raise self._closed or failure from failure
        if self._closed is not None:
            made.abort()
            raise self._closed
        if not made.closed:
            self._current = made
        return None if self.problem else made

    async def _readied(self, made: Multiplexed) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await made.ready
        except TimeoutError as error:
            made.abort()
            raise Failed(*errors.unreachable(self.server, error)) from None
        except asyncio.CancelledError:
            made.abort()
            raise

    def _has_opened(self, task: asyncio.Task[Multiplexed | None]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled():
            task.exception()  # raised by the requests that waited, if there are any left

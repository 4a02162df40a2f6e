"""Sends requests over one HTTP/2 connection and streams over others, or by a Pool where the server has no HTTP/2."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import structlog

from hpad.clock import Clock
from hpad.kube import errors
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http import frames
from hpad.kube.http.dial import Dialer, Place
from hpad.kube.http.exchange import REPEATED, Allowed, Answer, Failed, Head, Stream
from hpad.kube.http.inflight import Incoming
from hpad.kube.http.kept import Kept
from hpad.kube.http.multiplexed import Multiplexed
from hpad.kube.http.pool import Pool
from hpad.kube.http.sockets import Sockets

_HTTP_1: Final = "http/1.1"


class Shared:
    """A Sender for servers with TLS, in which they choose the protocol.

    Streams have connections of their own: what they bring is read in pauses, and a list by a stream delays no request.
    """

    def __init__(self, config: ClusterConfig, clock: Clock, agent: str, largest: int) -> None:
        self._tls = config.ssl
        self._offer(frames.PROTOCOL, _HTTP_1)
        self.server = config.server
        self._largest = largest
        self._multiplexed = True
        """Whether the server speaks HTTP/2, as far as is known."""
        self._pool = Pool(config, clock, agent, largest)
        place = Place.of(config.server)
        self._prefix = place.path
        self._place = frames.headers({":scheme": "https", ":authority": place.header})
        self._agent = frames.headers({"user-agent": agent, "accept-encoding": "identity"})
        self._sockets = Sockets(clock)
        self._dialer = Dialer(config, self._sockets)
        self._requests = Kept(self._dialer, config.server, largest)
        self._streams: list[Kept] = []
        self._running = 0
        """Requests that have begun."""
        self._waiting: deque[asyncio.Future[Failed | None]] = deque()
        self._closed: Failed | None = None

    async def send(
        self, method: str, target: str, head: Head, body: bytes | None, timeout: float, allowed: Allowed | None
    ) -> Answer:
        """Returns the answer; see Sender.

        Repeats a GET or PUT once if the connection turns out to be closed, and any request once that the server has
        said not to have processed, as it does before it closes a connection.
        """
        if not self._multiplexed:
            return await self._pool.send(method, target, head, body, timeout, allowed)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        repeatable, again = method in REPEATED, True
        while (connection := await self._admitted(loop, deadline)) is not None:
            try:
                if allowed is not None and body is not None:
                    allowed()
                repeatable = repeatable and connection.used
                return await connection.exchange(self._encoded(method, target, head, body), body, deadline)
            except Failed as failure:
                if not (again and (failure.refused or (failure.unheard and repeatable))):
                    raise
            finally:
                self._pass_on()
            again = False
        self._fall_back()
        return await self._pool.send(method, target, head, body, deadline - loop.time(), allowed)

    @asynccontextmanager
    async def stream(self, target: str, head: Head, silence: float) -> AsyncIterator[Stream]:
        """See Sender."""
        loop = asyncio.get_running_loop()
        connection = await self._for_stream(loop, loop.time() + silence) if self._multiplexed else None
        if connection is None:
            self._fall_back()
            async with self._pool.stream(target, head, silence) as stream:
                yield stream
            return
        incoming = await self._begun(loop, connection, self._encoded("GET", target, head, None), silence)
        try:
            yield incoming
        finally:
            incoming.drop()

    def renew(self) -> None:
        """See Sender."""
        now = asyncio.get_running_loop().time()
        for each in (self._requests, *self._streams):
            each.renew(now)
        self._pool.renew()

    async def aclose(self) -> None:
        """See Sender."""
        failure = self._closed = Failed("Closed", f"the connection to {self.server} has been closed")
        self._dialer.stop()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(failure)
        self._waiting.clear()
        kept = self._requests, *self._streams
        await asyncio.gather(self._pool.aclose(), *(each.aclose(failure) for each in kept))
        await self._sockets.closed()

    def _encoded(self, method: str, target: str, head: Head, body: bytes | None) -> bytes:
        """Returns the headers of a request."""
        size = b"" if body is None else frames.content_length(len(body))
        where = self._place, frames.path(f"{self._prefix}{target}")
        return b"".join((frames.method(method), *where, self._agent, head.block, size))

    # HTTP/1.1.

    def _offer(self, *protocols: str) -> None:
        """Sets the protocols among which the server chooses when a connection is opened."""
        if self._tls is not None:
            self._tls.set_alpn_protocols(protocols)

    def _fall_back(self) -> None:
        """Speaks HTTP/1.1 from now on: the server has chosen it, or what it speaks as HTTP/2 is something else."""
        if not self._multiplexed:
            return
        self._multiplexed = False
        self._offer(_HTTP_1)
        problem = next((each.problem for each in (self._requests, *self._streams) if each.problem), "")
        if problem:
            log = structlog.get_logger("hpad.kube")
            log.warning("HTTP/2 does not work: using HTTP/1.1 from now on", server=self.server, error=problem)

    # Connections for streams.

    async def _for_stream(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Multiplexed | None:
        """Returns the first connection with room for one more stream; None if the server does not speak HTTP/2."""
        number = 0
        while True:
            self._refuse_if_closed()
            if number == len(self._streams):
                self._streams.append(Kept(self._dialer, self.server, self._largest))
            connection = await self._streams[number].connection(loop, deadline)
            if connection is None or connection.busy < connection.limit:
                return connection
            number += 1

    async def _begun(
        self, loop: asyncio.AbstractEventLoop, connection: Multiplexed, head: bytes, silence: float
    ) -> Incoming:
        try:
            return await connection.stream(head, silence)
        except Failed as failure:
            if not (failure.refused or (failure.unheard and connection.used)):
                raise
        again = await self._for_stream(loop, loop.time() + silence)
        if again is None:
            raise Failed(*errors.interrupted(self.server, None))
        return await again.stream(head, silence)

    def _refuse_if_closed(self) -> None:
        if self._closed is not None:
            raise self._closed

    # Turns: at most so many requests at once, in the order of their arrival.

    async def _admitted(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Multiplexed | None:
        """Returns the connection once the request may begin on it, which counts as running until `_pass_on`.

        Returns None if the server does not speak HTTP/2; nothing runs then. Raises Failed. Requests that wait for a
        new connection learn only then what the server allows: to send more would end the connection.
        """
        while True:
            if self._running >= self._requests.limit:
                await self._turn(loop, deadline)
            else:
                self._running += 1
            connection = None
            try:
                connection = await self._requests.connection(loop, deadline)
                if connection is not None and connection.busy < connection.limit:
                    return connection
            except BaseException:
                self._pass_on()
                raise
            self._pass_on()
            if connection is None:
                return None

    async def _turn(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        """Waits until the request may begin. Raises Failed."""
        waiter: asyncio.Future[Failed | None] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_at(deadline, self._time_out, waiter)
        try:
            failure = await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):  # its turn had come in vain
                    self._waiting.remove(waiter)
            elif waiter.result() is None:
                self._pass_on()
            raise
        finally:
            timer.cancel()
        if failure is not None:
            raise failure

    def _time_out(self, waiter: asyncio.Future[Failed | None]) -> None:
        if not waiter.done():
            self._waiting.remove(waiter)
            waiter.set_result(Failed(*errors.unreachable(self.server, TimeoutError())))

    def _pass_on(self) -> None:
        """Gives the turn of a request that has ended to the one that has waited longest."""
        if self._running <= self._requests.limit:
            while self._waiting:
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._running -= 1

"""The connections of requests: at most 32, kept alive, given to requests in the order of their arrival."""

import asyncio
import functools
from collections import deque
from contextlib import AbstractAsyncContextManager

from hpad.clock import Clock
from hpad.kube import errors
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.http.connection import EARLY_S, Connection
from hpad.kube.http.dial import Dialer, Place
from hpad.kube.http.exchange import AT_ONCE, KEEP_ALIVE_S, REPEATED, Allowed, Answer, Failed, Head, Stream
from hpad.kube.http.session import Session
from hpad.kube.http.sockets import CLOSE_TIMEOUT_S, Sockets

_Given = Connection | Failed | None
"""What a request that waited gets: a connection, an error, or None for the right to open one."""


class Pool:
    """Sends requests, each on a connection of its own for as long as it takes; streams by a Session. A Sender."""

    def __init__(self, config: ClusterConfig, clock: Clock, agent: str, largest: int) -> None:
        self.server = config.server
        self.largest = largest
        place = Place.of(config.server)
        self._prefix = place.path
        common = {"Host": place.header, "User-Agent": agent, "Accept-Encoding": "identity"}
        self._common = b" HTTP/1.1\r\n" + Head(common).lines
        self._sockets = Sockets(clock)
        self._dialer = Dialer(config, self._sockets)
        self._session = Session(config, clock, agent, largest)
        self._connections: set[Connection] = set()
        self._idle: list[Connection] = []
        """The one used last is at the end, and used first, so that those that are not needed are closed."""
        self._sweeper: asyncio.TimerHandle | None = None
        self._open = 0
        """Connections, also those that are being opened."""
        self._waiting: deque[asyncio.Future[_Given]] = deque()
        self._closed = False

    async def send(
        self, method: str, target: str, head: Head, body: bytes | None, timeout: float, allowed: Allowed | None
    ) -> Answer:
        """Returns the answer; see Sender. Repeats a GET or PUT once if an idle connection turns out to be closed."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = now + timeout
        request = self._encoded(method, target, head, body)
        connection = self._reused(now) or await self._another(loop, deadline)
        repeatable = method in REPEATED
        while True:
            while connection.closed and connection.used:  # since it was handed over; nothing was sent
                connection = await self._another(loop, deadline)
            if allowed is not None and body is not None:
                self._check(allowed, connection)
            repeatable = repeatable and connection.used
            try:
                return await connection.exchange(request, deadline)
            except Failed as failure:
                if not (failure.unheard and repeatable):
                    raise
            repeatable = False
            connection = await self._another(loop, deadline)

    def stream(self, target: str, head: Head, silence: float) -> AbstractAsyncContextManager[Stream]:
        """See Sender."""
        return self._session.stream(target, head, silence)

    def renew(self) -> None:
        """See Sender. A connection in use is kept."""
        for connection in tuple(self._idle):
            connection.close()
        self._session.renew()

    async def aclose(self) -> None:
        self._closed = True
        closing_session = asyncio.ensure_future(self._session.aclose())
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._dialer.stop()
        failure = self._closed_failure()
        while (waiter := self._next()) is not None:
            waiter.set_result(failure)
        closing = list(self._connections)
        for connection in closing:
            connection.close(failure)
        if closing:
            await asyncio.wait([each.gone for each in closing], timeout=CLOSE_TIMEOUT_S)
        for connection in closing:
            connection.abort()
        await asyncio.gather(closing_session, self._sockets.closed())

    def _encoded(self, method: str, target: str, head: Head, body: bytes | None) -> bytes:
        line = f"{method} {self._prefix}{target}".encode("ascii")
        if body is None:
            return b"".join((line, self._common, head.lines, b"\r\n"))
        return b"".join((line, self._common, head.lines, b"Content-Length: %d\r\n\r\n" % len(body), body))

    def _check(self, allowed: Allowed, connection: Connection) -> None:
        try:
            allowed()
        except BaseException:
            self.release(connection)
            raise

    # Connections for requests.

    def _reused(self, now: float) -> Connection | None:
        """Takes an idle connection, unless it is older than allowed: the process may have been stopped for a while."""
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < KEEP_ALIVE_S:
                return connection
            connection.close()
        return None

    async def _another(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Connection:
        """Opens a connection, or waits for one. Takes no idle one: if one was dropped, the others may be dead too."""
        self._refuse_if_closed()
        if self._open >= AT_ONCE and self._idle:
            self._idle[0].close()
        if self._open < AT_ONCE:
            self._open += 1
        else:
            given = await self._wait(loop, deadline)
            if given is not None:
                return given
        return await self._opened(loop, deadline)

    async def _opened(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Connection:
        """Opens a connection, which `_open` counts already."""
        try:
            self._refuse_if_closed()  # while the request waited
            connection = await self._dialer.open(functools.partial(Connection, loop, self), deadline)
        except BaseException as error:
            self._free()
            if self._closed and isinstance(error, Failed):
                raise self._closed_failure() from error
            raise
        if connection.closed:  # already; an exchange will say so
            self._free()
            return connection
        self._connections.add(connection)
        if self._closed:
            connection.abort()
            raise self._closed_failure()
        return connection

    async def _wait(self, loop: asyncio.AbstractEventLoop, deadline: float) -> Connection | None:
        """Waits for a connection, or for the right to open one (None)."""
        waiter: asyncio.Future[_Given] = loop.create_future()
        self._waiting.append(waiter)
        timer = loop.call_at(deadline, self._time_out, waiter)
        try:
            given = await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                self._waiting.remove(waiter)
            elif isinstance(unused := waiter.result(), Connection):
                self.release(unused)
            elif unused is None:
                self._free()
            raise
        finally:
            timer.cancel()
        if isinstance(given, Failed):
            raise given
        return given

    def _time_out(self, waiter: asyncio.Future[_Given]) -> None:
        if not waiter.done():
            self._waiting.remove(waiter)
            waiter.set_result(Failed(*errors.unreachable(self.server, TimeoutError())))

    def _next(self) -> asyncio.Future[_Given] | None:
        """Takes the request that has waited longest; cancelled ones remove themselves."""
        for waiter in self._waiting:
            if not waiter.done():
                self._waiting.remove(waiter)
                return waiter
        return None

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise self._closed_failure()

    def _closed_failure(self) -> Failed:
        return Failed("Closed", f"the connection to {self.server} has been closed")

    # Connections that become free.

    def release(self, connection: Connection) -> None:
        """Gives the connection to the next request, or keeps it for a while."""
        if connection.closed:
            return
        if self._closed:
            connection.close()
        elif (waiter := self._next()) is not None:
            waiter.set_result(connection)
        else:
            self._keep(connection)

    def lost(self, connection: Connection) -> None:
        if connection not in self._connections:  # it was never opened completely
            return
        self._connections.remove(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._free()

    def _free(self) -> None:
        """Lets the next request open a connection."""
        if (waiter := self._next()) is not None:
            waiter.set_result(None)
        else:
            self._open -= 1

    def _keep(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.idle_since = loop.time()
        self._idle.append(connection)
        if self._sweeper is None:
            self._sweeper = loop.call_at(connection.idle_since + KEEP_ALIVE_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Closes connections that were idle for too long. One timer for all, which moves only when it fires."""
        self._sweeper = None
        since = loop.time() - KEEP_ALIVE_S + EARLY_S
        while self._idle and self._idle[0].idle_since <= since:
            self._idle[0].close()
        if self._idle:
            self._sweeper = loop.call_at(self._idle[0].idle_since + KEEP_ALIVE_S, self._sweep, loop)

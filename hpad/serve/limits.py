"""How much a window takes on: connections, bytes, seconds. A client that asks for more loses its connection.

Room for connections: a full server closes the one that has been idle for longest, and keeps seats for probes.

So a client that opens connections and sends nothing, or heads that never end, keeps nobody out.
"""

import asyncio
import enum
import http
from typing import Any, Final, Protocol, cast

import structlog
from aiohttp import web


class Admission(enum.Enum):
    """What a new connection may do."""

    ANY = "any"
    PROBES = "probes"
    NONE = "none"


class OpenConnection(Protocol):
    """An open connection."""

    @property
    def idle_since(self) -> float | None:
        """Since when it has waited for (the rest of) a request, in seconds; None while it has one answered."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


class Connections:
    """`most` connections of any kind, and `probes` more while all of those are at work, which are for probes alone."""

    def __init__(self, most: int, probes: int) -> None:
        self._most = most
        self._probes = probes
        self._taken: set[OpenConnection] = set()

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, connection: OpenConnection) -> Admission:
        """A seat for a new connection, that of the longest idle one if there is no other; `leave` gives it back."""
        if len(self._taken) >= self._most:
            self._evict()
        admission = self._free()
        if admission is not Admission.NONE:
            self._taken.add(connection)
        return admission

    def leave(self, connection: OpenConnection) -> None:
        self._taken.discard(connection)

    def _free(self) -> Admission:
        if len(self._taken) < self._most:
            return Admission.ANY
        return Admission.PROBES if len(self._taken) < self._most + self._probes else Admission.NONE

    def _evict(self) -> None:
        idle = [(since, connection) for connection in self._taken if (since := connection.idle_since) is not None]
        if idle:
            _, first = min(idle, key=lambda each: each[0])
            self._taken.discard(first)
            first.abort()


CONNECTIONS: Final = 128
PROBE_CONNECTIONS: Final = 16
"""More, for probes alone, while all the others are at work."""
AT_WORK: Final = 4
"""Requests that are worked on at a time; the page of ten thousand HPAs takes megabytes."""
REQUEST_SECONDS: Final = 20.0
"""For an answer to be made, waiting for a turn included; then again for it to be taken."""
HANDSHAKE_SECONDS: Final = 5.0
HEAD_SECONDS: Final = 10.0
"""For the head of a request to come, from the connection or the first byte on."""
BODY_BYTES: Final = 1024
"""Nothing here takes a body."""
SERVER: Final[dict[str, Any]] = {
    "keepalive_timeout": 75.0,
    "max_line_size": 2048,
    "max_field_size": 8190 + len("Bearer "),
    "max_headers": 64,
    "lingering_time": 0.0,  # a body that is still on its way is not waited for
    "access_log": None,
}
"""Arguments of a connection."""
_END_OF_HEAD: Final = b"\r\n\r\n"


class Connection(web.RequestHandler):
    """aiohttp's request handler with limits.

    `connections` must admit it. A client that does not send the head of a request within `head_patience` seconds, or
    does not read its response within `patience` seconds, is disconnected. Malformed requests are never repeated in the
    answer or the log, because they may hold a token.
    """

    patience = REQUEST_SECONDS
    head_patience = HEAD_SECONDS
    probes_only = False
    """Whether all other seats are taken by connections at work."""
    _giving_up: asyncio.TimerHandle | None = None
    _waiting: asyncio.TimerHandle | None = None
    _idle_since: float | None = None
    _partial = True
    """Whether what came last is not the end of a head, so that the rest of one is to come."""

    def __init__(
        self, manager: Any, *, connections: Connections, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self._connections = connections
        self._admission = Admission.NONE

    @property
    def idle_since(self) -> float | None:
        """Since when it has waited for (the rest of) a request, in seconds of the loop; None while one is answered."""
        sending = self.transport is not None and self.transport.get_write_buffer_size() > 0
        return None if sending else self._idle_since

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._admission = self._connections.take(self)
        if self._admission is Admission.NONE:
            cast(asyncio.Transport, transport).abort()  # uvloop's are of no class of asyncio's
            return
        self.probes_only = self._admission is Admission.PROBES
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._partial = not data.endswith(_END_OF_HEAD)
        if self._idle_since is not None and self._waiting is None:
            self._limit_head()
        super().data_received(data)

    def asked(self) -> None:
        """A request has come: the answer before it, if any, was taken."""
        self._idle_since = None
        for timer in (self._waiting, self._giving_up):
            if timer is not None:
                timer.cancel()
        self._waiting = self._giving_up = None

    def answered(self) -> None:
        """An answer is on its way."""
        self.asked()
        self._giving_up = asyncio.get_running_loop().call_later(self.patience, self._give_up)
        self._wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.asked()
        self._connections.leave(self)
        if self._admission is not Admission.NONE:
            super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer with the bare status, and end the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of another answer was sent already")
        log = structlog.get_logger("hpad.serve")
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("bug: a request failed in a way nobody expected", exc_info=exc)
        else:
            log.debug("not a request", status=status, kind=type(exc).__name__)
        answer = web.Response(text=f"{status}: {http.HTTPStatus(status).phrase}\n", status=status)
        answer.force_close()
        return answer

    def abort(self) -> None:
        """End the connection at once, whatever is still to be sent."""
        if self.transport is not None:
            self.transport.abort()

    def _wait(self) -> None:
        """For the next request; of one that has begun the rest has to come in time."""
        self._idle_since = asyncio.get_running_loop().time()
        if self._partial:
            self._limit_head()

    def _limit_head(self) -> None:
        self._waiting = asyncio.get_running_loop().call_later(self.head_patience, self.abort)

    def _give_up(self) -> None:
        if self.transport is not None and self.transport.get_write_buffer_size() > 0:
            self.abort()

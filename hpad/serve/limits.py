"""Limits of the HTTP server: connections, bytes and seconds. A client that exceeds one is disconnected.

A full server closes the connection that has been idle longest, and reserves some connections for probes. Therefore
clients that open connections and send nothing, or send endless request heads, cannot lock out others.
"""

import asyncio
import enum
import http
from typing import Any, Final, cast

import structlog
from aiohttp import web

CONNECTIONS: Final = 128
PROBE_CONNECTIONS: Final = 16
"""Additional connections, for probes only, while all others are answering requests."""
CONCURRENT_REQUESTS: Final = 4
"""Requests answered at a time. The page of 10,000 HPAs takes megabytes."""
REQUEST_SECONDS: Final = 20.0
"""Limit for producing a response, including the time in the queue, and again for the client to read it."""
HANDSHAKE_SECONDS: Final = 5.0
HEAD_SECONDS: Final = 10.0
"""Limit for the head of a request, counted from the connection or from the first byte of the head."""
BODY_BYTES: Final = 1024  # no route reads a body
CONNECTION_OPTIONS: Final[dict[str, Any]] = {
    "keepalive_timeout": 75.0,
    "max_line_size": 2048,
    "max_field_size": 8190 + len("Bearer "),
    "max_headers": 64,
    "lingering_time": 0.0,  # do not wait for the rest of a body
    "access_log": None,
}
_END_OF_HEAD: Final = b"\r\n\r\n"


class Admission(enum.Enum):
    """Which requests a new connection may send."""

    ANY = "any"
    PROBES = "probes"
    NONE = "none"


class Connections:
    """The open connections: at most `limit`, and `probes` more, for probes only, if none of the others is idle."""

    def __init__(self, limit: int, probes: int) -> None:
        self._limit = limit
        self._probes = probes
        self._open: set[Connection] = set()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: "Connection") -> Admission:
        """Adds a connection until `remove`. If the server is full, closes the one that has been idle longest."""
        if len(self._open) >= self._limit:
            self._close_idle()
        if len(self._open) >= self._limit + self._probes:
            return Admission.NONE
        admission = Admission.ANY if len(self._open) < self._limit else Admission.PROBES
        self._open.add(connection)
        return admission

    def remove(self, connection: "Connection") -> None:
        self._open.discard(connection)

    def _close_idle(self) -> None:
        idle = [(since, each) for each in self._open if (since := each.idle_since) is not None]
        if idle:
            _, oldest = min(idle, key=lambda each: each[0])
            self._open.discard(oldest)
            oldest.abort()


class Connection(web.RequestHandler):
    """aiohttp's request handler with limits.

    `connections` must admit it. A client that does not send the head of a request within `head_patience` seconds, or
    does not read its response within `patience` seconds, is disconnected. Malformed requests are never repeated in the
    answer or the log, because they may contain a token.
    """

    patience = REQUEST_SECONDS
    head_patience = HEAD_SECONDS
    admission = Admission.NONE
    _read_timer: asyncio.TimerHandle | None = None
    _head_timer: asyncio.TimerHandle | None = None
    _idle_since: float | None = None
    _partial = True
    """Whether the last bytes received were not the end of a request head."""

    def __init__(
        self, manager: Any, *, connections: Connections, loop: asyncio.AbstractEventLoop, **options: Any
    ) -> None:
        super().__init__(manager, loop=loop, **options)
        self._connections = connections

    @property
    def idle_since(self) -> float | None:
        """Loop time in seconds at which it began to wait for a request or its rest; None while it answers one."""
        sending = self.transport is not None and self.transport.get_write_buffer_size() > 0
        return None if sending else self._idle_since

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.admission = self._connections.admit(self)
        if self.admission is Admission.NONE:
            cast(asyncio.Transport, transport).abort()  # uvloop's transports do not derive from asyncio's
            return
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        self._partial = not data.endswith(_END_OF_HEAD)
        # One timer per head: bytes that arrive one at a time must not extend it.
        if self._idle_since is not None and self._head_timer is None:
            self._limit_head()
        super().data_received(data)

    def request_received(self) -> None:
        """Notes that a request has arrived, so the client has read the previous response."""
        self._idle_since = None
        for timer in (self._head_timer, self._read_timer):
            if timer is not None:
                timer.cancel()
        self._head_timer = self._read_timer = None

    def response_started(self) -> None:
        """Notes that a response is being sent."""
        self.request_received()
        self._read_timer = asyncio.get_running_loop().call_later(self.patience, self._abort_unread)
        self._wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        self.request_received()
        self._connections.remove(self)
        if self.admission is not Admission.NONE:  # else aiohttp does not know the connection
            super().connection_lost(exc)

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answers with only the status, and closes the connection."""
        if request.writer.output_size > 0:
            # A second status line would be read as part of the first response.
            raise ConnectionError("part of another response was sent already")
        log = structlog.get_logger("hpad.serve")
        if isinstance(exc, UnicodeError):  # aiohttp repeats an Expect that it does not know, and this one is not UTF-8
            status = http.HTTPStatus.BAD_REQUEST
        if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
            log.error("bug: unexpected exception in a request", exc_info=exc)
        else:
            log.debug("malformed request", status=status, kind=type(exc).__name__)
        text, headers = f"{status}: {http.HTTPStatus(status).phrase}\n", {"Server": "hpad"}  # aiohttp names versions
        response = web.Response(text=text, status=status, headers=headers)
        response.force_close()
        return response

    def abort(self) -> None:
        """Closes the connection at once and drops unsent bytes."""
        if self.transport is not None:
            self.transport.abort()

    def _wait(self) -> None:
        """Starts waiting for the next request. The rest of a partial head must arrive within `head_patience`."""
        self._idle_since = asyncio.get_running_loop().time()
        if self._partial:
            self._limit_head()

    def _limit_head(self) -> None:
        self._head_timer = asyncio.get_running_loop().call_later(self.head_patience, self.abort)

    def _abort_unread(self) -> None:
        if self.transport is not None and self.transport.get_write_buffer_size() > 0:
            self.abort()

"""How much a window takes on: connections, bytes, seconds. A client that asks for more loses its connection."""

import asyncio
import http
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

import structlog
from aiohttp import web

CONNECTIONS: Final = 128
AT_WORK: Final = 4
"""Requests that are worked on at a time; the page of ten thousand HPAs takes megabytes."""
REQUEST_SECONDS: Final = 20.0
"""For an answer to be made, waiting for a turn included; then again for it to be taken."""
HANDSHAKE_SECONDS: Final = 5.0
BODY_BYTES: Final = 1024
"""Nothing here takes a body."""
SERVER: Final[dict[str, Any]] = {
    "keepalive_timeout": 75.0,  # also bounds how long the head of a request may take to come
    "max_line_size": 2048,
    "max_field_size": 8190 + len("Bearer "),
    "max_headers": 64,
    "lingering_time": 1.0,
    "access_log": None,
}
"""Arguments of a connection."""


class Connection(web.RequestHandler):
    """aiohttp's, but for what becomes of requests that are none: neither answer nor log repeats what was sent, which
    may have been a token.
    """

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer with the bare status, and end the connection."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of another answer was sent already")
        structlog.get_logger("hpad.serve").debug("not a request", status=status, kind=type(exc).__name__)
        answer = web.Response(text=f"{status}: {http.HTTPStatus(status).phrase}\n", status=status)
        answer.force_close()
        return answer


class Door:
    """A protocol factory before another: those above the number of connections are shown out at once."""

    def __init__(self, count: Callable[[], int], inside: Callable[[], asyncio.Protocol], most: int) -> None:
        self._count = count
        self._inside = inside
        self._most = most

    def __call__(self) -> asyncio.BaseProtocol:
        return self._inside() if self._count() < self._most else _Full()


class _Full(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()


class Readers:
    """Cuts off those who do not take, within `seconds`, what they have asked for."""

    def __init__(self, seconds: float = REQUEST_SECONDS) -> None:
        self._seconds = seconds
        self._timers: WeakKeyDictionary[asyncio.Transport, asyncio.TimerHandle] = WeakKeyDictionary()

    def asked(self, transport: asyncio.Transport) -> None:
        """A request has come: the answer before it, if any, was taken."""
        timer = self._timers.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def answered(self, transport: asyncio.Transport) -> None:
        """An answer is on its way."""
        self.asked(transport)
        loop = asyncio.get_running_loop()
        self._timers[transport] = loop.call_later(self._seconds, _cut_off, transport)


def _cut_off(transport: asyncio.Transport) -> None:
    if transport.get_write_buffer_size() > 0:
        transport.abort()

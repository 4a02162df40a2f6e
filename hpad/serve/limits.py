"""How much a window takes on: connections, bytes, seconds. A client that asks for more loses its connection."""

import asyncio
import http
from collections.abc import Callable
from typing import Any, Final, cast

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
    "lingering_time": 0.0,  # a body that is still on its way is not waited for
    "access_log": None,
}
"""Arguments of a connection."""


class Connection(web.RequestHandler):
    """aiohttp's, with two differences. Who does not take, within `patience` seconds, what he has asked for, is cut off.
    And of what is no request neither answer nor log repeats anything, since it may have been a token.
    """

    patience = REQUEST_SECONDS
    _giving_up: asyncio.TimerHandle | None = None

    def asked(self) -> None:
        """A request has come: the answer before it, if any, was taken."""
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def answered(self) -> None:
        """An answer is on its way."""
        self.asked()
        self._giving_up = asyncio.get_running_loop().call_later(self.patience, self._give_up)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.asked()
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

    def _give_up(self) -> None:
        if self.transport is not None and self.transport.get_write_buffer_size() > 0:
            self.abort()


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
        cast(asyncio.Transport, transport).abort()  # uvloop's are of no class of asyncio's

"""HTTP/1.1 for the stub server: parses requests with as few steps as possible, and writes prepared answers.

Clients are those of the bench: they send a Content-Length with each body, and neither chunks nor `Expect`.
"""

import asyncio
import re
import time
from collections.abc import Callable
from email.utils import formatdate
from typing import Final, NamedTuple, cast

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_REASONS: Final = {200: b"OK", 201: b"Created", 404: b"Not Found", 405: b"Method Not Allowed", 409: b"Conflict"}
_REASONS_ELSE: Final = b"Error"


class Request(NamedTuple):
    """`path` is escaped and without its query; `head` is the request line with the header lines."""

    method: str
    path: str
    query: str
    body: bytes
    head: bytes


Handler = Callable[["Connection", Request], bytes | None]
"""Returns an answer (see `answer`); None if it writes to the connection itself, now or later."""


class Connection(asyncio.Protocol):
    """One connection of a client. Requests are handled in their order, also pipelined ones."""

    def __init__(self, handler: Handler, others: "set[Connection] | None" = None) -> None:
        """Makes a connection that is in `others` while it is open."""
        self.transport: asyncio.Transport
        self.writable = asyncio.Event()
        self.closed: Callable[[], None] | None = None
        """Called when the connection ends."""
        self._handler = handler
        self._others = set() if others is None else others
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are of classes of their own
        self._others.add(self)
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._others.discard(self)
        self.writable.set()
        if self.closed is not None:
            self.closed()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        answers = []
        while data:
            head_end = data.find(b"\r\n\r\n")
            if head_end < 0:
                break
            head = data[:head_end]
            found = _LENGTH.search(head)
            end = head_end + 4 + (int(found[1]) if found else 0)
            if len(data) < end:
                break
            method, target, _ = head[: head.index(b"\r\n")].decode("latin-1").split(" ", 2)
            path, _, query = target.partition("?")
            reply = self._handler(self, Request(method, path, query, data[head_end + 4 : end], head))
            if reply is not None:
                answers.append(reply)
            data = data[end:]
        self._rest = data
        if answers:
            self.transport.write(b"".join(answers))


class _Date:
    """The header `Date`, written once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._line = b""

    def line(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second, self._line = now, f"Date: {formatdate(now, usegmt=True)}\r\n".encode()
        return self._line


_DATE: Final = _Date()


def answer(body: bytes, status: int = 200, media_type: bytes = b"application/json") -> bytes:
    """Returns a whole answer."""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status,
        _REASONS.get(status, _REASONS_ELSE),
        media_type,
        _DATE.line(),
        len(body),
        body,
    )


def stream_head() -> bytes:
    """Returns the head of an answer in chunks."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%bTransfer-Encoding: chunked\r\n\r\n" % _DATE.line()


def chunk(data: bytes) -> bytes:
    """Returns one chunk of a stream; b"" ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)

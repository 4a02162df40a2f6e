"""HTTP/1.1 for the stub server: parses requests with as few steps as possible, and writes prepared answers.

Clients are those of the bench: they send a Content-Length with each body, and neither chunks nor `Expect`.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from tools.bench.cluster.stub import http
from tools.bench.cluster.stub.http import DATE, Answer, Handler, Request

_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)", re.IGNORECASE)
_REASONS: Final = {200: b"OK", 201: b"Created", 404: b"Not Found", 405: b"Method Not Allowed", 409: b"Conflict"}
_REASONS_ELSE: Final = b"Error"
_STREAM_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
)


class Connection(http.Connection):
    """Handles requests in their order, also pipelined ones. It is the channel of each of its requests."""

    def __init__(self, handler: Handler, others: set[http.Connection] | None = None) -> None:
        super().__init__(handler, others)
        self.closed: Callable[[], None] | None = None
        self._rest = b""

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
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
                answers.append(_rendered(reply))
            data = data[end:]
        self._rest = data
        if answers:
            self.transport.write(b"".join(answers))

    @property
    def gone(self) -> bool:
        return self.transport.is_closing()

    def begin(self) -> None:
        self.transport.write(_STREAM_HEAD % DATE.text())

    def send(self, pieces: Iterable[bytes]) -> None:
        self.transport.write(b"".join(map(_chunk, pieces)))

    def end(self) -> None:
        self.transport.write(_chunk(b""))

    async def drained(self) -> None:
        await self.writable.wait()


def _rendered(answer: Answer) -> bytes:
    """Returns a whole answer."""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\nDate: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        answer.status,
        _REASONS.get(answer.status, _REASONS_ELSE),
        answer.media_type,
        DATE.text(),
        len(answer.body),
        answer.body,
    )


def _chunk(data: bytes) -> bytes:
    """Returns one chunk of a stream; b"" ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)

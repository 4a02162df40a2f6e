"""Requests and answers of the stub server in any version of HTTP, and the connections that carry them."""

import asyncio
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from typing import Final, NamedTuple, Protocol, cast


class Request(NamedTuple):
    """`path` is escaped and without its query; `head` has the headers, with their values in plain text."""

    method: str
    path: str
    query: str
    body: bytes
    head: bytes


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    media_type: bytes = b"application/json"


class Channel(Protocol):
    """Takes an answer that is written piece by piece."""

    closed: Callable[[], None] | None
    """Called when the client takes no more of it."""

    @property
    def gone(self) -> bool:
        """Whether the client takes no more of it."""
        ...

    def begin(self) -> None:
        """Writes the headers of an answer in JSON."""
        ...

    def send(self, pieces: Iterable[bytes]) -> None:
        """Writes pieces of the body, each of which the client gets by itself."""
        ...

    def end(self) -> None:
        """Ends the body."""
        ...

    async def drained(self) -> None:
        """Waits until the client has taken most of what was sent, or is gone."""
        ...


Handler = Callable[[Channel, Request], Answer | None]
"""Returns an answer; None if it writes one to the channel, now or later."""


class Connection(asyncio.Protocol):
    """One connection of a client; it is in `others` while it is open."""

    def __init__(self, handler: Handler, others: "set[Connection] | None" = None) -> None:
        self.transport: asyncio.Transport
        self.writable = asyncio.Event()
        self._handler = handler
        self._others = set() if others is None else others

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


class _Date:
    """The value of the header `Date`, written once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._text = b""

    def text(self) -> bytes:
        now = int(time.time())
        if now != self._second:
            self._second, self._text = now, formatdate(now, usegmt=True).encode()
        return self._text


DATE: Final = _Date()

"""What runs on the streams of an HTTP/2 connection: requests, and answers that are read as they arrive."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol

from hpad.kube.http import frames
from hpad.kube.http.exchange import Answer, Failed


class Carrier(Protocol):
    """The connection."""

    def drop(self, stream: int) -> None:
        """Gives up what is in progress on a stream."""
        ...

    def acknowledge(self, stream: int) -> None:
        """Lets the server send more of a stream, as all that it sent has been read."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Reads nothing in this context; what the server sends waits in the socket."""
        ...


class HeadedAnswer(Answer):
    """An answer whose headers are decoded when they are read."""

    __slots__ = ("_block",)

    def __init__(self, status: int, block: bytes, body: bytes) -> None:
        super().__init__(status, {}, body)
        self._block = block

    @property
    def headers(self) -> dict[str, str]:
        try:
            self._fields = {name: value for name, value in frames.decoded(self._block) if name[:1] != b":"}
        except frames.MalformedError:  # of a 2xx answer; without them it is complete all the same
            self._fields = {}
        return super().headers


class Exchange:
    """What runs on one stream of the connection: sends a request, and gets its answer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        self.deadline = deadline
        self.stream = 0
        """The number of the stream."""
        self.size = 0
        """Bytes of the body, if they are limited."""
        self.window = 0
        """Bytes that the server still accepts of the body."""
        self.unsent = b""
        self.status = 0
        self.block = b""
        self.owed = 0
        """Bytes that the server sent, and has got no new credit for."""
        self.heard_before = 0
        """What the connection had heard when this exchange was last heard of."""
        self.waiter: asyncio.Future[Answer | Failed] = loop.create_future()

    @property
    def answer(self) -> Answer:
        return HeadedAnswer(self.status, self.block, b"")

    def begin(self) -> None:
        """The headers have come."""

    def take(self, part: bytes) -> bool:
        """Takes a part of the body; returns whether the server gets new credit for it at once."""
        raise NotImplementedError

    def end(self, failure: Failed | None) -> None:
        """The answer is complete, or failed."""
        if not self.waiter.done():
            self.waiter.set_result(failure if failure is not None else self.answer)


class Request(Exchange):
    """An exchange whose answer is read as a whole."""

    def __init__(self, loop: asyncio.AbstractEventLoop, deadline: float) -> None:
        super().__init__(loop, deadline)
        self._body: list[bytes] = []

    @property
    def answer(self) -> Answer:
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        return HeadedAnswer(self.status, self.block, body)

    def take(self, part: bytes) -> bool:
        self._body.append(part)
        self.size += len(part)
        return True


class Incoming(Exchange):
    """A Stream of the connection."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: Carrier, silence: float) -> None:
        super().__init__(loop, loop.time() + silence)
        self._loop = loop
        self._connection = connection
        self._silence = silence
        self._parts: list[bytes] = []
        self._failure: Failed | None = None
        self._reader: asyncio.Future[None] | None = None
        self.ended = False

    @property
    def headers(self) -> dict[str, str]:
        return self.answer.headers

    async def read(self) -> bytes:
        while not self._parts:
            if self._failure is not None:
                raise self._failure
            if self.ended:
                return b""
            self._reader = self._loop.create_future()
            await self._reader
        self._connection.acknowledge(self.stream)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def drop(self) -> None:
        """Ends the stream, if nobody reads it any more."""
        self._connection.drop(self.stream)

    async def hold(self, wait: Callable[[], Awaitable[None]]) -> None:
        with self._connection.held():
            await wait()

    def begin(self) -> None:
        if not self.waiter.done():
            self.waiter.set_result(self.answer)

    def take(self, part: bytes) -> bool:
        self.deadline = self._loop.time() + self._silence
        self._parts.append(part)
        self._wake()
        return False

    def end(self, failure: Failed | None) -> None:
        super().end(failure)
        self.ended, self._failure = True, failure
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

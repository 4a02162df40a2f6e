"""One request to the API server and its answer, independent of the client that sends it."""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

from hpad.kube import errors
from hpad.kube.http import frames

SAFE: Final = "/%:@!$&'()*+,;=~"
"""Characters of a path that need no escape, and the one of escapes."""
AT_ONCE: Final = 32
"""Requests in progress at once, without streams."""
KEEP_ALIVE_S: Final = 75.0
"""Seconds after which an idle connection is not used again: an API server closes it after 90 s."""
REPEATED: Final = frozenset({"GET", "PUT"})
"""Methods of which a second request does no harm; a PUT has the resourceVersion that it replaces."""
Allowed = Callable[[], float | None]
"""Called where a write is handed over to the connection; NotAllowed prevents the write and reaches the caller.

Returns for how many seconds the write may be in progress (None: without a limit of its own). Before, a request may have
waited for the limiter, for a connection, or for a stopped process to continue.
"""


class NotAllowed(Exception):
    """What `Allowed` raises: this process must not send the write."""


_ENDS: Final = re.compile("[\r\n\0]")


class Failed(Exception):
    """No complete answer; `reason` and `message` are those of the ApiError.

    `status` is the status code of an answer that broke off, else 0. `unheard`: the server closed the connection before
    the first byte of an answer. `refused`: it has said that it did not process the request.
    """

    def __init__(
        self, reason: str, message: str, status: int = 0, *, unheard: bool = False, refused: bool = False
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status
        self.unheard = unheard
        self.refused = refused


class TooLarge(Failed):
    """The answer was larger than the client accepts."""

    def __init__(self, status: int) -> None:
        super().__init__(errors.TOO_LARGE, "the answer is too large: not read", status)


class Head:
    """Headers of requests: made once, sent many times. Raises ApiError for characters that end a header."""

    __slots__ = ("block", "fields", "lines")

    def __init__(self, fields: Mapping[str, str]) -> None:
        for name, value in fields.items():
            if _ENDS.search(value):
                problem = f"the header {name} contains characters such as a line break"
                raise errors.ApiError(0, "InvalidHeader", f"no request can be sent: {problem}")
        self.fields = fields
        self.block = frames.headers(fields)
        """As HTTP/2 sends them."""
        self.lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode(
            "utf-8", "surrogateescape"
        )


class Answer:
    """A complete answer of any status."""

    __slots__ = ("_fields", "body", "status")

    def __init__(self, status: int, fields: Mapping[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.body = body
        self._fields = fields

    @property
    def headers(self) -> dict[str, str]:
        """The headers by names such as "Retry-After", whatever their case was; the last one of several."""
        decoded = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in self._fields.items())
        return {name.title(): value.strip() for name, value in decoded}


class Stream(Protocol):
    """An answer that may go on for minutes, read as it arrives. After use it ends, complete or not."""

    status: int

    @property
    def headers(self) -> dict[str, str]:
        """As those of an Answer."""
        ...

    async def read(self) -> bytes:
        """Returns what has arrived since, or waits for it; b"" at the end.

        Raises Failed if the connection breaks, or if nothing comes for the stream's `silence`.
        """
        ...

    async def hold(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Reads nothing from the connection during `wait`, so that what arrives meanwhile is read at once."""
        ...


async def whole(stream: Stream, largest: int) -> bytes:
    """Reads a stream to its end. Raises TooLarge."""
    parts, size = [], 0
    while part := await stream.read():
        size += len(part)
        if size > largest:
            raise TooLarge(stream.status)
        parts.append(part)
    return b"".join(parts)


class Sender(Protocol):
    """Sends requests to one API server."""

    async def send(
        self, method: str, target: str, head: Head, body: bytes | None, timeout: float, allowed: Allowed | None
    ) -> Answer:
        """Returns the answer, with any status. `target` is an escaped path with its query.

        Calls `allowed` right before the first byte of a request with a body, also of a repeated one. `timeout` bounds
        everything, in seconds. Raises Failed without a complete answer, and what `allowed` raised.
        """
        ...

    def stream(self, target: str, head: Head, silence: float) -> AbstractAsyncContextManager[Stream]:
        """Starts a long GET. It has no size limit and no end, but fails after `silence` seconds without a byte.

        Entering it waits for the headers of the answer, with any status; raises Failed.
        """
        ...

    def renew(self) -> None:
        """Sends later requests and streams over new connections, for which the client may have another certificate."""
        ...

    async def aclose(self) -> None:
        """Closes all connections, and waits up to a second until their sockets are closed."""
        ...

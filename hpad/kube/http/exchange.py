"""One request to the API server and its answer, independent of the client that sends it."""

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from hpad.kube import errors

SAFE: Final = "/%:@!$&'()*+,;=~"
"""Characters of a path that need no escape, and the one of escapes."""
Allowed = Callable[[], None]
"""Called right before the first byte of a write is sent; an exception prevents the write and reaches the caller.

By then a request may have waited for the limiter, for a connection, or for a stopped process to continue.
"""


_ENDS: Final = re.compile("[\r\n\0]")


class Failed(Exception):
    """No complete answer; `reason` and `message` are those of the ApiError.

    `status` is the status code of an answer that broke off, else 0. `unheard`: the server closed the connection before
    the first byte of an answer.
    """

    def __init__(self, reason: str, message: str, status: int = 0, *, unheard: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status
        self.unheard = unheard


class TooLarge(Failed):
    """The answer was larger than the client accepts."""

    def __init__(self, status: int) -> None:
        super().__init__(errors.TOO_LARGE, "the answer is too large: not read", status)


class Head:
    """Headers of requests: made once, sent many times. Raises ApiError for characters that end a header."""

    __slots__ = ("fields", "lines")

    def __init__(self, fields: Mapping[str, str]) -> None:
        for name, value in fields.items():
            if _ENDS.search(value):
                problem = f"the header {name} contains characters such as a line break"
                raise errors.ApiError(0, "InvalidHeader", f"no request can be sent: {problem}")
        self.fields = fields
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

    async def aclose(self) -> None:
        """Closes all connections, and waits up to a second until their sockets are closed."""
        ...

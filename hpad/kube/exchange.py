"""One request to an API server and its answer, or why there is none."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from multidict import CIMultiDict

from hpad.kube import errors

CONNECT_S: Final = 5.0
"""Seconds to connect to one address of the server, TLS included."""
KEEP_ALIVE_S: Final = 75.0
"""Seconds after which an idle connection is not used again: an API server closes it after 90 s."""
_DISCARD: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: a socket that is closed drops what it has not delivered, and resets its connection."""


class HttpRequest(NamedTuple):
    """`target` is an escaped path with its query; `headers` are those beside the ones of all requests."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


class HttpAnswer(NamedTuple):
    """A complete answer of any status."""

    status: int
    raw_headers: Sequence[tuple[bytes, bytes]]
    body: bytes

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, found by their names in any case. Few answers are asked for them."""
        return CIMultiDict([(name.decode("latin-1"), value.decode("latin-1")) for name, value in self.raw_headers])


class Failed(Exception):
    """No complete answer; `reason` and `message` are those of the ApiError.

    `status` is the status code of an answer that broke off, else 0.
    """

    def __init__(self, reason: str, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.status = status


class AnswerTooLarge(Failed):
    """The answer was larger than the client accepts."""

    def __init__(self, status: int) -> None:
        super().__init__(errors.TOO_LARGE, "the answer is too large: not read", status)


def abort(transport: asyncio.Transport) -> None:
    """Closes a connection at once: what the server has not received of a request never reaches it.

    Without SO_LINGER the kernel would go on to deliver what it holds, also minutes later, after a partition.
    """
    with contextlib.suppress(OSError, ValueError):  # it is closed
        held = transport.get_extra_info("socket")
        if held is not None:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
    transport.abort()

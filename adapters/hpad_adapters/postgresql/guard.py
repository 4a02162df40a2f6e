"""Closes connections whose server does not speak PostgreSQL's protocol, before asyncpg reads what it sends.

asyncpg trusts the length of a message: with a negative one it loops without end and blocks the event loop, with a large
one it takes up to 2 GiB of memory. A server of another kind on the port is enough, such as MySQL, whose greeting has
other bytes where a length belongs. asyncpg also computes as many iterations of SCRAM as the server asks for, within the
event loop. Source: PostgreSQL, "Frontend/Backend Protocol", "Message Formats"; RFC 5802, section 5.1.
"""

import re
import struct
from typing import Any, Final

from asyncpg import protocol

MAX_BYTES: Final = 4 << 20
"""What a server may send until it is ready for the next query (message "Z")."""
MAX_ITERATIONS: Final = 100_000
"""Of SCRAM, which the server chooses: 4096 by default. So many take a twentieth of a second."""
NO_DATABASE: Final = "does not answer as PostgreSQL does: is this the port of PostgreSQL?"
_HEADER: Final = struct.Struct("!ci")
_LENGTH_BYTES: Final = 4
"""A length counts itself, but not the type in front of it."""
_READY: Final = b"Z"
_AUTHENTICATION: Final = b"R"
_LONGEST_AUTHENTICATION: Final = 1 << 16
"""Of the server's message in bytes; the longest are tokens of GSSAPI."""
_ITERATIONS: Final = re.compile(rb",i=([0-9]+)")


class RefusedError(ConnectionError):
    """hpad closed the connection; the message is the end of a sentence that begins with the server."""


class Frames:
    """Follows the messages of a stream, which arrives in pieces of any size."""

    def __init__(self) -> None:
        self._header = b""
        self._rest = 0
        self._spent = 0
        self._authentication: bytearray | None = None

    def accept(self, data: bytes) -> None:
        """Raises RefusedError unless the data continue a valid stream, which is not followed any further then."""
        at = 0
        while at < len(data):
            if self._rest:
                step = min(self._rest, len(data) - at)
                self._read(data[at : at + step])
                at += step
                continue
            step = _HEADER.size - len(self._header)
            self._header += data[at : at + step]
            at += step
            if len(self._header) == _HEADER.size:
                self._begin()

    def _begin(self) -> None:
        kind, length = _HEADER.unpack(self._header)
        self._header = b""
        self._rest = length - _LENGTH_BYTES
        self._spent = 0 if kind == _READY else self._spent + length
        if self._rest < 0 or not kind.isalnum():
            raise RefusedError(NO_DATABASE)
        self._authentication = bytearray() if kind == _AUTHENTICATION else None
        if self._spent > (MAX_BYTES if self._authentication is None else _LONGEST_AUTHENTICATION):
            raise RefusedError("sent more than fits into an answer: is this the port of PostgreSQL?")

    def _read(self, part: bytes) -> None:
        self._rest -= len(part)
        if self._authentication is not None:
            self._authentication += part
            if not self._rest:
                _check_iterations(self._authentication)


def _check_iterations(message: bytearray) -> None:
    """Raises RefusedError if a message about authentication asks for too many iterations of SCRAM."""
    for digits in _ITERATIONS.findall(message):
        if len(digits) > len(str(MAX_ITERATIONS)) or int(digits) > MAX_ITERATIONS:
            asked = digits[:20].decode() + ("…" if len(digits) > 20 else "")
            raise RefusedError(f"asks for {asked} iterations of SCRAM; hpad computes at most {MAX_ITERATIONS}")


class GuardedProtocol(protocol.Protocol):
    """The protocol of asyncpg behind a check of each message's type and length."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._frames = Frames()
        self._refused: RefusedError | None = None
        self._wire: Any = None

    def connection_made(self, transport: Any) -> None:
        self._wire = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._refused is not None:
            return
        try:
            self._frames.accept(data)
        except RefusedError as refused:
            self._refused = refused
            self._wire.abort()
        else:
            super().data_received(data)

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(self._refused or error)


def install() -> None:
    """Makes asyncpg use the guard, for which it has no parameter."""
    protocol.Protocol = GuardedProtocol

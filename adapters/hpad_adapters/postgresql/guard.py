"""Closes connections whose server does not speak PostgreSQL's protocol, before asyncpg reads what it sends.

asyncpg trusts the length of a message: with a negative one it loops without end and blocks the event loop, with a large
one it takes up to 2 GiB of memory. A server of another kind on the port is enough, such as MySQL, whose greeting has
other bytes where a length belongs. Source: PostgreSQL, "Frontend/Backend Protocol", "Message Formats".
"""

import struct
from typing import Any, Final

from asyncpg import protocol

MAX_BYTES: Final = 4 << 20
"""What a server may send until it is ready for the next query (message "Z")."""
_HEADER: Final = struct.Struct("!ci")
_LENGTH_BYTES: Final = 4
"""A length counts itself, but not the type in front of it."""
_READY: Final = b"Z"


class Frames:
    """Follows the messages of a stream, which arrives in pieces of any size."""

    def __init__(self) -> None:
        self._header = b""
        self._rest = 0
        self._spent = 0

    def accept(self, data: bytes) -> bool:
        """Returns whether the data continue a valid stream. The stream is not followed after an invalid message."""
        at = 0
        while at < len(data):
            if self._rest:
                step = min(self._rest, len(data) - at)
                self._rest -= step
                at += step
                continue
            step = _HEADER.size - len(self._header)
            self._header += data[at : at + step]
            at += step
            if len(self._header) == _HEADER.size and not self._begin():
                return False
        return True

    def _begin(self) -> bool:
        kind, length = _HEADER.unpack(self._header)
        self._header = b""
        self._rest = length - _LENGTH_BYTES
        self._spent = 0 if kind == _READY else self._spent + length
        return self._rest >= 0 and kind.isalnum() and self._spent <= MAX_BYTES


class GuardedProtocol(protocol.Protocol):
    """The protocol of asyncpg behind a check of each message's type and length."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._frames: Frames | None = Frames()
        self._wire: Any = None

    def connection_made(self, transport: Any) -> None:
        self._wire = transport
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._frames is None:
            return
        if self._frames.accept(data):
            super().data_received(data)
        else:
            self._frames = None
            self._wire.abort()


def install() -> None:
    """Makes asyncpg use the guard, for which it has no parameter."""
    protocol.Protocol = GuardedProtocol

"""The sockets of a client, so that closing it can mean that all of them are closed."""

import socket
import weakref
from typing import Any, Final

from hpad.clock import Clock

_PATIENCE_S: Final = 1.0
"""A TLS connection waits for the farewell of its peer; a peer that has none is not waited for longer than this."""
_LOOK_S: Final = 0.005


class Sockets:
    """Makes the sockets of an aiohttp connector (its `socket_factory`), and knows which of them are still open.

    A connection that is given up in the middle of an answer, as each watch is at the end, leaves its connector at
    once, but under TLS its socket is closed later: nobody else could tell when.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for an address as `getaddrinfo` tells it."""
        family, kind, protocol = address[:3]
        made = socket.socket(family=family, type=kind, proto=protocol)
        self._made.add(made)
        return made

    async def closed(self) -> None:
        """Wait until none is open any more, for a second at most."""
        began = self._clock.monotonic()
        while any(made.fileno() >= 0 for made in self._made) and self._clock.monotonic() - began < _PATIENCE_S:
            await self._clock.sleep(_LOOK_S)

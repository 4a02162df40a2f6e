"""The sockets of a client, so that it can wait until all of them are closed."""

import socket
import weakref
from typing import Any, Final

from hpad.clock import Clock

CLOSE_TIMEOUT_S: Final = 1.0
"""A TLS connection waits for the close_notify of its peer, but not longer than this."""
_POLL_S: Final = 0.005


class Sockets:
    """Creates sockets (a `socket_factory` of aiohttp and aiohappyeyeballs), and waits until all are closed.

    A connection that is dropped in the middle of an answer, as watches are, leaves its pool at once. Under TLS its
    socket is closed later, which no pool reports.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def make(self, address: tuple[Any, ...]) -> socket.socket:
        """Creates a socket for an address in the form of `getaddrinfo`."""
        family, kind, protocol = address[:3]
        created = socket.socket(family=family, type=kind, proto=protocol)
        self._sockets.add(created)
        return created

    async def closed(self) -> None:
        """Waits until all sockets are closed, at most a second."""
        began = self._clock.monotonic()
        while any(each.fileno() >= 0 for each in self._sockets) and self._clock.monotonic() - began < CLOSE_TIMEOUT_S:
            await self._clock.sleep(_POLL_S)

"""Reserves ports of the loopback interface, also while no server listens on them."""

import contextlib
import socket
from collections.abc import Iterator


def reserved() -> socket.socket:
    """Returns a socket that reserves a free port until it is closed.

    Connections to the port are refused, and no process gets it as a free port. A server can still listen on it if it
    sets SO_REUSEADDR.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made


@contextlib.contextmanager
def port() -> Iterator[int]:
    """Reserves a port during the context."""
    with reserved() as made:
        yield made.getsockname()[1]

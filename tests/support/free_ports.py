"""Ports of the loopback interface that are nobody else's, also while nobody listens on them."""

import contextlib
import socket
from collections.abc import Iterator


def held() -> socket.socket:
    """A socket that keeps a free port to itself as long as it is open: those who ask for any port get another, and
    connections are refused. Whoever asks for this very one may listen on it (with SO_REUSEADDR, as servers do)."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", 0))
    return made


@contextlib.contextmanager
def port() -> Iterator[int]:
    """A port that is held for so long."""
    with held() as made:
        yield made.getsockname()[1]

"""Free ports of the loopback interface."""

import asyncio
import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_LOWEST: Final = 10240
_TRIES: Final = 20
_RANDOM: Final = random.SystemRandom()
"""Not the seeded generator: test processes with the same seed would choose the same ports."""


def _first_ephemeral() -> int:
    """Returns the lowest ephemeral port (Linux: ip(7), ip_local_port_range), 0 if it is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    return 0


FIRST_EPHEMERAL: Final = _first_ephemeral()


def free(count: int) -> list[int]:
    """Returns `count` different TCP ports that are free now; another process may still take one.

    Prefers ports below the ephemeral range: an outgoing connection could take one of those before a server has started.
    """
    with contextlib.ExitStack() as sockets:
        return [_bound(sockets.enter_context(socket.socket())) for _ in range(count)]


def _bound(new: socket.socket) -> int:
    if FIRST_EPHEMERAL > _LOWEST:
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                new.bind(("127.0.0.1", _RANDOM.randrange(_LOWEST, FIRST_EPHEMERAL)))
                return int(new.getsockname()[1])
    new.bind(("127.0.0.1", 0))
    return int(new.getsockname()[1])


async def listens(port: int) -> bool:
    """Returns whether a server accepts connections on the port."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True

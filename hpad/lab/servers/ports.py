"""Free ports of the loopback interface."""

import asyncio
import contextlib
import random
import socket
from pathlib import Path
from typing import Final

_LEAST: Final = 10240
_TRIES: Final = 20
_DICE: Final = random.SystemRandom()
"""Two processes that were told the same seed must not come to the same ports."""


def _first_of_any() -> int:
    """The lowest port that connections get at their own end, which is any; 0 where that is not known (Linux: ip(7))."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    return 0


FIRST_OF_ANY: Final = _first_of_any()


def free(count: int) -> list[int]:
    """`count` different TCP ports on which nothing listened a moment ago (another process may still take one).

    As a rule none that a connection gets at its own end: servers take seconds to start, and many connections are made.
    """
    with contextlib.ExitStack() as held:
        return [_bound(held.enter_context(socket.socket())) for _ in range(count)]


def _bound(new: socket.socket) -> int:
    if FIRST_OF_ANY > _LEAST:
        for _ in range(_TRIES):
            with contextlib.suppress(OSError):
                new.bind(("127.0.0.1", _DICE.randrange(_LEAST, FIRST_OF_ANY)))
                return int(new.getsockname()[1])
    new.bind(("127.0.0.1", 0))
    return int(new.getsockname()[1])


async def listens(port: int) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True

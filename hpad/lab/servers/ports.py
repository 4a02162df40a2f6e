"""Free ports of the loopback interface."""

import asyncio
import socket


def free(count: int) -> list[int]:
    """`count` different TCP ports on which nothing listened a moment ago (another process may still take one)."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


async def listens(port: int) -> bool:
    """Whether a connection to the port is accepted."""
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True

"""Closes servers on loopback without leaking connections."""

import asyncio

from hpad.lab.cluster import listener


async def close(server: asyncio.Server) -> None:
    """Stops accepting connections, then closes the server.

    A connection that is being accepted during the close would leak its socket, whose warning fails some later test.
    """
    await listener.stop_accepting(server.sockets)
    server.close()

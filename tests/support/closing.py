"""The end of servers on loopback, such that no connection is left behind that nobody closes."""

import asyncio

from hpad.lab.cluster import listener


async def close(server: asyncio.Server) -> None:
    """Let nobody in any more, and close the server once it knows of everybody who has been: the socket of whoever
    nobody knows of fails whichever test runs when it is collected."""
    await listener.let_nobody_in(server.sockets)
    server.close()

"""How many reconciles are at work at a time. Those that wait for metrics do not count: waiting costs nothing, and a
source that hangs must not hold up HPAs that do not use it, however many use it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Slot:
    """The right of one reconcile to be at work, out of the number that a semaphore allows."""

    def __init__(self, free: asyncio.Semaphore) -> None:
        self._free = free
        self._taken = False

    async def take(self) -> None:
        """Wait until it is free."""
        await self._free.acquire()
        self._taken = True

    def give(self) -> None:
        """Let another one have it; fine if it was given already."""
        if self._taken:
            self._taken = False
            self._free.release()

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Let others have it meanwhile. After an exception it is not taken back: the reconcile is over then."""
        self.give()
        yield
        await self.take()

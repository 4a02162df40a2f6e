"""A thread with an event loop of its own, for a library with asyncio that reads files in coroutines.

The AWS SDK reads service descriptions, configuration files and tokens that way; in hpad's loop they would block it.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Worker:
    """Runs coroutines on its thread, which starts with the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Returns the result of a coroutine that runs on the thread, where a cancellation reaches it too."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._started()))

    async def aclose(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a last coroutine and ends the thread; does nothing if there is none (any more)."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            await self.run(last())
            self._loop = self._thread = None
            loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join)

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name=self._name, daemon=True)
            self._thread.start()
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()

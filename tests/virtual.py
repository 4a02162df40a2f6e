"""A loop whose time is a number: timers fire at once, in order, and no test waits for real.

Time moves only when nothing else is left to do, and then straight to the next timer. Real I/O on loopback still works:
before it moves, the loop gives sockets and threads `io_grace` real seconds to say something.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

START = datetime(2026, 1, 1, tzinfo=UTC)
_STUCK_AFTER = 10.0


class _JumpingSelector(selectors.SelectSelector):
    """Waits at most the grace; what was left of the timeout is added to the loop's time instead."""

    def __init__(self, loop: "VirtualLoop", io_grace: float) -> None:
        super().__init__()
        self._loop = loop
        self._io_grace = io_grace

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = super().select(_STUCK_AFTER)
            if not ready:
                raise RuntimeError("the loop is stuck: no timer, and no I/O for ten real seconds")
            return ready
        if self._io_grace:
            ready = super().select(self._io_grace)
        if not ready:
            self._loop.jump(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at second 0."""

    def __init__(self, io_grace: float = 0.0) -> None:
        self._virtual_now = 0.0
        super().__init__(_JumpingSelector(self, io_grace))

    def time(self) -> float:
        return self._virtual_now

    def jump(self, seconds: float) -> None:
        self._virtual_now += seconds


class VirtualClock:
    """A Clock that follows the running loop: second 0 is START on the wall."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def run(main: Coroutine[Any, Any, T], *, io_grace: float = 0.0) -> T:
    """Run a coroutine to its end under a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(io_grace)) as runner:
        return runner.run(main)

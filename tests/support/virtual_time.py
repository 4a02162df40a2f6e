"""A loop whose time is a number: timers fire at once, in order, and no test waits for real.

Time moves only when nothing else is left to do, and then straight to the next timer: not while a thread of an executor
is at work. Real I/O on loopback still works: before it moves, the loop gives sockets `io_grace` real seconds to say
something, and again where the machine is so busy that the loop itself was woken late.
"""

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = datetime(2026, 1, 1, tzinfo=UTC)
_STUCK_AFTER = 60.0
_GRACES = 50


class _JumpingSelector(selectors.SelectSelector):
    """Waits for threads, or for the grace; the timeout is added to the loop's time instead."""

    def __init__(self, loop: "VirtualLoop", io_grace: float) -> None:
        super().__init__()
        self.threads = 0
        self._loop = loop
        self._io_grace = io_grace

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = super().select(_STUCK_AFTER)
            if not ready:
                raise RuntimeError("the loop is stuck: no timer, and no I/O for a real minute")
            return ready
        if self.threads:
            ready = super().select(_STUCK_AFTER)
        elif self._io_grace:
            ready = self._ready_by_grace()
        if not ready:
            self._loop.jump(timeout)
        return ready

    def _ready_by_grace(self) -> Any:
        for _ in range(_GRACES):
            began = time.monotonic()
            ready = super().select(self._io_grace)
            if ready or time.monotonic() - began < 1.5 * self._io_grace:
                return ready
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that starts at second 0."""

    def __init__(self, io_grace: float = 0.0) -> None:
        self._virtual_now = 0.0
        self._jumping = _JumpingSelector(self, io_grace)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._virtual_now

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        working = super().run_in_executor(executor, func, *args)
        self._jumping.threads += 1
        working.add_done_callback(self._thread_is_done)
        return working

    def _thread_is_done(self, working: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1

    async def shutdown_default_executor(self, *timeout: float | None) -> None:
        """A thread of its own waits for the others, and Python 3.13 has a limit to how long it may do so."""
        self._jumping.threads += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._jumping.threads -= 1

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


class SetClock(VirtualClock):
    """One whose wall clock can be set: it is `off` by so much."""

    off = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.off


def run(main: Coroutine[Any, Any, T], *, io_grace: float = 0.0) -> T:
    """Run a coroutine to its end under a loop of its own."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(io_grace)) as runner:
        return runner.run(main)


def now() -> float:
    """The loop's time, in seconds."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], Any], seconds: float = 120.0, every: float = 0.05) -> float:
    """Wait until something holds; when that was, by the loop's time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  virtual time costs nothing
            await asyncio.sleep(every)
    return now()

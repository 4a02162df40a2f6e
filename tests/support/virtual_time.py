"""An event loop with virtual time: timers fire in order without real waiting.

Time advances to the next timer once nothing else can run and no thread of an executor works. Real I/O on loopback
works: before time advances, the loop waits `io_grace` real seconds for sockets, and again if the machine is so busy
that the loop woke up late.
"""

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, TypeVarTuple

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

START = datetime(2026, 1, 1, tzinfo=UTC)
_STUCK_AFTER = 60.0
_LONGEST_CALL = 600.0
"""Real seconds that a call in a thread may take on a busy machine, before time goes on without it."""
_GRACES = 50


class _JumpingSelector(selectors.SelectSelector):
    """Waits in real time for threads and for `io_grace` only; adds timeouts to the loop's time."""

    def __init__(self, loop: "VirtualLoop", io_grace: float) -> None:
        super().__init__()
        self.threads = 0
        self._loop = loop
        self._io_grace = io_grace

    def select(self, timeout: float | None = None) -> Any:
        if timeout == 0 and len(self.get_map()) == 1:
            return []  # no sockets but the one that wakes the loop up, which is awake
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = super().select(_STUCK_AFTER)
            if not ready:
                raise RuntimeError("the loop is stuck: no timer, and no I/O for a real minute")
            return ready
        if self.threads:
            ready = super().select(_LONGEST_CALL)
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
        """Counts as a working thread, since Python 3.13 waits here with a timeout, which must not elapse."""
        self._jumping.threads += 1
        try:
            await super().shutdown_default_executor(*timeout)
        finally:
            self._jumping.threads -= 1

    def jump(self, seconds: float) -> None:
        self._virtual_now += seconds


class VirtualClock:
    """A Clock that follows the running loop; its time of day is START at second 0."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


class SetClock(VirtualClock):
    """A virtual clock whose time of day is shifted by `off`."""

    off = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.off


class ManualClock:
    """A clock that stands still at START, and at 100 monotonic seconds, until a test advances it."""

    def __init__(self) -> None:
        self.wall, self.ticks = START, 100.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.ticks

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def advance(self, seconds: float, jump: timedelta = timedelta(0)) -> None:
        """Lets time pass, and sets the wall clock forward by `jump`."""
        self.ticks += seconds
        self.wall += timedelta(seconds=seconds) + jump


def run(main: Coroutine[Any, Any, T], *, io_grace: float = 0.0) -> T:
    """Runs a coroutine to its end in a new virtual loop."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(io_grace)) as runner:
        return runner.run(main)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Decorates an async test, so that it runs in a new virtual loop."""

    @functools.wraps(test)
    def runs(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return runs


def now() -> float:
    """Returns the loop's time in seconds."""
    return asyncio.get_running_loop().time()


async def until(condition: Callable[[], Any], seconds: float = 120.0, every: float = 0.05) -> float:
    """Waits until a condition is true; returns the time of the loop at that moment."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  virtual time costs nothing
            await asyncio.sleep(every)
    return now()

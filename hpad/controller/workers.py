"""Limits how many reconciles work at the same time.

A reconcile that waits for metrics releases its worker, so that a source that hangs does not delay HPAs that do not use
it. A reconcile that has its metrics goes before one that starts. The number of reconciles that wait for metrics is
limited to the number that the workers can finish in time, estimated from the duration of recent ones. Under overload,
started reconciles are therefore finished, and others start later.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hpad.clock import Clock

_FIRST_GUESS: Final = 0.01
"""The assumed working time, in seconds, before any was measured: two requests to a healthy API server."""
_WEIGHT: Final = 1 / 8
"""The weight of the latest working time in the mean."""

_Waiting = deque[asyncio.Future[None]]


class Workers:
    """The workers that reconciles share; `Worker` takes them.

    The number of reconciles that wait for metrics is limited such that all can finish within `patience` seconds if
    their metrics arrive at the same time. `mean` is the mean working time in seconds. `limit` is the number of
    reconciles that may wait for metrics at the same time.
    """

    def __init__(self, number: int, clock: Clock, patience: float) -> None:
        self.clock = clock
        self._patience = patience
        self._number = number
        self._free = number
        self._released = 0
        self.mean = _FIRST_GUESS
        self._returning: _Waiting = deque()
        self._starting: _Waiting = deque()
        self._set_limit()

    def be_patient(self, seconds: float) -> None:
        """Changes the seconds within which all reconciles that wait can finish."""
        self._patience = seconds
        self._set_limit()

    def _set_limit(self) -> None:
        self.limit = self._number * max(self._patience / max(self.mean, 1e-6), 1.0)

    async def begin(self) -> None:
        """Waits until a worker is free, no reconcile has its metrics and waits for one, and `limit` allows another."""
        if self._free and not self._starting and self._next_queue() is self._starting:
            self._free -= 1  # as `_wait` would, without a future
        else:
            await self._wait(self._starting)

    def give(self) -> None:
        """Frees a worker."""
        self._free += 1
        if self._returning or self._starting:
            self._assign()

    def release(self) -> None:
        """Frees the worker of a reconcile that waits. Call `take_back` or `leave` afterwards."""
        self._released += 1
        self.give()

    async def take_back(self) -> None:
        """Waits until a worker is free for a reconcile that has waited."""
        try:
            await self._wait(self._returning)
        finally:
            self.leave()

    def leave(self) -> None:
        """Ends the wait of a released reconcile."""
        self._released -= 1
        if self._returning or self._starting:
            self._assign()

    def learn(self, seconds: float) -> None:
        """Adds the working time, in seconds, of a reconcile that waited for metrics to the mean."""
        self.mean += (seconds - self.mean) * _WEIGHT
        self._set_limit()

    async def _wait(self, queue: _Waiting) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        self._assign()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # the worker was assigned before the cancellation arrived
                self.give()
            raise

    def _assign(self) -> None:
        while self._free and (queue := self._next_queue()):
            turn = queue.popleft()
            if not turn.done():  # cancelled while it waited
                self._free -= 1
                turn.set_result(None)

    def _next_queue(self) -> _Waiting:
        may_start = not self._returning and self._released < self.limit
        return self._starting if may_start else self._returning


class Worker:
    """The worker of one reconcile."""

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self._taken = False
        self._was_released = False
        self._since = 0.0
        self._worked = 0.0

    async def take(self) -> None:
        """Waits until a worker is free."""
        await self._pool.begin()
        self._start()

    def give(self, *, finished: bool = True) -> None:
        """Frees the worker at the end of the reconcile. Does nothing if it is free already.

        A reconcile that was given up would have worked for longer: many that run into their deadline at the same time
        must not make reconciles look short.
        """
        if self._taken:
            self._stop()
            if self._was_released and (finished or self._worked > self._pool.mean):
                self._pool.learn(self._worked)
            self._pool.give()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Frees the worker inside the block. After an exception it is not taken back, because the reconcile ends."""
        self._stop()
        self._pool.release()
        try:
            yield
        except BaseException:
            self._pool.leave()
            raise
        await self._pool.take_back()
        self._was_released = True
        self._start()

    def _start(self) -> None:
        self._taken = True
        self._since = self._pool.clock.monotonic()

    def _stop(self) -> None:
        self._taken = False
        self._worked += self._pool.clock.monotonic() - self._since

"""Limits how many reconciles work at the same time.

A reconcile that waits for metrics releases its worker, so that a source that hangs does not delay HPAs that do not use
it. A reconcile that has its metrics goes before one that starts. The number of reconciles that wait for metrics is
limited to what the workers can finish in time, judged by the duration of recent ones. Under overload, started
reconciles are therefore finished, and others start later.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hpad.clock import Clock

_FIRST_GUESS: Final = 0.01
"""Seconds at work, while nothing was measured: two requests to an API server that is well."""
_WEIGHT: Final = 1 / 8
"""Of the last one in the mean."""

_Line = deque[asyncio.Future[None]]


class Workers:
    """The workers that reconciles share; `Worker` takes them.

    All reconciles that wait for metrics at one time can finish within `patience` seconds after the metrics have
    arrived.
    """

    def __init__(self, number: int, clock: Clock, patience: float) -> None:
        self.clock = clock
        self.patience = patience
        self._number = number
        self._free = number
        self._out = 0
        self._mean = _FIRST_GUESS
        self._returning: _Line = deque()
        self._beginning: _Line = deque()

    @property
    def room(self) -> float:
        """How many reconciles may wait for metrics at the same time."""
        return self._number * max(self.patience / max(self._mean, 1e-6), 1.0)

    async def begin(self) -> None:
        """Waits until a worker is free, no reconcile returns from waiting, and `room` allows one more."""
        await self._wait(self._beginning)

    def give(self) -> None:
        """Frees a worker."""
        self._free += 1
        self._hand_on()

    @asynccontextmanager
    async def out(self) -> AsyncIterator[None]:
        """Frees the worker inside the block and takes one at the end, unless the block raises."""
        self._out += 1
        self.give()
        try:
            yield
            await self._wait(self._returning)
        finally:
            self._out -= 1
            self._hand_on()

    def learn(self, seconds: float) -> None:
        """Adds the working time, in seconds, of a reconcile that waited for metrics to the mean."""
        self._mean += (seconds - self._mean) * _WEIGHT

    async def _wait(self, line: _Line) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        self._hand_on()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was ours already when we were cancelled
                self.give()
            raise

    def _hand_on(self) -> None:
        while self._free and (line := self._first_line()):
            turn = line.popleft()
            if not turn.done():  # cancelled while it waited
                self._free -= 1
                turn.set_result(None)

    def _first_line(self) -> _Line:
        return self._beginning if not self._returning and self._out < self.room else self._returning


class Worker:
    """The worker of one reconcile."""

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self._taken = False
        self._was_out = False
        self._since = 0.0
        self._worked = 0.0

    async def take(self) -> None:
        """Waits until a worker is free."""
        await self._pool.begin()
        self._start()

    def give(self) -> None:
        """Frees the worker at the end of the reconcile. Does nothing if it is free already."""
        if self._taken:
            self._stop()
            if self._was_out:
                self._pool.learn(self._worked)
            self._pool.give()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Frees the worker inside the block. After an exception it is not taken back, because the reconcile ends."""
        self._stop()
        async with self._pool.out():
            yield
        self._was_out = True
        self._start()

    def _start(self) -> None:
        self._taken = True
        self._since = self._pool.clock.monotonic()

    def _stop(self) -> None:
        self._taken = False
        self._worked += self._pool.clock.monotonic() - self._since

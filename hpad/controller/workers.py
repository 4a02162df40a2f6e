"""How many reconciles are at work at a time. Those that wait for metrics do not count: waiting costs nothing, and a
source that hangs must not hold up HPAs that do not use it, however many use it.

Whoever comes back from waiting goes before whoever begins. And no more are let out to wait than can be finished in time
when all come back at once, judged by how long the last ones were at work: when there is more to do than can be done,
what has been begun is finished, and the others begin later; the other way round every reconcile would be given up half
done.
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
    """So many rights to be at work; they are taken by `Worker`. All who wait for metrics at a time are to be finished
    within `patience` (seconds), once those have come."""

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
        """How many may be out at a time."""
        return self._number * max(self.patience / max(self._mean, 1e-6), 1.0)

    async def begin(self) -> None:
        """Wait until a right is free, nobody comes back, and there is room for another one to go out."""
        await self._wait(self._beginning)

    def give(self) -> None:
        """Hand a right on."""
        self._free += 1
        self._hand_on()

    @asynccontextmanager
    async def out(self) -> AsyncIterator[None]:
        """Hand one's right on and take one back at the end; after an exception it is not taken back."""
        self._out += 1
        self.give()
        try:
            yield
            await self._wait(self._returning)
        finally:
            self._out -= 1
            self._hand_on()

    def learn(self, seconds: float) -> None:
        """One that had been out was at work for so long in all."""
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
    """The right of one reconcile to be at work."""

    def __init__(self, pool: Workers) -> None:
        self._pool = pool
        self._taken = False
        self._was_out = False
        self._since = 0.0
        self._worked = 0.0

    async def take(self) -> None:
        """Wait until it is free."""
        await self._pool.begin()
        self._start()

    def give(self) -> None:
        """Let another one have it, at the end; fine if it was given already."""
        if self._taken:
            self._stop()
            if self._was_out:
                self._pool.learn(self._worked)
            self._pool.give()

    @asynccontextmanager
    async def released(self) -> AsyncIterator[None]:
        """Let others have it meanwhile. After an exception it is not taken back: the reconcile is over then."""
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

"""When a reconcile runs: the queue of the HPAs that are due, and the workers, which limit how many work at once."""

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.telemetry.controller import QueueSeries

_TOGETHER: Final = 1e-3
"""Deadlines within so many seconds are due together: uvloop rounds timers to whole milliseconds."""
_FEW: Final = 64
_FIRST_GUESS: Final = 0.01
"""The assumed working time, in seconds, before any was measured: two requests to a healthy API server."""
_WEIGHT: Final = 1 / 8
"""The weight of the latest working time in the mean."""

_Waiting = deque[asyncio.Future[None]]


class ShutDown(Exception):
    """The queue is closed and empty: the worker ends."""


class DelayingQueue:
    """A delaying work queue of keys, for any number of workers on one event loop. Not thread-safe.

    Invariants between any two calls (its tests `check` them):

    1. A key is queued exactly when it is dirty (work was requested) and no worker processes it.
    2. A key is queued at most once, and at most one worker processes it.
    3. A key that becomes dirty while a worker processes it is queued again by `done`, so that no request is lost.
    4. A key has at most one deadline; of several delays the earliest wins.
    5. `take` returns keys in the order in which they were queued; those that are due together, in that of deadlines.
    6. One timer of the loop serves all deadlines. It is set to the earliest one, or earlier.

    The sets are those of client-go (`workqueue/queue.go`). There is no rate limiter, because an HPA is reconciled at a
    fixed period after every result of a reconcile.
    """

    def __init__(self, clock: Clock, series: QueueSeries) -> None:
        self._clock = clock
        self._series = series
        self._turns: deque[Key] = deque()
        self._dirty: dict[Key, float] = {}
        self._processing: dict[Key, float] = {}
        self._deadlines: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        """Deadline in the loop's time, order of arrival, and key; also those of deadlines that were changed since."""
        self._arrivals = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False
        self._news = asyncio.Event()
        """A key was queued, or the queue was closed."""
        self._drained = asyncio.Event()

    def __len__(self) -> int:
        """Returns the number of keys that wait for a worker, without timers."""
        return len(self._turns)

    def add(self, key: Key) -> None:
        """Requests work on the key as soon as possible. Does nothing if it is dirty already, and after `shutdown`."""
        if self._closed or key in self._dirty:
            return
        self._series.added()
        self._dirty[key] = self._clock.monotonic()
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """Adds the key after the given number of seconds, or at its earlier deadline if there is one."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        if key in self._deadlines and self._deadlines[key] <= deadline:
            return
        self._deadlines[key] = deadline
        heapq.heappush(self._heap, (deadline, next(self._arrivals), key))
        self._compact()
        self._set_timer(loop)

    def call_off(self, key: Key) -> None:
        """Drops the deadline of the key. A key that is queued already stays queued."""
        self._deadlines.pop(key, None)

    async def filled(self) -> None:
        """Waits until a key is queued. Raises ShutDown once the queue is closed and empty."""
        while not self._turns:
            if self._closed:
                raise ShutDown
            self._news.clear()
            await self._news.wait()

    def take(self) -> Key:
        """Takes the next key; the caller must pass it to `done`. Raises IndexError if none is queued."""
        now = self._clock.monotonic()
        key = self._turns.popleft()
        self._series.waited(now - self._dirty.pop(key))
        self._series.depth(len(self._turns))
        self._processing[key] = now
        return key

    def done(self, key: Key) -> None:
        """Ends the work on the key; queues it again if it became dirty. Raises KeyError if no worker processes it."""
        self._series.worked(self._clock.monotonic() - self._processing.pop(key))
        if key in self._dirty:
            self._enqueue(key)
        self._note_if_drained()

    def discard(self, key: Key) -> None:
        """Drops the deadline and the queue entry of the key. A worker that processes it is not interrupted."""
        self.call_off(key)
        if self._dirty.pop(key, None) is not None and key not in self._processing:
            self._turns.remove(key)
            self._series.depth(len(self._turns))
        self._note_if_drained()

    def shutdown(self) -> None:
        """Closes the queue: `take` still returns queued keys, deadlines are dropped."""
        self._closed = True
        self._deadlines.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._news.set()
        self._note_if_drained()

    async def drained(self) -> None:
        """Waits until the queue is closed, no key is queued and no worker processes a key."""
        await self._drained.wait()

    def unfinished_seconds(self) -> float:
        """Returns the time spent so far on all keys in progress."""
        now = self._clock.monotonic()
        return sum(now - since for since in self._processing.values())

    def longest_running_seconds(self) -> float:
        """Returns the time spent so far on the key that is in progress for longest; 0 if there is none."""
        now = self._clock.monotonic()
        return max((now - since for since in self._processing.values()), default=0.0)

    def _enqueue(self, key: Key) -> None:
        self._turns.append(key)
        self._series.depth(len(self._turns))
        self._news.set()

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sets the timer to the first deadline, unless it is set to an earlier time."""
        if not self._heap or (self._timer is not None and self._timer_at <= self._heap[0][0]):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._heap[0][0]
        self._timer = loop.call_at(self._timer_at, self._due)

    def _due(self) -> None:
        """Adds the keys that are due."""
        loop = asyncio.get_running_loop()
        self._timer, now = None, max(loop.time(), self._timer_at) + _TOGETHER
        while self._heap and self._heap[0][0] <= now:
            deadline, _, key = heapq.heappop(self._heap)
            if self._deadlines.get(key) == deadline:
                del self._deadlines[key]
                self.add(key)
        self._set_timer(loop)

    def _compact(self) -> None:
        """Drops the deadlines that were changed or called off, once they are most of the heap."""
        if len(self._heap) > 2 * len(self._deadlines) + _FEW:
            self._heap = [entry for entry in self._heap if self._deadlines.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def _note_if_drained(self) -> None:
        if self._closed and not self._turns and not self._processing:
            self._drained.set()


class Workers:
    """The workers that reconciles share; `Worker` takes them.

    A reconcile that waits for metrics releases its worker, so that a source that hangs does not delay HPAs that do not
    use it. A reconcile that has its metrics goes before one that starts. The number of reconciles that wait for metrics
    is limited to what the workers can finish within `patience` seconds if their metrics arrive at the same time. Under
    overload, started reconciles are therefore finished, and others start later.

    `mean` is the mean working time, in seconds, of recent ones. `limit` is the number that may wait for metrics.
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

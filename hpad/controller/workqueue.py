"""A delaying work queue of keys, for any number of workers on one event loop.

Invariants between any two calls (the tests of this module `check` them):

1. A key is queued exactly when it is dirty (work was requested) and no worker processes it.
2. A key is queued at most once, and at most one worker processes it.
3. A key that becomes dirty while a worker processes it is queued again by `done`, so that no request is lost.
4. A key has at most one deadline; of several delays the earliest wins.
5. `take` returns keys in the order in which they were queued; keys that are due together, in the order of deadlines.
6. One timer of the loop serves all deadlines. It is set to the earliest one, or earlier.

The sets are those of client-go (`workqueue/queue.go`). There is no rate limiter, because an HPA is reconciled at a
fixed period after every result of a reconcile.
"""

import asyncio
import heapq
import itertools
from collections import deque
from typing import Final

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.telemetry.controller import QueueSeries

_TOGETHER: Final = 1e-3
"""Deadlines within so many seconds are due together: uvloop rounds timers to whole milliseconds."""
_FEW: Final = 64


class ShutDown(Exception):
    """The queue is closed and empty: the worker ends."""


class DelayingQueue:
    """A queue for one event loop; see the invariants of the module. Not thread-safe."""

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

"""A delaying work queue of keys, for any number of workers on one event loop.

Invariants, between any two calls (`check` asserts them):

1. A key is queued (its turn will come) exactly when it is dirty (somebody wants it worked on) and nobody works on it.
2. A key is queued at most once, and at most one worker holds it.
3. A key that becomes dirty while it is worked on is queued again by `done`: no wish is lost.
4. A key has at most one timer; of several delays the earliest deadline wins.
5. Turns come in the order in which keys were queued, except under overload: while the key that waits for longest has
   waited for more than `patience`, those in a hurry go first, in their own order, three turns out of four.

The same sets as in client-go's workqueue; there is no rate limiter, since an HPA is reconciled at a fixed period
whether or not the last reconcile went well.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from hpad.api.metadata import Key
from hpad.clock import Clock

_SHARE = 4
"""Of so many turns under overload one is not for those in a hurry, so that nobody waits for ever."""


class _Timer(NamedTuple):
    """What is to come at `deadline`, by the loop's time (uvloop does not tell when a handle is due)."""

    deadline: float
    handle: asyncio.Handle


class ShutDown(Exception):
    """The queue is closed and empty: the worker may go home."""


class Series(Protocol):
    """What the queue reports as it happens; seconds throughout."""

    def added(self) -> None: ...
    def depth(self, keys: int) -> None: ...
    def waited(self, seconds: float) -> None: ...
    def worked(self, seconds: float) -> None: ...


class DelayingQueue:
    """See the module. Belongs to one event loop; none of its methods may be called from a thread.

    `hurried` says, at the moment a key is queued, whether it is in a hurry; `patience` is in seconds.
    """

    def __init__(
        self,
        clock: Clock,
        series: Series,
        *,
        hurried: Callable[[Key], bool] = lambda _key: False,
        patience: float = math.inf,
    ) -> None:
        self._clock = clock
        self._series = series
        self._is_hurried = hurried
        self.patience = patience
        self._turns: deque[Key] = deque()
        self._hurried: deque[Key] = deque()
        self._jumps = 0
        self._dirty: dict[Key, float] = {}
        self._processing: dict[Key, float] = {}
        self._timers: dict[Key, _Timer] = {}
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        self._closed = False
        self._drained = asyncio.Event()

    def __len__(self) -> int:
        """How many keys wait for a worker (timers not counted)."""
        return len(self._turns) + len(self._hurried)

    def add(self, key: Key) -> None:
        """Have the key worked on as soon as possible; nothing happens if that is so already, or after `shutdown`."""
        if self._closed or key in self._dirty:
            return
        self._series.added()
        self._dirty[key] = self._clock.monotonic()
        if key not in self._processing:
            self._enqueue(key)

    def add_after(self, key: Key, seconds: float) -> None:
        """`add` the key once that many seconds have passed, or earlier if an earlier deadline is set or gets set."""
        if self._closed:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is not None and timer.deadline <= deadline:
            return
        if timer is not None:
            timer.handle.cancel()
        self._timers[key] = _Timer(deadline, loop.call_at(deadline, self._due, key))

    def call_off(self, key: Key) -> None:
        """Drop the key's timer; a turn that it has already stays."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.handle.cancel()

    async def filled(self) -> None:
        """Wait until somebody has a turn. Raises ShutDown at the end."""
        while not len(self):
            if self._closed:
                raise ShutDown
            await self._wait()

    async def get(self) -> Key:
        """Wait for a turn and take it; every key taken must be given back to `done`. Raises ShutDown at the end."""
        await self.filled()
        now = self._clock.monotonic()
        key = self._next(now).popleft()
        self._series.waited(now - self._dirty.pop(key))
        self._series.depth(len(self))
        self._processing[key] = now
        return key

    def done(self, key: Key) -> None:
        """Give the key back; if it became dirty meanwhile it is queued again. Raises KeyError if nobody holds it."""
        self._series.worked(self._clock.monotonic() - self._processing.pop(key))
        if key in self._dirty:
            self._enqueue(key)
        self._note_if_drained()

    def forget(self, key: Key) -> None:
        """Drop whatever is planned for the key; a worker that holds it finishes undisturbed."""
        self.call_off(key)
        if self._dirty.pop(key, None) is not None and key not in self._processing:
            (self._hurried if key in self._hurried else self._turns).remove(key)
            self._series.depth(len(self))
        self._note_if_drained()

    def shutdown(self) -> None:
        """Accept nothing more; what is queued is still handed out, what is only timed is dropped."""
        self._closed = True
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()
        for worker in self._idle_workers:
            if not worker.done():
                worker.set_result(None)
        self._note_if_drained()

    async def drained(self) -> None:
        """Wait until, after `shutdown`, nothing is queued and no worker holds a key."""
        await self._drained.wait()

    def unfinished_seconds(self) -> float:
        """The time spent so far on the keys being worked on, summed."""
        now = self._clock.monotonic()
        return sum(now - since for since in self._processing.values())

    def longest_running_seconds(self) -> float:
        """The time spent so far on the key that has been worked on for longest; 0 if there is none."""
        now = self._clock.monotonic()
        return max((now - since for since in self._processing.values()), default=0.0)

    def check(self) -> None:
        """Assert the invariants of the module; for tests."""
        queued = [*self._turns, *self._hurried]
        assert len(queued) == len(set(queued)), "a key is queued twice"
        assert set(queued) == set(self._dirty) - set(self._processing), "queued is not dirty without processing"
        assert not any(timer.handle.cancelled() for timer in self._timers.values()), "a cancelled timer was kept"

    def _enqueue(self, key: Key) -> None:
        (self._hurried if self._is_hurried(key) else self._turns).append(key)
        self._series.depth(len(self))
        self._wake_one()

    def _next(self, now: float) -> deque[Key]:
        """Where the next key is to be taken from; at least one of the two is not empty."""
        if not self._hurried or not self._turns:
            return self._hurried or self._turns
        plain, hurried = self._dirty[self._turns[0]], self._dirty[self._hurried[0]]
        if now - min(plain, hurried) <= self.patience:
            return self._turns if plain <= hurried else self._hurried
        self._jumps = (self._jumps + 1) % _SHARE
        return self._hurried if self._jumps else self._turns

    def _due(self, key: Key) -> None:
        del self._timers[key]
        self.add(key)

    async def _wait(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._idle_workers.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and len(self):
                self._wake_one()  # this worker was called and cannot come: call the next
            raise
        finally:
            if turn in self._idle_workers:
                self._idle_workers.remove(turn)

    def _wake_one(self) -> None:
        while self._idle_workers:
            worker = self._idle_workers.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    def _note_if_drained(self) -> None:
        if self._closed and not len(self) and not self._processing:
            self._drained.set()

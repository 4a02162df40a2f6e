"""Deadlines of turns: one timer of the loop serves all of them.

`asyncio.timeout` sets and cancels a timer for each block, which costs more than most stages of a reconcile. Hardly any
turn reaches its deadline, so the timer here is moved only when it fires, or for an earlier deadline. It fires again if
it was early: uvloop rounds timers to whole milliseconds.
"""

import asyncio
import math
from types import TracebackType


class Deadlines:
    """Gives blocks of tasks a deadline, as `asyncio.timeout` does. For one event loop."""

    def __init__(self) -> None:
        self._active: dict[Deadline, None] = {}  # in the order of their begin
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def within(self, seconds: float) -> "Deadline":
        """Returns a context manager: raises TimeoutError if its block is not done after that many seconds."""
        return Deadline(self, seconds)

    def begin(self, deadline: "Deadline", loop: asyncio.AbstractEventLoop) -> None:
        self._active[deadline] = None
        if deadline.at < self._timer_at:
            self._set(deadline.at, loop)

    def end(self, deadline: "Deadline") -> None:
        self._active.pop(deadline, None)

    def _set(self, at: float, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = loop.call_at(at, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._timer_at = None, math.inf
        due = loop.time()
        for deadline in [each for each in self._active if each.at <= due]:
            del self._active[deadline]
            deadline.expire()
        if self._active:
            self._set(min(each.at for each in self._active), loop)


class Deadline:
    """The deadline of one block; made by `Deadlines.within`."""

    __slots__ = ("_cancelling", "_expired", "_owner", "_seconds", "_task", "at")

    def __init__(self, owner: Deadlines, seconds: float) -> None:
        self._owner = owner
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        loop = task.get_loop()
        self._task = task
        self._cancelling = task.cancelling()
        self.at = loop.time() + self._seconds
        self._owner.begin(self, loop)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._owner.end(self)
        # A cancellation from elsewhere during the same block is not a timeout (asyncio.Timeout.__aexit__).
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancels the task of the block, which is still in it."""
        self._expired = True
        self._task.cancel()

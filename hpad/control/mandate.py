"""A right to act that ends by itself."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from hpad.clock import Clock, Moment


class Mandate:
    """From a moment on (the one before a renewal was sent), and for so long; by both clocks. The wall clock only ever
    shortens it: it goes on while a suspended machine's monotonic clock stands still.

    `expired` is called, on the loop, when time has run out: by a timer, since no request may stand in its way. `valid`
    compares clocks at each question, so that a process that was stopped and resumed has none even before that.
    """

    def __init__(self, clock: Clock, expired: Callable[[], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._until: Moment | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def valid(self) -> bool:
        """Whether we may act at this very moment."""
        until = self._until
        return until is not None and self._clock.monotonic() < until.monotonic and self._clock.now() < until.wall

    @property
    def given(self) -> bool:
        """Whether it has neither been ended nor been noticed to have run out."""
        return self._until is not None

    def extend(self, begin: Moment, length: timedelta) -> bool:
        """Let it last for `length` from `begin` on; False, and nothing is changed, where that is over already.

        One that ran out while the loop was stalled, so that the timer has not had its turn yet, ends first.
        """
        now = self._clock.monotonic()
        left = begin.monotonic + length.total_seconds() - now
        if left <= 0:
            return False
        if self._until is not None and self._until.monotonic <= now:
            self._run_out()
        self._until = Moment(begin.wall + length, now + left)
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(left, self._run_out)
        return True

    def end(self) -> bool:
        """No more of it; whether there was one."""
        self._stop_timer()
        had, self._until = self._until is not None, None
        return had

    def _run_out(self) -> None:
        if self._until is not None:
            self._expired()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

"""For how long a memory is the whole story of its HPA.

A process that is killed may have made a turn that was never saved: its recommendations are missing from what the next
process reads, and a stabilization window would end too early. So each memory says when the next turn was planned. What
is read before that time is whole: no turn can have been made since. What is read later may have a hole in it.

Two things keep that true:

- A turn before the planned one (the HPA was edited, or hpad has just been started) is noted in the store first: from
  then on the memory in the store is valid no longer (`spent`).
- A process that ends, or hands the HPA over, notes that it makes no further turn (`sealed`). Such a memory is whole
  until the planned turn is a period late, and on another machine as well.

Time is measured by the monotonic clock where both processes run in one boot of one machine, which a wall clock that is
set meanwhile does not change. Of another boot nothing is known but wall times, which two machines do not share exactly:
there a memory is whole only if it was sealed.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad import clock
from hpad.clock import Moment

SLIGHT: Final = 2e-3
"""Seconds by which a planned turn may come early: timers round to whole milliseconds."""
SKEW: Final = timedelta(minutes=1)
"""Two machines' clocks may be so far apart."""


class Validity(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Goes with the time at which a turn was made.

    `ticks` is that time by the monotonic clock of `boot`, in seconds. `lasts` is how many seconds later the next turn
    was planned, `grace` how many seconds late that may be. `closed`: no turn was made since, and none will be by the
    process that wrote this.
    """

    boot: str
    ticks: float
    lasts: float = 0.0
    grace: float = 0.0
    closed: bool = False

    def comparable(self, now: Moment) -> bool:
        """Whether the monotonic times are of one clock."""
        return self.boot == clock.boot() and now.monotonic >= self.ticks

    def left(self, at: datetime, now: Moment) -> float:
        """For how many seconds it is valid yet; 0 or less: not any more. `at` is its time by the wall clock."""
        length = self.lasts + self.grace if self.closed else self.lasts
        if self.comparable(now):
            return length - (now.monotonic - self.ticks)
        return min(length, length - (now.wall - at).total_seconds())

    def is_whole(self, at: datetime, now: Moment) -> bool:
        """Whether what is read now can have no hole."""
        if not self.comparable(now) and not (self.closed and now.wall >= at - SKEW):
            return False
        return self.left(at, now) > SLIGHT

    def sealed(self, at: datetime, now: Moment) -> "Validity":
        """The same, closed: the process makes no further turn. Unchanged where a turn was due, and perhaps begun."""
        return msgspec.structs.replace(self, closed=True) if self.left(at, now) > SLIGHT else self

    def prolonged(self, turn: "Validity") -> "Validity":
        """The same up to the turn planned after this one, which left nothing to remember."""
        if self.boot != turn.boot or turn.ticks < self.ticks:
            return self
        return Validity(self.boot, self.ticks, turn.ticks + turn.lasts - self.ticks, turn.grace)

    def spent(self) -> "Validity":
        """The same, valid no longer."""
        return Validity(self.boot, self.ticks)

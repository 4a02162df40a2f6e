"""What time it is in a regular turn: that of the plan, unless its metrics come too late for that (see `planned`).

Policies of `spec.behavior` count the rescales of so many seconds, and windows the recommendations; both are mostly
whole periods. The original begins a turn a period after the one before has ended, so that what it did that many periods
ago never counts any more. Turns here keep to a rhythm: one comes a few milliseconds later than another, and by the
clock what was done a period ago would count every other time, with growth taking up to twice as long.
"""

from datetime import datetime, timedelta
from typing import Final

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.control import jumps

_BEYOND: Final = datetime.resolution
"""So much later than whole periods after another is a turn: windows still count what is as old as they are long."""


class Rhythm:
    """The planned moments of the last regular turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[Key, Moment] = {}

    def moment(self, key: Key, due: float) -> Moment:
        """That of a turn planned for `due` (monotonic): as long after the key's last one as planned, and a bit.

        Where the wall clock was set meanwhile, what it says holds.
        """
        at = self._clock.now() - timedelta(seconds=self._clock.monotonic() - due)
        last = self._last.get(key)
        if last is not None:
            planned = last.wall + timedelta(seconds=due - last.monotonic) + _BEYOND
            if abs(planned - at) <= jumps.SLIGHT:
                at = planned
        self._last[key] = moment = Moment(at, due)
        return moment

    def knows(self, key: Key) -> bool:
        """Whether there has been a planned moment, here or in an earlier process."""
        return key in self._last

    def go_on(self, key: Key, last: Moment) -> None:
        """Let moments follow that of an earlier process, which kept to the same plan."""
        self._last[key] = last

    def forget(self, key: Key) -> None:
        self._last.pop(key, None)

"""When which HPA is due: at once when it is new or was edited, and once every period in any case.

The moment within the period is fixed by the HPA's key, which spreads any number of HPAs evenly and keeps each one's
rhythm over whatever happens in between.
"""

import zlib
from collections.abc import Callable

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.control import ownership, planned, rhythm
from hpad.control.workqueue import DelayingQueue
from hpad.control.world import HpaSource

_AT_ONCE = 1e-3
"""Seconds by which a timer may fire early: uvloop rounds to whole milliseconds. Such a turn is the planned one; were it
taken for another, the planned one would follow at once."""
_APART = 0.5
"""The part of the period that lies at least between a rescale out of turn and the next planned turn: the pods, and what
is measured of them, need some time to show it, or the same step is taken twice."""


class Observer:
    """Turns changes of the source into turns of the queue. `gone` is called with each key that needs forgetting."""

    def __init__(
        self, source: HpaSource, queue: DelayingQueue, clock: Clock, period: float, gone: Callable[[Key], None]
    ) -> None:
        self._source = source
        self._queue = queue
        self._clock = clock
        self._period = period
        self._gone = gone
        self._due: dict[Key, float] = {}
        self._rhythm = rhythm.Rhythm(clock)

    def start(self, at_once: int) -> None:
        """Begin, once the source has synced: up to that many HPAs at once, more of them spread over the period."""
        known = [hpa.metadata.key for hpa in self._source.values()]
        for key in known:
            if len(known) <= at_once:
                self._queue.add(key)
            else:
                self.schedule(key)
        self._source.subscribe(self._changed)

    def schedule(self, key: Key, leave_out: int = 0, *, scaled: bool = False) -> None:
        """Have the key reconciled at its next moment; a moment that passed while it was worked on is left out.

        So are as many of those to come as `leave_out` says, and one that follows too soon where it was `scaled` just
        now, out of turn.
        """
        now = self._clock.monotonic()
        due = self._next(key, now)
        if scaled and self.lateness(key) is None and due - now < _APART * self._period:
            due += self._period
            self._queue.call_off(key)
        self._due[key] = due = due + leave_out * self._period
        self._queue.add_after(key, due - now)

    def retune(self, period: float) -> None:
        """From now on every key has its turn once in `period` seconds; each gets a new moment."""
        self._period = period
        self.reschedule()

    def reschedule(self) -> None:
        """Nobody leaves out a moment any more, or waits for one of another period."""
        for key in list(self._due):
            del self._due[key]
            self.schedule(key)

    def lateness(self, key: Key) -> float | None:
        """Seconds since the key's planned moment, None where its turn has come earlier and for another reason."""
        due, now = self._due.get(key), self._clock.monotonic()
        return None if due is None or due > now + _AT_ONCE else max(now - due, 0.0)

    def moment(self, key: Key) -> Moment | None:
        """The planned moment of the turn that has come, None where that has another reason or comes too late for it."""
        late = self.lateness(key)
        return (
            None if late is None or late > planned.IN_TIME * self._period else self._rhythm.moment(key, self._due[key])
        )

    def next(self, key: Key) -> float:
        """The planned moment after this one (monotonic): no regular turn comes earlier."""
        return self._next(key, self._clock.monotonic())

    @property
    def rhythm(self) -> rhythm.Rhythm:
        return self._rhythm

    def forget(self, key: Key) -> None:
        self._due.pop(key, None)
        self._rhythm.forget(key)
        self._queue.forget(key)

    def _next(self, key: Key, now: float) -> float:
        due = self._due.get(key)
        if due is None:
            phase = zlib.crc32(str(key).encode()) / 2**32 * self._period
            return now + (phase - now) % self._period
        if due > now + _AT_ONCE:
            return due
        missed = max(0, int((now - due) // self._period))
        return due + (missed + 1) * self._period

    def _changed(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            self._gone(key)
        elif old is None:
            self._queue.add(key)
        elif old.metadata.uid != new.metadata.uid:
            self._gone(key)
            self._queue.add(key)
        elif not ownership.decides_alike(old, new):
            self._queue.add(key)

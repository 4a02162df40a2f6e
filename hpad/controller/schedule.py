"""When which HPA is due: at once when it is new or was edited, and once every period in any case.

The moment within the period is fixed by the HPA's key, which spreads any number of HPAs evenly and keeps each one's
rhythm over whatever happens in between.

What time it is in a regular turn: that of the plan, unless its metrics come too late for that (see `planned`).

Policies of `spec.behavior` count the rescales of so many seconds, and windows the recommendations; both are mostly
whole periods. The original begins a turn a period after the one before has ended, so that what it did that many periods
ago never counts any more. Turns here keep to a rhythm: one comes a few milliseconds later than another, and by the
clock what was done a period ago would count every other time, with growth taking up to twice as long.

Turns and their plan: the moment that a turn counts as, for how long what it leaves is the whole story, and what one
out of the plan does first.

A turn counts as of its planned moment (`rhythm` says why) while that is at most `IN_TIME` of a period ago when its
metrics have been read. A slower one, and one out of the plan, counts as of the moment at which they have been read, so
that a slow metric source makes no window end early. Kubernetes, too, dates a recommendation after it has read the
metrics (horizontal.go: stabilizeRecommendation). A rescale has the moment of its decision; Kubernetes dates it when it
has been written (storeScaleEvent), which is later by as long as the write takes.

`store.validity` says why a turn out of the plan is noted first.
"""

import zlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock, Moment, boot
from hpad.controller import recovery
from hpad.controller.cluster import HpaSource
from hpad.controller.workers import Worker
from hpad.controller.workqueue import DelayingQueue
from hpad.election import owner
from hpad.store import memory
from hpad.store.memory import Store, Validity, assessed

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
            if abs(planned - at) <= recovery.SLIGHT:
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


IN_TIME: Final = 0.2
"""The part of the period by which a turn may be late, with its metrics read, and still count as the planned one."""


class Plan(NamedTuple):
    """When the HPA's next turn is planned, by the monotonic clock, and how many seconds lie between two."""

    next: float
    period: float


class TooEarly(Exception):
    """A turn out of the plan could not be noted in the store first; it can be made after so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for {seconds:.1f} s")
        self.seconds = seconds


class Timing(NamedTuple):
    """When a turn was planned, or began where it is out of the plan; `tolerance` is in seconds."""

    moment: Moment
    plan: Plan | None
    tolerance: float

    @classmethod
    def of(cls, moment: Moment | None, plan: Plan | None, clock: Clock) -> "Timing":
        """That of a turn planned for `moment`, None: out of the plan."""
        if moment is None:
            return cls(Moment.now(clock), plan, 0.0)
        return cls(moment, plan, 0.0 if plan is None else IN_TIME * plan.period)

    def answered(self, clock: Clock) -> Moment:
        """The moment that the turn counts as if its metrics have been read by now: its own while in time, else now.

        Now by the wall clock as it was at its own: where it was set meanwhile, the next turn notices (`jumps`).
        """
        seconds = clock.monotonic() - self.moment.monotonic
        if seconds <= self.tolerance:
            return self.moment
        return Moment(self.moment.wall + timedelta(seconds=seconds), self.moment.monotonic + seconds)


def valid(moment: Moment, plan: Plan | None) -> Validity:
    """For how long what a turn of this moment leaves is valid; without a plan it is not."""
    if plan is None:
        return Validity(boot(), moment.monotonic)
    return Validity(boot(), moment.monotonic, max(0.0, plan.next - moment.monotonic), plan.period)


async def last(store: Store, key: Key, clock: Clock) -> Moment | None:
    """The moment of the HPA's last turn; None where there was none in this boot of the machine."""
    held = await store.get_loaded(key)
    if held.at is None or held.validity is None or not held.validity.comparable(Moment.now(clock)):
        return None
    return Moment(held.at, held.validity.ticks)


async def announce(store: Store, key: Key, worker: Worker, moment: Moment) -> None:
    """Note a turn before the planned one in the store, so that what is there is not taken as whole any more.

    Otherwise a restart shortly afterwards would not know that a turn is missing. Raises TooEarly where the store cannot
    be written to: the planned turn needs no note.
    """
    held = await store.get_loaded(key)
    left = held.validity_remaining(moment)
    if held.validity is None or left <= memory.SLIGHT:
        return
    noted = False
    store.put(key, msgspec.structs.replace(assessed(held, moment), validity=held.validity.invalidated()))
    try:
        async with worker.released():
            noted = await store.flush_now(key)
    finally:
        if not noted:
            store.put(key, held)
    if not noted:
        raise TooEarly(left)


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
        self._rhythm = Rhythm(clock)

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
        return None if late is None or late > IN_TIME * self._period else self._rhythm.moment(key, self._due[key])

    def next(self, key: Key) -> float:
        """The planned moment after this one (monotonic): no regular turn comes earlier."""
        return self._next(key, self._clock.monotonic())

    @property
    def rhythm(self) -> Rhythm:
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
        elif not owner.decides_alike(old, new):
            self._queue.add(key)

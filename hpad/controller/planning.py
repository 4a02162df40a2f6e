"""Plans the turns of each HPA, keeps its scheduling record, and sets the moment that a turn counts as.

A new or edited HPA has a turn at once, and every HPA has one turn per period, which may be its own. The time within the
period is fixed by the HPA's key (`Grid`), which keeps the interval of each one across restarts.

A turn counts as of its planned moment while its metrics arrive within `IN_TIME` of a period. Policies and windows of
`spec.behavior` are mostly whole periods. If turns counted as of the clock, a few milliseconds of delay would decide
whether a rescale one period ago still counts, and growth could take twice as long. In Kubernetes a turn begins one
period after the previous one ended, so that such a rescale never counts.

A slower turn, and one before its planned time, counts as of the moment its metrics have been read, so that a slow
metric source ends no window early. Kubernetes also dates a recommendation after it has read the metrics (horizontal.go:
stabilizeRecommendation). A rescale has the moment of its decision; Kubernetes dates it after the write
(horizontal.go: storeScaleEvent).
"""

import asyncio
import math
import zlib
from collections import defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.controller.report import NOTHING_LOGGED, Logged
from hpad.controller.workqueue import DelayingQueue
from hpad.engine import state

_BEYOND: Final = datetime.resolution
"""Added to each planned time, so that an event exactly one window old has expired."""


def planned_moment(clock: Clock, due: float, last: Moment | None) -> Moment:
    """Returns the moment of a turn planned for `due` (monotonic seconds), given the planned moment before it.

    It follows the last one by the planned number of seconds and `_BEYOND`. After a step of the wall clock the wall
    clock decides.
    """
    now = Moment.now(clock)
    at = now.wall - timedelta(seconds=now.monotonic - due)
    if last is not None:
        planned = last.wall + timedelta(seconds=due - last.monotonic) + _BEYOND
        if abs(planned - at) <= state.SLIGHT:
            at = planned
    return Moment(at, due, now.boot)


IN_TIME: Final = 0.2
"""The part of the period within which a turn must have its metrics to count as of its planned moment.

An HPA with a longer period than the others has no more time: its windows must not end up to a fifth of an hour early.
"""


NARROWEST: Final = 1 / 16
"""The part of the period in which the HPAs of a small namespace are due."""
WIDEST: Final = 1 / 3
"""The same for a large namespace: as long as metric sources use an answer again (`sources.limits`)."""
SECONDS_EACH: Final = 0.003
"""Time for each HPA of a namespace; a reconcile takes a fraction of it."""
TICK: Final = 0.1
"""The shortest tick in seconds. Nobody sees it in a reaction, and of 10,000 HPAs in 15 s about 64 share one."""
COARSEST: Final = 1 / 30
"""The longest tick, as a part of the period."""
TOGETHER: Final = 64
"""HPAs of one tick up to which it is doubled: more gain little, and the last of them would be late."""
FINEST: Final = 1 / 100
"""The longest tick of an HPA with a period of its own, as a part of that period."""


def own_place(key: Key, period: float) -> float:
    """Returns the seconds from the start of a period to the turn of an HPA with a period of its own.

    These HPAs are spread over the whole period, each by itself: those of a namespace have no list of metrics that stays
    fresh from one turn to the next.
    """
    tick = _dividing(period, min(TICK, period * FINEST))
    return math.floor(_share(str(key)) * period / tick) * tick


class Grid:
    """The places within a period, in seconds. `tick` is the shortest one.

    HPAs of a namespace share a list of metrics, so they are due close together: one list serves all of them, and is
    fresh when it is used. They are due on the ticks of a grid, so that one wake-up of the process serves several: code
    and data are then in the caches of the CPU, and a reconcile among thirty takes a fifth less CPU time than one among
    seven. With few HPAs the ticks are therefore longer. A namespace with many HPAs takes a larger part of the period,
    so that its turns are no burst.

    A place depends on the names, the period and, roughly, the number of HPAs, so that a restart, or another replica,
    finds it again. With another number of HPAs it lies up to `COARSEST` of a period away. Once a namespace has grown
    beyond a power of two, the places of its HPAs lie elsewhere.
    """

    def __init__(self, period: float) -> None:
        self._period = period
        self.tick = _dividing(period, min(TICK, period * COARSEST))

    def place(self, key: Key, neighbours: int, hpas: int) -> float:
        """Returns the seconds from the start of a period to the turn of an HPA.

        Its namespace has `neighbours` HPAs; there are `hpas` in all.
        """
        width = self.width(neighbours)
        begin, offset = _share(key.namespace) * self._period, _share(key.local) * width
        tick = self.tick_for(max(hpas / self._period, neighbours / width))
        # Each by itself: the turns of the namespace lie within its width, whatever the tick is.
        return (math.floor(begin / tick) + math.floor(offset / tick)) * tick % self._period

    def tick_for(self, rate: float) -> float:
        """Returns the tick where so many HPAs are due per second: `tick`, or twice as long, or four times, and so on.

        All places of a longer tick are thus places of the shorter ones.
        """
        tick = self.tick
        while 2 * tick <= COARSEST * self._period and 2 * tick * rate <= TOGETHER:
            tick *= 2
        return tick

    def width(self, neighbours: int) -> float:
        """Returns the seconds within which the HPAs of a namespace are due."""
        many: float = SECONDS_EACH * 2 ** math.ceil(math.log2(max(neighbours, 1)))
        return min(max(many, self._period * NARROWEST), self._period * WIDEST)


def _dividing(period: float, tick: float) -> float:
    """Returns the tick rounded down to a whole fraction of the period."""
    return period / math.ceil(period / tick)


def _share(name: str) -> float:
    # Not hash(): it differs per process, and a restart would move the planned time of every HPA.
    return zlib.crc32(name.encode()) / 2**32


class Timing(msgspec.Struct, frozen=True, gc=False):
    """The moment a turn was planned for, or started if it runs before its planned time.

    A turn whose metrics arrive within `tolerance` seconds counts as of its planned moment. `next` is the next planned
    turn, in monotonic seconds, and `period` is in seconds.
    """

    moment: Moment
    next: float
    period: float
    tolerance: float = 0.0

    def answered(self, clock: Clock) -> Moment:
        """Returns the moment that the turn counts as, if its metrics were read now: the planned one if in time."""
        moment, seconds = self.moment, clock.monotonic() - self.moment.monotonic
        if seconds <= self.tolerance:
            return moment
        # Not the wall clock: it may have been set during the turn. The next turn corrects this (`state.caught_up`).
        late = timedelta(seconds=seconds)
        return Moment(moment.wall + late, moment.monotonic + seconds, moment.boot)


_AT_ONCE = 1e-3
"""Seconds by which a timer may fire early: uvloop rounds to whole milliseconds. Such a turn counts as the planned one;
otherwise the planned one would follow at once."""
_APART = 0.5
"""The smallest part of the period between a rescale before the planned time and the next planned turn. New pods and
their metrics need some time; a turn too early would take the same step twice."""


class Record(msgspec.Struct):
    """The scheduling state of one HPA.

    `due` is the next planned time in monotonic seconds, and `planned` the planned moment of the last regular turn.
    `cooldown_until` (monotonic seconds) stays set until a turn starts after it. `period` is the HPA's own sync period
    in seconds (annotation `hpad.io/sync-period`); None: that of the schedule. `task` is that of the turn under way.

    The last three belong to the reconciles. `status_written_at` is the time, in monotonic seconds, of the turn that
    wrote the HPA's status last; None if that is not known, or if the HPA was edited since. `outdated`: turns in
    succession that ended without a decision because the HPA was edited. `logged` is what the log has said about it.
    """

    due: float | None = None
    planned: Moment | None = None
    cooldown_until: float | None = None
    period: float | None = None
    task: asyncio.Task[Any] | None = None
    status_written_at: float | None = None
    outdated: int = 0
    logged: Logged = NOTHING_LOGGED


class Schedule:
    """The records of all HPAs, and the planned time of each."""

    def __init__(self, queue: DelayingQueue, clock: Clock, period: float) -> None:
        self._queue = queue
        self._clock = clock
        self._period = period
        self._grid = Grid(period)
        self._namespaces: defaultdict[str, set[Key]] = defaultdict(set)
        self.records: defaultdict[Key, Record] = defaultdict(Record)

    def start(self, keys: Collection[Key], at_once: int) -> None:
        """Plans the first turns of these HPAs: all now if they are at most `at_once`, else spread over a period."""
        for key in keys:
            self._namespaces[key.namespace].add(key)
            self.records.setdefault(key, Record())
        for key in keys:
            if len(keys) <= at_once:
                self._queue.add(key)
            elif self.period(key) <= self._period:
                self.plan(key)
            else:
                self._queue.add_after(key, self.first(key) - self._clock.monotonic())

    def period(self, key: Key) -> float:
        """Returns the seconds between two planned turns of the HPA."""
        record = self.records.get(key)
        return self._period if record is None or record.period is None else record.period

    def deadline_period(self, key: Key) -> float:
        """Returns the period that the deadlines of a turn are parts of: a longer period allows no longer turns."""
        return min(self.period(key), self._period)

    def shortest_period(self) -> float:
        """Returns the shortest period of all HPAs in seconds; the common one without HPAs."""
        return min(map(self.period, self.records), default=self._period)

    def set_period(self, key: Key, period: float | None) -> None:
        """Sets the HPA's own period in seconds (None: it has none), and plans its next turn by it."""
        if period is None and key not in self.records:
            return
        record = self.records[key]
        if record.period != period:
            record.period = period
            self._replan(key, record)

    def plan(self, key: Key, *, scaled: bool = False) -> None:
        """Plans the next regular turn. A planned time that passed during a turn is skipped.

        After a rescale (`scaled`) by a turn before its planned time, a planned time that follows too soon is skipped.
        """
        now, record = self._clock.monotonic(), self.records[key]
        due = self._next(key, record, now)
        if scaled and _lateness(record, now) is None and due - now < _APART * self.deadline_period(key):
            due += self.period(key)
            self._queue.call_off(key)  # the queue keeps the earlier of two deadlines
        record.due = due
        self._queue.add_after(key, due - now)

    def retune(self, period: float) -> None:
        """Changes the period, in seconds, and plans a new time for every HPA."""
        self._period, self._grid = period, Grid(period)
        for key, record in list(self.records.items()):
            self._replan(key, record)

    def _replan(self, key: Key, record: Record) -> None:
        if record.due is not None:
            record.due = None
            self.plan(key)

    def begin(self, key: Key) -> tuple[float | None, Timing]:
        """Returns lateness (seconds) and timing of a turn that starts now; call it once per turn.

        The lateness is None for a turn before its planned time. Such a turn has no planned moment, nor has one that is
        far behind it.
        """
        record, now = self.records[key], self._clock.monotonic()
        period = self._period if record.period is None else record.period
        tolerance = IN_TIME * min(period, self._period)
        following, late = self._next(key, record, now), _lateness(record, now)
        if record.due is None or late is None or late > tolerance:
            # With the same `_BEYOND`: after a restart the planned moments go on from this one.
            return late, Timing(planned_moment(self._clock, now, record.planned), following, period)
        record.planned = planned_moment(self._clock, record.due, record.planned)
        return late, Timing(record.planned, following, period, tolerance)

    def first(self, key: Key) -> float:
        """Returns the time of the first turn after a start (monotonic seconds).

        It comes within the common period: an HPA with a longer one may have been edited while hpad did not run.
        """
        record, now = self.records[key], self._clock.monotonic()
        return self._on_grid(key) if self.period(key) > self._period else self._next(key, record, now)

    def _on_grid(self, key: Key) -> float:
        members = self._namespaces[key.namespace]
        members.add(key)
        return self._following(self._grid.place(key, len(members), len(self.records)), self._period)

    def _following(self, place: float, period: float) -> float:
        begin = math.floor((self._clock.monotonic() - place) / period) + 1  # equal places need equal due times
        return begin * period + place

    def _next(self, key: Key, record: Record, now: float) -> float:
        """Returns the planned time after this turn (monotonic seconds): no regular turn comes earlier."""
        due, period = record.due, self._period if record.period is None else record.period
        if due is None and record.period is not None:
            return self._following(own_place(key, period), period)
        if due is None:
            return self._on_grid(key)
        if due > now + _AT_ONCE:
            return due  # a turn before its planned time leaves the plan as it is
        missed = max(0, int((now - due) // period))
        return due + (missed + 1) * period

    def cooldown(self, key: Key) -> float:
        """Returns the seconds until the cooldown of the HPA ends; 0 or less: none."""
        until = self.records[key].cooldown_until
        return 0.0 if until is None else until - self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """Drops the state of a deleted HPA. While its cancelled turn has not ended, the empty record keeps the task."""
        self._queue.discard(key)
        members = self._namespaces[key.namespace]
        members.discard(key)
        if not members:
            del self._namespaces[key.namespace]
        record = self.records.pop(key, None)
        if record is not None and record.task is not None:
            self.records[key] = Record(task=record.task)  # a new HPA of this name must wait for it


def _lateness(record: Record, now: float) -> float | None:
    """Returns the seconds since the planned time of the turn; None for a turn before its planned time."""
    due = record.due
    return None if due is None or due > now + _AT_ONCE else max(now - due, 0.0)

"""Plans the turns of each HPA, keeps its scheduling record, and says which moment a turn counts as.

A new or edited HPA has a turn at once, and every HPA has one turn per period. The time within the period is fixed by
the HPA's key, which spreads HPAs evenly and keeps the interval of each one over restarts.

A turn counts as of its planned moment while its metrics arrive within `IN_TIME` of a period. Policies and windows of
`spec.behavior` are mostly whole periods. If turns counted as of the clock, a few milliseconds of delay would decide
whether a rescale one period ago still counts, and growth could take twice as long. In Kubernetes a turn begins one
period after the previous one ended, so that such a rescale never counts.

A slower turn, and one before its planned time, counts as of the moment its metrics have been read, so that a slow
metric source ends no window early. Kubernetes also dates a recommendation after it has read the metrics (horizontal.go:
stabilizeRecommendation). A rescale has the moment of its decision; Kubernetes dates it after the write
(horizontal.go: storeScaleEvent).

A turn before its planned time is noted in the store first; see `store.memory`.
"""

import asyncio
import zlib
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, Final, NamedTuple

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


def planned_moment(clock: Clock, due: float, last: Moment | None) -> Moment:
    """The moment of a turn planned for `due` (monotonic seconds), given the planned moment before it.

    It follows the last one by the planned number of seconds and `_BEYOND`. After a step of the wall clock the wall
    clock decides.
    """
    at = clock.now() - timedelta(seconds=clock.monotonic() - due)
    if last is not None:
        planned = last.wall + timedelta(seconds=due - last.monotonic) + _BEYOND
        if abs(planned - at) <= recovery.SLIGHT:
            at = planned
    return Moment(at, due)


IN_TIME: Final = 0.2
"""The part of the period by which a turn may be late, with its metrics read, and still count as the planned one."""


class Plan(NamedTuple):
    """The next planned turn, in monotonic seconds, and the period in seconds."""

    next: float
    period: float


class TooEarly(Exception):
    """The turn before its planned time could not be noted in the store; it may run after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"not for {seconds:.1f} s")
        self.seconds = seconds


class Timing(NamedTuple):
    """The moment a turn was planned for, or started if it runs before its planned time. `tolerance` is in seconds."""

    moment: Moment
    plan: Plan | None
    tolerance: float

    @classmethod
    def of(cls, moment: Moment | None, plan: Plan | None, clock: Clock) -> "Timing":
        """The timing of a turn planned for `moment`; None for a turn before its planned time."""
        if moment is None:
            return cls(Moment.now(clock), plan, 0.0)
        return cls(moment, plan, 0.0 if plan is None else IN_TIME * plan.period)

    def answered(self, clock: Clock) -> Moment:
        """The moment the turn counts as if its metrics have been read by now: the planned one if in time, else now.

        Now is computed from the planned moment. After a step of the wall clock the next turn corrects it (see
        `recovery`).
        """
        seconds = clock.monotonic() - self.moment.monotonic
        if seconds <= self.tolerance:
            return self.moment
        return Moment(self.moment.wall + timedelta(seconds=seconds), self.moment.monotonic + seconds)


def valid(moment: Moment, plan: Plan | None) -> Validity:
    """How long the state that this turn leaves is complete; without a plan it is not."""
    if plan is None:
        return Validity(boot(), moment.monotonic)
    return Validity(boot(), moment.monotonic, max(0.0, plan.next - moment.monotonic), plan.period)


async def last(store: Store, key: Key, clock: Clock) -> Moment | None:
    """The moment of the HPA's last turn; None if there was none in this boot of the machine."""
    held = await store.get_loaded(key)
    if held.at is None or held.validity is None or not held.validity.comparable(Moment.now(clock)):
        return None
    return Moment(held.at, held.validity.ticks)


async def announce(store: Store, key: Key, worker: Worker, moment: Moment) -> None:
    """Notes a turn before its planned time in the store, which marks the stored state as incomplete.

    Otherwise a restart shortly afterwards would not know that a turn is missing. Raises TooEarly if the store cannot be
    written; the planned turn needs no note.
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


class Phase(Enum):
    """The phases in the life of an HPA inside the controller."""

    UNKNOWN = auto()
    """Never had a turn."""
    WAITING = auto()
    """The next turn is planned or queued."""
    RUNNING = auto()
    COOLING_DOWN = auto()
    """No turn before the cooldown has passed."""
    NOT_OWNED = auto()
    """Another replica decides; turns only refresh what the overlap index knows."""
    DELETED = auto()
    """Deleted during a turn, which was cancelled and has not ended yet."""
    GONE = auto()


class Change(Enum):
    """What moves an HPA from one phase to another."""

    START = auto()
    """A worker starts a turn."""
    COMPLETE = auto()
    """The turn ended: done, scaled, timed out, failed, cancelled, or given up after an edit."""
    COOL_DOWN = auto()
    """The turn ended because of a cooldown."""
    DISOWN = auto()
    """The turn ended because another replica owns the HPA."""
    VANISH = auto()
    """The turn ended, and the source no longer has the HPA."""
    DELETE = auto()
    """The source reports that the HPA was deleted, or replaced by another of its name."""


_AFTER_TURN: Final = {
    Change.COMPLETE: Phase.WAITING,
    Change.COOL_DOWN: Phase.COOLING_DOWN,
    Change.DISOWN: Phase.NOT_OWNED,
    Change.VANISH: Phase.GONE,
}
_IDLE: Final = (Phase.UNKNOWN, Phase.WAITING, Phase.COOLING_DOWN, Phase.NOT_OWNED)
TRANSITIONS: Final[dict[tuple[Phase, Change], Phase]] = {
    **{(phase, Change.START): Phase.RUNNING for phase in _IDLE},
    **{(phase, Change.DELETE): Phase.GONE for phase in _IDLE},
    **{(phase, change): after for phase in (Phase.RUNNING, Phase.DELETED) for change, after in _AFTER_TURN.items()},
    (Phase.RUNNING, Change.DELETE): Phase.DELETED,
    (Phase.DELETED, Change.DELETE): Phase.DELETED,
    (Phase.GONE, Change.DELETE): Phase.GONE,
}
"""Every allowed change. A new HPA of a deleted one's name waits until the cancelled turn of the old one has ended."""


class Record(msgspec.Struct):
    """The scheduling state of one HPA.

    `due` and `cooldown_until` are monotonic seconds. A cooldown lasts until a turn
    finds that it has passed. `planned` is the planned moment of the last regular turn. `owned`:
    this replica decides about the HPA.
    """

    phase: Phase = Phase.UNKNOWN
    due: float | None = None
    planned: Moment | None = None
    cooldown_until: float | None = None
    owned: bool = False
    turn: asyncio.Task[Any] | None = None

    def change(self, change: Change) -> Phase:
        """Moves to the next phase. Raises KeyError for a change that the phase does not allow."""
        self.phase = TRANSITIONS[self.phase, change]
        return self.phase


class Schedule:
    """The records of all HPAs, and the planned time of each. `gone` is called with the key of each deleted HPA."""

    def __init__(
        self, source: HpaSource, queue: DelayingQueue, clock: Clock, period: float, gone: Callable[[Key], None]
    ) -> None:
        self._source = source
        self._queue = queue
        self._clock = clock
        self._period = period
        self._gone = gone
        self.records: defaultdict[Key, Record] = defaultdict(Record)

    def start(self, at_once: int) -> None:
        """Plans the first turns once the source has synced: all now if at most `at_once`, else spread over a period."""
        known = [hpa.metadata.key for hpa in self._source.values()]
        for key in known:
            if len(known) <= at_once:
                self._queue.add(key)
            else:
                self.plan(key)
        self._source.subscribe(self._changed)

    def plan(self, key: Key, *, scaled: bool = False) -> None:
        """Plans the next regular turn. A planned time that passed during a turn is skipped.

        After a rescale (`scaled`) by a turn before its planned time, a planned time that follows too soon is skipped.
        """
        now, record = self._clock.monotonic(), self.records[key]
        due = self._next(key, now)
        if scaled and self.lateness(key) is None and due - now < _APART * self._period:
            due += self._period
            self._queue.call_off(key)
        record.due = due
        self._queue.add_after(key, due - now)

    def retune(self, period: float) -> None:
        """Changes the period, in seconds, and plans a new time for every HPA."""
        self._period = period
        for key, record in list(self.records.items()):
            if record.due is not None:
                record.due = None
                self.plan(key)

    def lateness(self, key: Key) -> float | None:
        """Seconds since the planned time of the turn; None for a turn before its planned time."""
        due, now = self.records[key].due, self._clock.monotonic()
        return None if due is None or due > now + _AT_ONCE else max(now - due, 0.0)

    def moment(self, key: Key) -> Moment | None:
        """The planned moment of the turn that starts now; None for a turn before its planned time or far behind it."""
        late, record = self.lateness(key), self.records[key]
        if late is None or record.due is None or late > IN_TIME * self._period:
            return None
        record.planned = planned_moment(self._clock, record.due, record.planned)
        return record.planned

    def next(self, key: Key) -> float:
        """The planned time after this turn (monotonic seconds): no regular turn comes earlier."""
        return self._next(key, self._clock.monotonic())

    def cooldown(self, key: Key) -> float:
        """Seconds until the cooldown of the HPA ends; 0 or less: none."""
        until = self.records[key].cooldown_until
        return 0.0 if until is None else until - self._clock.monotonic()

    def forget(self, key: Key) -> None:
        """Drops the state of a deleted HPA. While its cancelled turn has not ended, the empty record keeps the task."""
        self._queue.forget(key)
        record = self.records.pop(key, None)
        if record is not None and record.change(Change.DELETE) is Phase.DELETED:
            self.records[key] = Record(Phase.DELETED, turn=record.turn)

    def _next(self, key: Key, now: float) -> float:
        due = self.records[key].due
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

"""Runs the reconciles: takes keys from the queue, reconciles their HPAs, and plans the next turn of each."""

import asyncio
import contextlib
import functools
import traceback
from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import Any, Final

import structlog

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.cluster import HpaSource
from hpad.controller.reconcile import Reconciler
from hpad.controller.schedule import Change, Phase, Plan, Schedule, TooEarly
from hpad.controller.workers import Worker, Workers
from hpad.controller.workqueue import DelayingQueue, ShutDown
from hpad.election.owner import EVERYTHING, Edited, NotOwned, Owner
from hpad.sources import limits
from hpad.telemetry import Telemetry
from hpad.telemetry.episode import Episodes

NAMED: Final = 5


class TimeoutLog:
    """Logs reconciles that timed out, in one line for all within a period: under overload they may be thousands."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._count = 0
        self._some: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(self, key: Key, period: float) -> None:
        """Counts a reconcile that timed out; the line follows within `period` seconds."""
        self._count += 1
        if len(self._some) < NAMED:
            self._some.append(str(key))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(period, self.tell)

    def tell(self) -> None:
        """Logs at once what has been counted, if anything."""
        if self._timer is None:
            return
        self._timer.cancel()
        count, some = self._count, self._some
        self._count, self._some, self._timer = 0, [], None
        self._log.error("reconciles took too long and were given up", reconciles=count, some=some)


_DEADLINE = 0.95
"""The part of the period that one reconcile may last, so that it can never make the next one late."""
_DRAIN = _DEADLINE - limits.PATIENCE
"""The part of the period in which those who wait for metrics at a time can be finished, once those have come: what the
patience for metrics leaves of `_DEADLINE`."""
_NOTHING = 1e-6
"""Seconds in which no timer can be set: a sum of times is not exact."""


class TurnResult(Enum):
    """How a turn ended."""

    DONE = auto()
    SCALED = auto()
    TIMED_OUT = auto()
    BUG = auto()
    GONE = auto()
    CANCELLED = auto()
    COOLING_DOWN = auto()
    NOT_OWNED = auto()
    EDITED = auto()


_CHANGES: Final = {
    TurnResult.GONE: Change.VANISH,
    TurnResult.COOLING_DOWN: Change.COOL_DOWN,
    TurnResult.NOT_OWNED: Change.DISOWN,
}
"""What the result of a turn means for the phase of the HPA; every other result is Change.COMPLETE."""


class Controller:
    """Reconciles every HPA of a source each `period` (seconds) with `workers` workers (see `Workers`).

    Call `start` once the source has synced. `stop` waits for running turns. HPAs that `owner` does not own have
    turns, but nothing is decided in them.
    """

    def __init__(
        self,
        source: HpaSource,
        reconciler: Reconciler,
        telemetry: Telemetry,
        clock: Clock,
        *,
        period: float,
        workers: int,
        owner: Owner = EVERYTHING,
    ) -> None:
        self._source = source
        self._reconciler = reconciler
        self._telemetry = telemetry
        self._clock = clock
        self._period = period
        self._workers = workers
        self._pool = Workers(workers, clock, period * _DRAIN)
        self._owner = owner
        self._queue = DelayingQueue(clock, telemetry.queue)
        self._schedule = Schedule(source, self._queue, clock, period, self._forget)
        self._records = self._schedule.records
        self._dispatcher: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("hpad.controller")
        self._timeouts = TimeoutLog(self._log)
        failed, well = "bug: the reconcile failed in an unexpected way", "the reconcile fails no more"
        self._bugs = Episodes(self._log, clock, failed, well, level="exception")
        telemetry.before_scrape(self._refresh_series)

    def start(self) -> None:
        """Starts with all HPAs of the source.

        HPAs that share pods compete from the first turn on, as they did before a restart.
        """
        for hpa in self._source.values():
            self._reconciler.overlap.register(hpa)
        self._dispatcher = asyncio.create_task(self._dispatch(), name="dispatcher")
        self._schedule.start(at_once=self._workers)
        self._source.subscribe(self._register)  # after the observer, which forgets an HPA that was created again

    async def wait_stopped(self) -> None:
        """Waits until the controller stops. Raises what ended the dispatcher: without it nothing is reconciled."""
        dispatcher = self._dispatcher
        if dispatcher is not None:
            await asyncio.wait([dispatcher])
            if not dispatcher.cancelled():
                dispatcher.result()

    def retune(self, *, period: float, workers: int) -> None:
        """Changes the period (seconds) and the number of workers. Running turns finish with the previous ones."""
        if workers != self._workers:
            self._workers = workers
            self._pool = Workers(workers, self._clock, period * _DRAIN)
        if period != self._period:
            self._period = period
            self._pool.patience = period * _DRAIN
            self._schedule.retune(period)

    async def stop(self, seconds: float) -> None:
        """Starts no more turns, and gives running ones that many seconds before it cancels them."""
        self._queue.shutdown()
        if self._dispatcher is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._queue.drained()
        except TimeoutError:
            self._log.warning("reconciles under way were cut short", hpas=len(self.running()))
        tasks = (self._dispatcher, *self.running())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._dispatcher = None
        self._timeouts.tell()

    @property
    def period(self) -> float:
        return self._period

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def ours(self) -> int:
        """The number of HPAs of the source that this replica owns."""
        return sum(self._owner.owns(hpa.metadata.key) for hpa in self._source.values())

    def running(self) -> list[asyncio.Task[TurnResult]]:
        """The turns under way."""
        return [record.turn for record in self._records.values() if record.turn is not None]

    def reassign(self) -> tuple[set[Key], set[Key]]:
        """Applies a change of the owned HPAs: cancels the turns of lost ones. Returns the gained and the lost keys.

        Gained HPAs keep their planned turns; see `advance`.
        """
        if self._dispatcher is None:
            return set(), set()
        for key, record in self._records.items():
            if record.turn is not None and not self._owner.owns(key):
                record.turn.cancel()
        before = {key for key, record in self._records.items() if record.owned}
        owned = {hpa.metadata.key for hpa in self._source.values() if self._owner.owns(hpa.metadata.key)}
        gained, lost = owned - before, before - owned
        for key in gained:
            self._records[key].owned = True
            self._take_over(key)  # the target may have another selector by now
        for key in lost:
            record = self._records[key]
            record.owned, record.cooldown_until = False, None
            self._telemetry.controller.forget(key)
        return gained, lost

    def cool_down(self, waits: Mapping[Key, float]) -> None:
        """Suspends these HPAs for the given number of seconds. A turn that falls due meanwhile runs afterwards."""
        now = self._clock.monotonic()
        for key, seconds in waits.items():
            if key in self._records and self._records[key].owned:
                self._records[key].cooldown_until = now + seconds

    def extend_cooldown(self, key: Key, seconds: float) -> None:
        """Extends the cooldown of an HPA that has one to at least that many seconds from now."""
        record = self._records.get(key)
        if record is not None and record.cooldown_until is not None:
            record.cooldown_until = max(record.cooldown_until, self._clock.monotonic() + seconds)

    def advance(self, waits: Mapping[Key, float]) -> None:
        """Plans turns after the given number of seconds, unless earlier ones are planned."""
        for key, seconds in waits.items():
            if self._source.get(key) is not None:
                self._queue.add_after(key, seconds)

    async def ended(self, keys: Collection[Key], seconds: float) -> None:
        """Waits until no turn of these HPAs is running, for that many seconds at most."""
        turns = [turn for key in keys if key in self._records and (turn := self._records[key].turn) is not None]
        if turns:
            await asyncio.wait(turns, timeout=seconds)

    async def _dispatch(self) -> None:
        """Starts a task for each key whose turn has come, once a worker is free.

        No worker is held while the queue is empty: reconciles that return from waiting for metrics need it.
        """
        while True:
            worker = Worker(self._pool)
            try:
                await self._queue.filled()
                await worker.take()
                if not len(self._queue):  # whose turn it was is gone
                    worker.give()
                    continue
                key = await self._queue.get()
            except ShutDown:
                return
            turn = asyncio.create_task(self._work(key, worker), name=f"reconcile {key}")
            record = self._records[key]
            record.change(Change.START)
            record.turn = turn
            turn.add_done_callback(functools.partial(self._over, key, worker))

    async def _work(self, key: Key, worker: Worker) -> TurnResult:
        try:
            return await self._turn(key, worker)
        except NotOwned:
            return TurnResult.NOT_OWNED
        except Edited:
            return TurnResult.EDITED
        except Exception as error:  # noqa: BLE001  # a bug in one HPA's reconcile must not stop the others
            self._report_bug(key, error)
            return TurnResult.BUG

    def _over(self, key: Key, worker: Worker, turn: asyncio.Task[TurnResult]) -> None:
        """Runs after every turn, also after one that was cancelled before it started."""
        worker.give()
        result = TurnResult.CANCELLED if turn.cancelled() else turn.result()
        try:
            self._plan_next(key, result)
            if result in {TurnResult.DONE, TurnResult.SCALED}:
                self._bugs.ended(subject=key, hpa=str(key))
        except Exception as error:  # noqa: BLE001  # nothing else would plan another turn for this HPA
            self._report_bug(key, error)
            self._queue.add_after(key, self._period)
        self._queue.done(key)

    async def _turn(self, key: Key, worker: Worker) -> TurnResult:
        """Reconciles the HPA of the key, within the deadline."""
        hpa = self._source.get(key)
        if hpa is None:
            return TurnResult.GONE
        if not self._owner.owns(key):
            self._reconciler.overlap.refresh(hpa)
            return TurnResult.NOT_OWNED
        record = self._records[key]
        record.owned = True
        if self._schedule.cooldown(key) > _NOTHING:
            return TurnResult.COOLING_DOWN
        record.cooldown_until = None
        last = await self._reconciler.last(key)  # what has to be read first may take a while
        if record.planned is None:
            record.planned = last
        late, moment = self._schedule.lateness(key), self._schedule.moment(key)
        if late is not None:
            self._telemetry.controller.late(late)
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._period * _DEADLINE):
                current = functools.partial(self._source.get, key)
                plan = Plan(self._schedule.next(key), self._period)
                settlement = await self._reconciler.reconcile(hpa, worker, moment, current, plan)
        except TooEarly as early:
            self._log.warning("a turn out of the plan waits: the state cannot be saved", hpa=str(key))
            record.cooldown_until = self._clock.monotonic() + early.seconds
            return TurnResult.COOLING_DOWN
        except TimeoutError:
            self._telemetry.controller.reconciled("none", "internal", self._clock.monotonic() - began)
            self._timeouts.note(key, self._period)
            return TurnResult.TIMED_OUT
        return TurnResult.SCALED if settlement.rescaled else TurnResult.DONE

    def _report_bug(self, key: Key, error: Exception) -> None:
        """Call in an `except` block. A bug of another kind or at another line counts as another cause."""
        self._telemetry.process.bug()
        self._telemetry.controller.reconciled("none", "internal", 0.0)
        with contextlib.suppress(Exception):  # standard error may be the thing that fails
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            cause = (type(error).__name__, frame.f_code.co_filename, line)
            self._bugs.occurred(subject=key, cause=cause, hpa=str(key))

    def _plan_next(self, key: Key, result: TurnResult) -> None:
        """Plans the next turn of an HPA; no other code does so after a turn.

        An error brings it no earlier: the HPA controller has a fixed period, and the next turn is its retry. An HPA
        that was edited during its turn has another at once, since nothing was written for it.
        """
        record = self._records[key]
        record.turn = None
        change = _CHANGES.get(result, Change.COMPLETE)
        phase = record.change(change if self._source.get(key) is not None else Change.VANISH)
        if phase is Phase.GONE:
            self._forget(key)
        elif phase is Phase.COOLING_DOWN:
            self._queue.add_after(key, self._schedule.cooldown(key))
        else:
            self._schedule.plan(key, scaled=result is TurnResult.SCALED)
            if result is TurnResult.EDITED:
                self._queue.add(key)

    def _register(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is not None and (old is None or _target(old) != _target(new)):
            self._reconciler.overlap.register(new)

    def _take_over(self, key: Key) -> None:
        hpa = self._source.get(key)
        if hpa is not None:
            self._reconciler.overlap.register(hpa)

    def _forget(self, key: Key) -> None:
        """Drops everything about a deleted HPA; called again after a turn that was running at that time.

        The running turn is cancelled: a user who deletes an HPA may scale by hand next, and must not be overruled.
        """
        record = self._records.get(key)
        if record is not None and record.turn is not None:
            record.turn.cancel()
        self._bugs.forget(key)
        self._schedule.forget(key)
        self._reconciler.forget(key)

    def _refresh_series(self) -> None:
        self._telemetry.controller.hpas(sum(1 for _ in self._source.values()))
        self._telemetry.election.owned(self.ours)
        self._telemetry.queue.unfinished.set(self._queue.unfinished_seconds())
        self._telemetry.queue.longest.set(self._queue.longest_running_seconds())


def _target(hpa: HorizontalPodAutoscaler) -> tuple[str, CrossVersionObjectReference]:
    return hpa.metadata.uid, hpa.spec.scale_target_ref

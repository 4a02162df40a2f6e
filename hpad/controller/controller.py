"""Runs the reconciles: takes keys from the queue, reconciles their HPAs, and plans the next turn of each."""

import asyncio
import contextlib
import functools
import traceback
from collections.abc import Mapping
from enum import Enum, auto

import structlog

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.planning import Schedule
from hpad.controller.reconcile import Reconciler
from hpad.controller.report import NOTHING_LOGGED
from hpad.controller.workers import Worker, Workers
from hpad.controller.workqueue import DelayingQueue, ShutDown
from hpad.controller.write import TooEarly
from hpad.election.owner import ALONE, Authority, Edited, NotLeading, Permit, decides_alike
from hpad.kube.cache import WatchedKinds
from hpad.manifests.folder import Folder
from hpad.sources import limits
from hpad.telemetry import Telemetry
from hpad.telemetry.episode import Episode, Episodes

_DEADLINE = 0.95
"""The part of the period that one reconcile may last, so that it can never make the next one late."""
_DRAIN = _DEADLINE - limits.PATIENCE
"""The part of the period that is left for the work after the metrics have arrived (see `Workers.be_patient`)."""
_NOTHING = 1e-6
"""Seconds of a cooldown that count as none, because sums of times are not exact."""


class TurnResult(Enum):
    """How a turn ended."""

    DONE = auto()
    SCALED = auto()
    TIMED_OUT = auto()
    BUG = auto()
    GONE = auto()
    CANCELLED = auto()
    COOLING_DOWN = auto()
    STANDING_BY = auto()
    EDITED = auto()


HpaSource = WatchedKinds | Folder
"""Where HPAs come from: the caches of the API server's HPAs and Autoscalers, or a folder of manifests."""


class Controller:
    """Reconciles every HPA of a source each `period` (seconds) with `workers` workers; `retune` changes both.

    Call `start` once the source has synced. `stop` waits for running turns. While `owner` does not
    lead, HPAs have turns, but nothing is decided in them: they keep the overlap index up to date.
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
        owner: Authority = ALONE,
    ) -> None:
        self._source = source
        self._reconciler = reconciler
        self._telemetry = telemetry
        self._clock = clock
        self.period = period
        self.workers = workers
        self._pool = Workers(workers, clock, period * _DRAIN)
        self._owner = owner
        self._queue = DelayingQueue(clock, telemetry.queue)
        self._schedule = Schedule(self._queue, clock, period)
        self._records = self._schedule.records
        self._dispatcher: asyncio.Task[None] | None = None
        self._log = structlog.get_logger("hpad.controller")
        late, punctual = "reconciles take too long and are given up", "no reconcile takes too long any more"
        self._timeouts = Episode(self._log, clock, late, punctual, level="error")
        failed, well = "bug: the reconcile failed in an unexpected way", "the reconcile fails no more"
        self._bugs = Episodes(self._log, clock, failed, well, level="exception")
        telemetry.before_scrape(self._refresh_series)

    def start(self) -> None:
        """Starts with all HPAs of the source.

        HPAs that share pods compete from the first turn on, as they did before a restart.
        """
        for hpa in self._source.values():
            self._reconciler.overlap.register(hpa)
        self._read_annotations()
        self._dispatcher = asyncio.create_task(self._dispatch(), name="dispatcher")
        keys = list(self._source.keys())
        self._schedule.start(keys, at_once=self.workers)
        if self._owner.leading:
            self._reconciler.announcements.add(keys)
        # No await since the HPAs were read, so that no change is missed.
        self._source.subscribe(self._changed)

    async def wait_stopped(self) -> None:
        """Waits until the controller stops. Raises the exception that ended the dispatcher, which starts all turns."""
        dispatcher = self._dispatcher
        if dispatcher is not None:
            await asyncio.wait([dispatcher])
            if not dispatcher.cancelled():
                dispatcher.result()

    def retune(self, *, period: float, workers: int) -> None:
        """Changes the period (seconds) and the number of workers. Running turns finish with the previous ones.

        Call it also if the annotations that the settings give HPAs may have changed (`Reconciler.retune`).
        """
        if workers != self.workers:
            self.workers = workers
            # Running turns give their workers back to the previous pool.
            self._pool = Workers(workers, self._clock, period * _DRAIN)
        if period != self.period:
            self.period = period
            self._pool.be_patient(period * _DRAIN)
            self._schedule.retune(period)
        self._read_annotations()

    async def stop(self, seconds: float) -> None:
        """Starts no more turns. Running turns are cancelled after the given number of seconds."""
        self._queue.shutdown()
        if self._dispatcher is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._queue.drained()
        except TimeoutError:
            self._log.warning("running reconciles were cancelled", hpas=len(self.running()))
        tasks = (self._dispatcher, *self.running())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._dispatcher = None

    @property
    def leading(self) -> bool:
        """Whether this process may act on HPAs at this moment."""
        return self._owner.leading

    @property
    def started(self) -> bool:
        """Whether turns are started."""
        return self._dispatcher is not None

    def running(self) -> list[asyncio.Task[TurnResult]]:
        """The turns under way."""
        return [record.task for record in self._records.values() if record.task is not None]

    def take_over(self) -> None:
        """Called when this process begins to lead. HPAs keep their planned turns; see `advance`."""
        for hpa in self._source.values():
            # Its target may have another selector since, which only the previous leader has read.
            self._reconciler.overlap.register(hpa)
            self._reconciler.share(hpa)
        self._reconciler.announcements.add(list(self._source.keys()))

    def stand_by(self) -> None:
        """Called when this process ceases to lead: cancels all turns."""
        for turn in self.running():
            turn.cancel()
        self._reconciler.budgets.clear()
        for key, record in self._records.items():
            record.cooldown_until, record.status_written_at = None, None
            record.logged = NOTHING_LOGGED  # the log of another replica goes on from here
            self._telemetry.controller.forget(key)

    def until_planned(self, key: Key) -> float:
        """Returns the seconds until the first planned turn of a new HPA."""
        return self._schedule.first(key) - self._clock.monotonic()

    def first_period(self, key: Key) -> float:
        """Returns the seconds after its last turn elsewhere in which the HPA has its first turn here."""
        return self._schedule.deadline_period(key)

    def advance(self, waits: Mapping[Key, float]) -> None:
        """Plans turns after the given number of seconds, unless earlier ones are planned or a turn is under way."""
        for key, seconds in waits.items():
            record = self._records.get(key)
            if record is not None and record.task is None:
                self._queue.add_after(key, seconds)

    async def _dispatch(self) -> None:
        """Starts a task for each queued key, once a worker is free."""
        while True:
            worker = Worker(self._pool)
            try:
                # In this order: while the queue is empty, reconciles that have their metrics need all workers.
                await self._queue.filled()
                await worker.take()
                if not self._queue:  # the HPA was deleted while this waited for a worker
                    worker.give()
                    continue
                key = self._queue.take()
            except ShutDown:
                return
            turn = asyncio.create_task(self._work(key, worker), name=f"reconcile {key}")
            self._records[key].task = turn
            turn.add_done_callback(functools.partial(self._over, key, worker))

    async def _work(self, key: Key, worker: Worker) -> TurnResult:
        try:
            return await self._turn(key, worker)
        except NotLeading:
            return TurnResult.STANDING_BY
        except Edited:
            return TurnResult.EDITED
        except Exception as error:  # noqa: BLE001  # a bug in one HPA's reconcile must not stop the others
            self._report_bug(key, error)
            return TurnResult.BUG

    def _over(self, key: Key, worker: Worker, turn: asyncio.Task[TurnResult]) -> None:
        """Ends a turn. A callback of the task, so that it runs also if the task is cancelled before its first step."""
        result = TurnResult.CANCELLED if turn.cancelled() else turn.result()
        worker.give(finished=result not in (TurnResult.CANCELLED, TurnResult.TIMED_OUT))
        try:
            self._plan_next(key, result)
            if result in (TurnResult.DONE, TurnResult.SCALED):
                if self._bugs:
                    self._bugs.ended(subject=key, hpa=str(key))
                self._timeouts.ended(subject=key)
        except Exception as error:  # noqa: BLE001  # nothing else would plan another turn for this HPA
            self._report_bug(key, error)
            self._queue.add_after(key, self.period)
        self._queue.done(key)

    async def _turn(self, key: Key, worker: Worker) -> TurnResult:
        """Reconciles the HPA of the key, within the deadline."""
        hpa = self._source.get(key)
        if hpa is None:
            return TurnResult.GONE
        if not self._owner.leading:
            self._reconciler.overlap.refresh(hpa)
            return TurnResult.STANDING_BY
        record = self._records[key]
        if record.cooldown_until is not None and self._schedule.cooldown(key) > _NOTHING:
            return TurnResult.COOLING_DOWN
        record.cooldown_until = None
        # Before the deadline starts, because the first turn waits here until the store has been read.
        await self._reconciler.loaded(key)
        if record.planned is None:
            record.planned = self._reconciler.last(key)
        late, timing = self._schedule.begin(key)
        if late is not None:
            self._telemetry.controller.lateness.observe(late)
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._schedule.deadline_period(key) * _DEADLINE):
                permit = Permit(self._owner, key, hpa, self._source.get)
                settlement = await self._reconciler.reconcile(permit, worker, timing, record)
        except TooEarly as early:
            self._log.warning("a turn before its planned time is delayed: the state cannot be saved", hpa=str(key))
            record.cooldown_until = self._clock.monotonic() + early.seconds
            return TurnResult.COOLING_DOWN
        except TimeoutError:
            self._telemetry.controller.reconciled("none", "internal", self._clock.monotonic() - began)
            self._timeouts.occurred(subject=key, hpa=str(key))
            return TurnResult.TIMED_OUT
        return TurnResult.SCALED if settlement.rescaled else TurnResult.DONE

    def _report_bug(self, key: Key, error: Exception) -> None:
        """Counts and logs a bug; called in an `except` block. Each type of exception and line is a cause of its own."""
        self._telemetry.process.bugs.count()
        self._telemetry.controller.reconciled("none", "internal", 0.0)
        with contextlib.suppress(Exception):  # if writing the log is what failed, this would fail as well
            *_, (frame, line) = traceback.walk_tb(error.__traceback__)
            cause = (type(error).__name__, frame.f_code.co_filename, line)
            self._bugs.occurred(subject=key, cause=cause, hpa=str(key))

    def _plan_next(self, key: Key, result: TurnResult) -> None:
        """Plans the next turn of an HPA; no other code does so after a turn.

        As in Kubernetes an error brings the next turn no earlier (rate_limiters.go: FixedItemIntervalRateLimiter). An
        HPA that was edited during its turn has another at once, since nothing was written for it.
        """
        self._records[key].task = None
        if result is TurnResult.GONE or self._source.get(key) is None:
            self._forget(key)
        elif result is TurnResult.COOLING_DOWN:
            self._queue.add_after(key, self._schedule.cooldown(key))
        else:
            self._schedule.plan(key, scaled=result is TurnResult.SCALED)
            if result is TurnResult.EDITED:
                self._queue.add(key)

    def _changed(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        """Registers and queues a new or edited HPA, and drops a deleted one."""
        # A watch that missed the deletion reports the HPA that was created under the same name as an edit.
        if new is None or (old is not None and old.metadata.uid != new.metadata.uid):
            self._forget(key)
        if new is None:
            return
        if old is None or _target(old) != _target(new):
            self._reconciler.overlap.register(new)
        if old is None or not decides_alike(old, new):
            if key in self._records:
                self._records[key].status_written_at = None  # the values of the new spec are written at once
            self._schedule.set_period(key, self._reconciler.sync_period(new))
            self._reconciler.share(new)
            self._queue.add(key)

    def _read_annotations(self) -> None:
        for hpa in self._source.values():
            self._reconciler.share(hpa)
            self._schedule.set_period(hpa.key, self._reconciler.sync_period(hpa))

    def _forget(self, key: Key) -> None:
        """Drops the state of a deleted HPA; called again after a turn that was running at that time."""
        if (record := self._records.get(key)) is not None and record.task is not None:
            # A user who deletes an HPA may scale by hand next; the turn must not overwrite that.
            record.task.cancel()
        self._timeouts.ended(subject=key)
        self._schedule.forget(key)
        self._reconciler.forget(key)

    def _refresh_series(self) -> None:
        self._reconciler.budgets.report(self._telemetry.budgets, leading=self._owner.leading)
        self._telemetry.controller.hpas.set(len(self._source.keys()))
        self._telemetry.controller.shortest_period.set(self._schedule.shortest_period())
        self._telemetry.queue.unfinished.set(self._queue.unfinished_seconds())
        self._telemetry.queue.longest.set(self._queue.longest_running_seconds())


def _target(hpa: HorizontalPodAutoscaler) -> tuple[str, CrossVersionObjectReference]:
    return hpa.metadata.uid, hpa.spec.scale_target_ref

"""The heartbeat: takes keys from the queue, has them reconciled, and plans each one's next turn."""

import asyncio
import contextlib
import functools
from enum import Enum, auto

import structlog

from hpad.clock import Clock
from hpad.control.observe import Observer
from hpad.control.ownership import EVERYTHING, NotOurs, Owner
from hpad.control.reconcile import Reconciler
from hpad.control.slots import Slot
from hpad.control.workqueue import DelayingQueue, ShutDown
from hpad.control.world import HpaSource
from hpad.model.key import Key
from hpad.telemetry import Telemetry

_DEADLINE = 0.95
"""The part of the period that one reconcile may last, so that it can never make the next one late."""


class Ending(Enum):
    """How a turn ended."""

    DONE = auto()
    LATE = auto()
    BUG = auto()
    GONE = auto()
    CUT = auto()
    NOT_OURS = auto()


class Controller:
    """Reconciles every HPA of a source each `period` (seconds), `workers` of them at a time (see `slots`).

    `start` once the source has synced; `stop` waits for the reconciles under way. HPAs that `owner` does not own keep
    their turns, but nothing happens in them.
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
        self._free = asyncio.Semaphore(workers)
        self._owner = owner
        self._rising: set[Key] = set()
        """Those that were scaled up the last time. When there is more to do than can be done they go first: capacity
        that comes late costs more than capacity that leaves late."""
        self._queue = DelayingQueue(clock, telemetry.queue, hurried=self._rising.__contains__, patience=period)
        self._observer = Observer(source, self._queue, clock, period, self._forget)
        self._dispatcher: asyncio.Task[None] | None = None
        self._turns: dict[Key, asyncio.Task[Ending]] = {}
        self._log = structlog.get_logger("hpad.controller")
        telemetry.before_scrape(self._refresh_series)

    def start(self) -> None:
        """Begin with all HPAs of the source."""
        self._dispatcher = asyncio.create_task(self._dispatch(), name="dispatcher")
        self._observer.start(at_once=self._workers)

    def retune(self, *, period: float, workers: int) -> None:
        """Another period and another number of workers from now on; those at work finish as they began."""
        if workers != self._workers:
            self._workers = workers
            self._free = asyncio.Semaphore(workers)
        if period != self._period:
            self._period = self._queue.patience = period
            self._observer.retune(period)

    async def stop(self, seconds: float) -> None:
        """Take nothing new on, and give what is under way that many seconds to end before it is cancelled."""
        self._queue.shutdown()
        if self._dispatcher is None:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._queue.drained()
        except TimeoutError:
            self._log.warning("reconciles under way were cut short", hpas=len(self._turns))
        tasks = (self._dispatcher, *self._turns.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._dispatcher = None

    def reconsider(self) -> None:
        """What `owner` owns has changed: cut short what is not ours any more, and begin with what is."""
        if self._dispatcher is None:
            return
        for key, turn in self._turns.items():
            if not self._owner.owns(key):
                turn.cancel()
        keys = [hpa.metadata.key for hpa in self._source.values()]
        ours = [key for key in keys if self._owner.owns(key)]
        for key in set(keys).difference(ours):
            self._telemetry.forget(key)
        if len(ours) <= self._workers:  # more than that would come all at once: they wait for their moments
            for key in ours:
                self._queue.add(key)

    async def _dispatch(self) -> None:
        """Hand each key, when its turn comes and a slot is free, to a task of its own."""
        while True:
            slot = Slot(self._free)
            await slot.take()
            try:
                key = await self._queue.get()
            except ShutDown:
                return
            turn = asyncio.create_task(self._work(key, slot), name=f"reconcile {key}")
            self._turns[key] = turn
            turn.add_done_callback(functools.partial(self._over, key, slot))

    async def _work(self, key: Key, slot: Slot) -> Ending:
        try:
            return await self._turn(key, slot)
        except NotOurs:
            return Ending.NOT_OURS
        except Exception:  # noqa: BLE001  # a bug in one HPA's reconcile must not stop the others
            self._report_bug(key)
            return Ending.BUG

    def _over(self, key: Key, slot: Slot, turn: asyncio.Task[Ending]) -> None:
        """After every turn, even one that was cancelled before it began."""
        del self._turns[key]
        slot.give()
        self._plan(key, Ending.CUT if turn.cancelled() else turn.result())
        self._queue.done(key)

    async def _turn(self, key: Key, slot: Slot) -> Ending:
        """Reconcile the key's HPA, within the deadline."""
        if not self._owner.owns(key):
            return Ending.NOT_OURS
        late = self._observer.lateness(key)
        if late is not None:
            self._telemetry.late(late)
        hpa = self._source.get(key)
        if hpa is None:
            return Ending.GONE
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._period * _DEADLINE):
                settlement = await self._reconciler.reconcile(hpa, slot)
        except TimeoutError:
            self._telemetry.reconciled("none", "internal", self._clock.monotonic() - began)
            self._log.error("reconcile took too long and was given up", hpa=str(key))
            return Ending.LATE
        (self._rising.add if settlement.action == "scale_up" else self._rising.discard)(key)
        return Ending.DONE

    def _report_bug(self, key: Key) -> None:
        self._telemetry.bug()
        self._telemetry.reconciled("none", "internal", 0.0)
        with contextlib.suppress(Exception):  # standard error may be the thing that fails
            self._log.exception("bug: the reconcile failed in a way nobody expected", hpa=str(key))

    def _plan(self, key: Key, ending: Ending) -> None:
        """The one place that decides when a key has its next turn.

        An error brings it no earlier: the HPA controller has a fixed period, and the next turn is its retry.
        """
        if ending is Ending.GONE or self._source.get(key) is None:
            self._forget(key)
        else:
            self._observer.schedule(key)

    def _forget(self, key: Key) -> None:
        """Leave nothing of an HPA that is gone; called again after a reconcile that was under way at that moment.

        That one is cut short: whoever deletes an HPA may scale by hand next, and must not be overruled.
        """
        turn = self._turns.get(key)
        if turn is not None:
            turn.cancel()
        self._rising.discard(key)
        self._observer.forget(key)
        self._reconciler.forget(key)

    def _refresh_series(self) -> None:
        self._telemetry.hpas(sum(1 for _ in self._source.values()))
        self._telemetry.queue.unfinished.set(self._queue.unfinished_seconds())
        self._telemetry.queue.longest.set(self._queue.longest_running_seconds())

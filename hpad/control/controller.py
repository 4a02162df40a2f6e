"""The heartbeat: takes keys from the queue, has them reconciled, and plans each one's next turn."""

import asyncio
import contextlib
from enum import Enum, auto

import structlog

from hpad.clock import Clock
from hpad.control.observe import Observer
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


class Controller:
    """Reconciles every HPA of a source each `period` (seconds), `workers` of them at a time (see `slots`).

    `start` once the source has synced; `stop` waits for the reconciles under way.
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
    ) -> None:
        self._source = source
        self._reconciler = reconciler
        self._telemetry = telemetry
        self._clock = clock
        self._period = period
        self._workers = workers
        self._queue = DelayingQueue(clock, telemetry.queue)
        self._observer = Observer(source, self._queue, clock, period, self._forget)
        self._dispatcher: asyncio.Task[None] | None = None
        self._turns: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("hpad.controller")
        telemetry.before_scrape(self._refresh_series)

    def start(self) -> None:
        """Begin with all HPAs of the source."""
        self._dispatcher = asyncio.create_task(self._dispatch(), name="dispatcher")
        self._observer.start(at_once=self._workers)

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
        for task in (self._dispatcher, *self._turns):
            task.cancel()
        await asyncio.gather(self._dispatcher, *self._turns, return_exceptions=True)
        self._dispatcher = None

    async def _dispatch(self) -> None:
        """Hand each key, when its turn comes and a slot is free, to a task of its own."""
        free = asyncio.Semaphore(self._workers)
        while True:
            slot = Slot(free)
            await slot.take()
            try:
                key = await self._queue.get()
            except ShutDown:
                return
            turn = asyncio.create_task(self._work(key, slot), name=f"reconcile {key}")
            self._turns.add(turn)
            turn.add_done_callback(self._turns.discard)

    async def _work(self, key: Key, slot: Slot) -> None:
        ending = Ending.BUG
        try:
            ending = await self._turn(key, slot)
        except Exception:  # noqa: BLE001  # a bug in one HPA's reconcile must not stop the others
            self._report_bug(key)
        finally:
            slot.give()
            self._plan(key, ending)
            self._queue.done(key)

    async def _turn(self, key: Key, slot: Slot) -> Ending:
        """Reconcile the key's HPA, within the deadline."""
        late = self._observer.lateness(key)
        if late is not None:
            self._telemetry.late(late)
        hpa = self._source.get(key)
        if hpa is None:
            return Ending.GONE
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._period * _DEADLINE):
                await self._reconciler.reconcile(hpa, slot)
        except TimeoutError:
            self._telemetry.reconciled("none", "internal", self._clock.monotonic() - began)
            self._log.error("reconcile took too long and was given up", hpa=str(key))
            return Ending.LATE
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
        """Leave nothing of an HPA that is gone; called again after a reconcile that was under way at that moment."""
        self._observer.forget(key)
        self._reconciler.forget(key)

    def _refresh_series(self) -> None:
        self._telemetry.hpas(sum(1 for _ in self._source.values()))
        self._telemetry.queue.unfinished.set(self._queue.unfinished_seconds())
        self._telemetry.queue.longest.set(self._queue.longest_running_seconds())

"""Reassigns HPAs between replicas: cancels turns, saves and reads state, and plans the first turns of gained HPAs.

A gained HPA has a cooldown after its last turn on the other replica, because a request of that replica may still be
under way. The stored state has the time of that turn. An HPA without stored state is new and has no cooldown.

No first turn begins within a lease duration after a change of the HPA's status, which is the last write of a turn. This
holds even if the other replica was slow or could not save its state.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

import structlog

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.cluster import HpaSource
from hpad.controller.controller import Controller
from hpad.store.store import Store
from hpad.telemetry import Telemetry

PACE: Final = 0.75
"""Late first turns per planned turn. With lists of metrics and saves of state, requests at most double."""
_PATIENCE: Final = 1.0
"""Seconds that cancelled turns may take to end."""


class Handoff:
    """Reacts to changes of the owned HPAs.

    Call `changed` when the set of owned HPAs has changed, or when HPAs were found that another replica has owned. Await
    `hand_off` before another replica may own the lost ones. `cooldown` (after the start of a turn) and `lease` (after
    the status write that ends it) are in seconds.
    `release` is called with the lost HPAs.
    """

    def __init__(
        self,
        source: HpaSource,
        controller: Controller,
        store: Store,
        telemetry: Telemetry,
        clock: Clock,
        *,
        cooldown: float = 0.0,
        lease: float = 0.0,
        release: Callable[[Collection[Key]], None] | None = None,
    ) -> None:
        self._source = source
        self._controller = controller
        self._store = store
        self._telemetry = telemetry
        self._clock = clock
        self._cooldown = cooldown
        self._lease = lease
        self._release = release
        self._lost: set[Key] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("hpad.shards")
        source.subscribe(self._observe)

    def retune(self, cooldown: float) -> None:
        """Sets the cooldown, in seconds, of HPAs gained from now on."""
        self._cooldown = cooldown

    def changed(self) -> None:
        """Cancels the turns of lost HPAs, and plans the first turns of gained ones once their state has been read."""
        gained, lost = self._controller.reassign()
        self._lost = (self._lost | lost) - gained
        if not gained and not lost:
            return
        if self._release is not None:
            self._release(lost)
        self._telemetry.election.handed_off(len(gained), len(lost))
        self._log.info("HPAs were reassigned", gained=len(gained), lost=len(lost))
        if gained:
            self._store.refresh(gained)
            # The full cooldown, until `_begin` has read the state: a turn that falls due before must not run.
            self._controller.cool_down(dict.fromkeys(gained, self._cooldown))
            task = asyncio.create_task(self._begin(gained), name="first turns")
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def hand_off(self) -> None:
        """Waits until the turns of lost HPAs have ended and their state has been saved, for some seconds at most."""
        lost, self._lost = self._lost, set()
        await self._controller.ended(lost, _PATIENCE)
        self._store.mark_closed(lost)
        await self._store.flush(lost)

    def status_written(self, key: Key, ago: float = 0.0) -> None:
        """Notes that another replica wrote the HPA's status at least `ago` seconds ago (`HpaCache.share`)."""
        self._controller.status_changed(key, self._lease, ago)

    def stop(self) -> None:
        for task in self._beginning:
            task.cancel()

    async def _begin(self, gained: Collection[Key]) -> None:
        """Plans the first turn of each gained HPA: a period after its last turn on any replica.

        An HPA with a longer period of its own has it after the common period, since edits may have been missed.
        Turns that are late already follow each other (`_in_turn`). A few new HPAs have their turns at once; many have
        them at their planned times, as after a start without other replicas (`Schedule.start`).
        """
        await self._source.caught_up(gained)
        for key in gained:
            await self._store.get_loaded(key)
        gained = [key for key in gained if self._controller.cools_down(key)]
        now, period = self._clock.now(), self._controller.period
        due: dict[Key, float] = {}
        for key in gained:
            since_write = self._controller.since_status_change(key)
            cooldown = max(self._left(key, now, self._cooldown), self._lease - since_write)
            self._controller.cool_down({key: cooldown})
            # A replica that crashed may have written statuses after it last saved its state.
            first_period = self._controller.first_period(key)
            due[key] = max(self._left(key, now, first_period), first_period - since_write)
        new = [key for key, seconds in due.items() if seconds == -math.inf]
        if len(new) > self._controller.workers:
            due |= {key: self._controller.until_planned(key) for key in new}
        late = _in_turn({key: seconds for key, seconds in due.items() if seconds <= 0})
        # A few late turns start at once. Many would delay planned turns, and be a burst of requests: after a crash they
        # are all turns of a period.
        hurry = len(late) <= self._controller.workers
        pause = 0.0 if hurry else period / (PACE * max(self._controller.ours, len(late)))
        self._controller.advance({**due, **{key: number * pause for number, key in enumerate(late)}})

    def _observe(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        # The statuses are compared last, which takes longest: most changes are those of this replica itself.
        if old is None or new is None or not self._controller.others_may_write(key):
            return
        if old.status != new.status:
            self.status_written(key)

    def _left(self, key: Key, now: datetime, seconds: float) -> float:
        """Returns the seconds until `seconds` have passed since the last turn of the HPA; negative if they have."""
        at = self._store.get(key).at
        # At most `seconds`: the clock of the other replica may be ahead of this one.
        return -math.inf if at is None else min((at - now).total_seconds() + seconds, seconds)


def _in_turn(overdue: Mapping[Key, float]) -> list[Key]:
    """Returns the HPAs in the order of their first turns, given the seconds until these were due, which are negative.

    The HPAs of a namespace follow each other, so that they share lists of metrics; the namespace with the most overdue
    one is the first.
    """
    worst: dict[str, float] = {}
    for key, seconds in overdue.items():
        worst[key.namespace] = min(seconds, worst.get(key.namespace, seconds))
    return sorted(overdue, key=lambda key: (worst[key.namespace], key.namespace, overdue[key], key))

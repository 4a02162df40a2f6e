"""Reassigns HPAs between replicas: cancels turns, saves and reads state, and plans the first turns of gained HPAs.

A gained HPA has a cooldown after its last turn on the other replica, because a request of that replica may still be
under way. The stored history tells when that turn was. An HPA without stored state is new and has no cooldown.

No first turn begins within a lease duration after a change of the HPA's status, which is the last write of a turn. This
holds even if the other replica was slow or could not save its state.
"""

import asyncio
import math
from collections.abc import Collection
from datetime import datetime
from typing import Final

import structlog

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.cluster import HpaSource
from hpad.controller.controller import Controller
from hpad.store.memory import Store
from hpad.telemetry import Telemetry

SPREAD: Final = 0.25
"""The part of the period over which HPAs have their first turns here that come late already."""
_PATIENCE: Final = 1.0
"""Seconds for turns that were cut short to end."""


class Handoff:
    """Reacts to changes of the owned HPAs.

    Call `changed` when the set of owned HPAs has changed. Await `hand_off` before another replica may own
    the lost ones.
    `cooldown` (after the start of a turn) and `lease` (after the status write that ends it) are in seconds.
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
    ) -> None:
        self._controller = controller
        self._store = store
        self._telemetry = telemetry
        self._clock = clock
        self._cooldown = cooldown
        self._lease = lease
        self._written: dict[Key, float] = {}
        self._lost: set[Key] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._log = structlog.get_logger("hpad.shards")
        if lease:
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
        self._telemetry.election.handed_off(len(gained), len(lost))
        self._log.info("HPAs have changed hands", gained=len(gained), lost=len(lost))
        if gained:
            self._store.refresh(gained)
            self._controller.cool_down(dict.fromkeys(gained, self._cooldown))  # until it is known how long
            task = asyncio.create_task(self._begin(gained), name="first turns")
            self._beginning.add(task)
            task.add_done_callback(self._beginning.discard)

    async def hand_off(self) -> None:
        """Waits until the turns of lost HPAs have ended and their state has been saved, for some seconds at most."""
        lost, self._lost = self._lost, set()
        await self._controller.ended(lost, _PATIENCE)
        self._store.mark_closed(lost)
        await self._store.flush(lost)

    def stop(self) -> None:
        for task in self._beginning:
            task.cancel()

    async def _begin(self, gained: Collection[Key]) -> None:
        """Each a period after its last turn, wherever that was; those for which that has passed one after the other,
        who waits for longest first."""
        for key in gained:
            await self._store.get_loaded(key)
        now, period = self._clock.now(), self._controller.period
        self._controller.cool_down({key: max(self._left(key, now, self._cooldown), self._fresh(key)) for key in gained})
        due = {key: self._left(key, now, period) for key in gained}
        late = sorted((key for key in due if due[key] <= 0), key=lambda key: (due[key], key))
        pause = period * SPREAD / len(late) if len(late) > self._controller.workers else 0.0
        self._controller.advance({**due, **{key: number * pause for number, key in enumerate(late)}})

    def _observe(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if new is None:
            self._written.pop(key, None)
        elif old is not None and old.status != new.status:
            self._written[key] = self._clock.monotonic()
            self._controller.extend_cooldown(key, self._lease)

    def _fresh(self, key: Key) -> float:
        """How much is left of the lease duration after its status was seen to change."""
        return self._written.get(key, -math.inf) + self._lease - self._clock.monotonic()

    def _left(self, key: Key, now: datetime, seconds: float) -> float:
        """The seconds that are left of `seconds` since the last turn of the HPA; negative if they have passed.

        Never more than `seconds`, even if the last turn was dated by a clock that is ahead of this one.
        """
        at = self._store.get(key).at
        return -math.inf if at is None else min((at - now).total_seconds() + seconds, seconds)

"""What follows when this process begins or ceases to lead: cancels turns, reads state, and plans the first turns.

A standby plans the turns of all HPAs as a leader does, so that they keep their places within the period; nothing is
decided in them. After a takeover the turns that were due while no process led are late, after a crash those of a whole
period. They follow each other, so that they are no burst of requests.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.controller.controller import Controller, HpaSource
from hpad.store.store import Store

PACE: Final = 0.75
"""Late first turns per planned turn. With lists of metrics and saves of state, requests at most double."""


class Takeover:
    """Call `changed` when this process begins or ceases to lead. `release` is called with all HPAs when it ceases."""

    def __init__(
        self,
        source: HpaSource,
        controller: Controller,
        store: Store,
        clock: Clock,
        *,
        release: Callable[[Collection[Key]], None],
    ) -> None:
        self._source = source
        self._controller = controller
        self._store = store
        self._clock = clock
        self._release = release
        self._leads = controller.leading
        self._status_seen: dict[Key, float] = {}
        """When another replica was last seen to change the HPA's status, in monotonic seconds."""
        self._beginning: asyncio.Task[None] | None = None
        source.subscribe(self._observe)

    def changed(self) -> None:
        """Cancels all turns, or plans the first ones once the state of all HPAs has been read."""
        leads = self._controller.leading
        if leads == self._leads or not self._controller.started:
            return
        self._leads = leads
        self.stop()
        if leads:
            self._store.refresh()
            self._controller.take_over()
            self._beginning = asyncio.create_task(self._begin(), name="first turns")
        else:
            self._controller.stand_by()
            self._release(self._source.keys())

    def stop(self) -> None:
        """Plans no further first turns."""
        if self._beginning is not None:
            self._beginning.cancel()
            self._beginning = None

    async def _begin(self) -> None:
        """Plans the first turn of each HPA: a period after its last turn on any replica.

        An HPA with a longer period of its own has it after the common period, since edits may have been missed.
        Turns that are late already follow each other (`_in_turn`). A few new HPAs have their turns at once; many have
        them at their planned times, as after a start without other replicas (`Schedule.start`).
        """
        keys = tuple(self._source.keys())
        for key in keys:
            await self._store.get_loaded(key)
        seen, self._status_seen = self._status_seen, {}
        now, monotonic = self._clock.now(), self._clock.monotonic()
        due: dict[Key, float] = {}
        for key in keys:
            period = self._controller.first_period(key)
            # A replica that crashed may have written statuses after it last saved its state.
            since_write = monotonic - seen.get(key, -math.inf)
            due[key] = max(self._left(key, now, period), period - since_write)
        new = [key for key, seconds in due.items() if seconds == -math.inf]
        if len(new) > self._controller.workers:
            due |= {key: self._controller.until_planned(key) for key in new if key in self._source}
        late = _in_turn({key: seconds for key, seconds in due.items() if seconds <= 0})
        # A few late turns start at once. Many would delay planned turns, and be a burst of requests: after a crash they
        # are all turns of a period.
        hurry = len(late) <= self._controller.workers
        pause = 0.0 if hurry else self._controller.period / (PACE * max(len(keys), len(late)))
        self._controller.advance({**due, **{key: number * pause for number, key in enumerate(late)}})

    def _observe(self, key: Key, old: HorizontalPodAutoscaler | None, new: HorizontalPodAutoscaler | None) -> None:
        if self._leads:
            return
        if new is None:
            self._status_seen.pop(key, None)
        elif old is not None and old.status != new.status:
            self._status_seen[key] = self._clock.monotonic()

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

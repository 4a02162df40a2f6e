"""Removes the deletion costs that hpad has set on pods, some time after it set them.

A cost has done its work once the controller of the target has removed pods, which takes seconds. So a mark that stays
the same for `kept` seconds is removed whatever became of its HPA: the scale-down is done, the HPA was deleted, edited
or paused, or the process that set the cost has ended. Each scale-down that needs a mark writes it again, with its time.
A request changes a pod only if its mark is still the one seen.
"""

import asyncio
import functools
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.clock import Clock
from hpad.controller.cluster import Cluster
from hpad.election.owner import NotLeading, Owner, require
from hpad.engine.deletion_costs import MOST
from hpad.kube import errors
from hpad.telemetry.episode import Episode

_PERIODS: Final = 4
_LEAST_SECONDS: Final = 10.0
"""The shortest time that costs are kept: the controller of a target may be busy."""
_MOST_SECONDS: Final = 60.0
_CONCURRENCY: Final = 8
_LOOKS: Final = 4
"""How often marks are looked at while one is kept."""
_LONGEST_WAIT: Final = 16.0
"""The wait before another attempt, as a multiple of `kept`, doubles up to this."""


def kept_seconds(period: float) -> float:
    """Returns the seconds that costs are kept; `period` is the sync period in seconds."""
    return max(_LEAST_SECONDS, min(_MOST_SECONDS, _PERIODS * period))


class _Mark(msgspec.Struct):
    """The mark of a pod: `since` is when it was first seen or tried last (monotonic), `wait` the seconds from then."""

    text: str | None
    since: float
    wait: float
    failed: int = 0


class CostRemoval:
    """Removes costs while `run` runs and this process leads; `kept` is in seconds."""

    def __init__(self, cluster: Cluster, owner: Owner, clock: Clock, *, kept: float = _MOST_SECONDS) -> None:
        self.kept = kept
        self._cluster = cluster
        self._owner = owner
        self._clock = clock
        self._marks: dict[Key, _Mark] = {}
        self._refused: set[str] = set()
        self._log = structlog.get_logger("hpad.reconcile")
        begins = "deletion costs of earlier scale-downs cannot be removed from pods"
        self._failing = Episode(self._log, clock, begins, "deletion costs are removed from pods again")

    async def run(self) -> None:
        """Looks at the marked pods from time to time, until cancelled."""
        while True:
            await self._clock.sleep(self.kept / _LOOKS)
            if self._cluster.pods.marked or self._marks:
                await self.look()

    async def look(self) -> None:
        """Removes the costs that are due, at most `MOST`, and those refused before only after a longer wait."""
        self._note()
        now = self._clock.monotonic()
        due = [key for key, mark in self._marks.items() if now - mark.since >= mark.wait]
        if due and self._owner.leading:
            await self._remove_all(due[:MOST])
        if not any(mark.failed for mark in self._marks.values()):
            self._failing.ended()

    async def _remove_all(self, keys: Sequence[Key]) -> None:
        self._refused.clear()
        waiting, removed = iter(keys), list[Key]()
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENCY):
                group.create_task(self._remove_each(waiting, removed), name="removal of deletion costs")
        if removed:
            self._log.info("deletion costs of earlier scale-downs removed", pods=len(removed))

    def _note(self) -> None:
        """Notes new and changed marks, and drops those of other pods."""
        pods, now, known = self._cluster.pods, self._clock.monotonic(), self._marks
        self._marks = {}
        for key in pods.marked:
            pod = pods.get(key)
            if pod is not None and pod.deletion_cost is not None:
                mark, text = known.get(key), pod.deletion_cost.mark
                self._marks[key] = _Mark(text, now, self.kept) if mark is None or mark.text != text else mark

    async def _remove_each(self, keys: Iterator[Key], removed: list[Key]) -> None:
        for key in keys:
            pod, mark = self._cluster.pods.get(key), self._marks[key]
            if pod is None or pod.deletion_cost is None or pod.deletion_cost.mark != mark.text:
                continue  # gone, or another scale-down needs the cost since this look began
            if await self._remove(pod, mark):
                removed.append(key)
                del self._marks[key]

    async def _remove(self, pod: Pod, mark: _Mark) -> bool:
        """Removes the cost of a pod in one attempt. Returns whether it had one, and has it no more."""
        key = Key(pod.namespace, pod.name)
        mark.since, mark.wait = self._clock.monotonic(), min(2 * mark.wait, _LONGEST_WAIT * self.kept)
        if key.namespace in self._refused:
            return False
        try:
            await self._cluster.remove_deletion_cost(pod, functools.partial(require, self._owner))
        except NotLeading:
            return False
        except errors.ApiError as error:
            if not error.not_found:  # a pod that is gone needs no cost
                self._failed(key, mark, error)
            return False
        return True

    def _failed(self, key: Key, mark: _Mark, error: errors.ApiError) -> None:
        mark.failed += 1
        if error.status in (401, 403):
            self._refused.add(key.namespace)
        if mark.failed > 1:  # at first another replica or a user may have changed the pod a moment ago
            self._failing.occurred(pod=str(key), error=error.message)

"""Asks before a scale-down what each pod is working on, and writes the deletion costs that make idle pods go first.

`hpad.controller.sparing` removes them again. Writes of costs are best effort: they end after `_PATIENCE` of a
period, and the scale is written whatever became of them. Source: KEP-2255.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import Answer, HPAIdentity
from hpad.clock import Clock
from hpad.controller.observe import Turn
from hpad.controller.workers import Worker
from hpad.election.owner import Authority, NotLeading, require
from hpad.engine.deletion_costs import MOST
from hpad.engine.examine import Queries
from hpad.engine.turn import Write
from hpad.kube import errors
from hpad.kube.client import Allowed
from hpad.kube.cluster import Cluster
from hpad.sources.replacement import Sources
from hpad.telemetry.episode import Episode, Episodes

_PATIENCE: Final = 0.15
"""The part of a period that the reading, and then the writing, may take: after slow metrics there is time for both."""
_LONGEST: Final = 5.0
"""The largest number of seconds for each of the two."""
_PAUSE: Final = 0.2
"""The part of the time for writing that a scale-down waits after its costs: the ReplicaSet controller learns of pods
and of counts through two watches, and the count must not be the quicker one."""
_CONCURRENCY: Final = 8
_PERIODS: Final = 4
_LEAST_SECONDS: Final = 10.0
"""The shortest time that costs are kept: the controller of a target may be busy."""
_MOST_SECONDS: Final = 60.0
_LOOKS: Final = 4
"""How often marks are looked at while one is kept."""
_LONGEST_WAIT: Final = 16.0
"""The wait before another attempt, as a multiple of `kept`, doubles up to this."""

Answers = Sequence[Answer]
_Write = Callable[[], Awaitable[None]]


class Sparing:
    """Reads the work of pods, and writes their deletion costs."""

    def __init__(self, cluster: Cluster, metrics: Sources, clock: Clock) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock
        log = structlog.get_logger("hpad.reconcile")
        begins = "deletion costs of pods cannot be written: a scale-down removes pods in any order"
        self._failing = Episodes(log, clock, begins, "deletion costs of pods are written again")

    def forget(self, key: Key) -> None:
        """Drops what is known of a deleted HPA."""
        self._failing.forget(key)

    async def ask(self, queries: Queries, turn: Turn, worker: Worker) -> Answers:
        """Returns the answers about the work of each pod."""
        if turn.own_pods is not None and turn.own_pods.error is not None:  # the pods themselves are not known
            return [turn.own_pods.error] * len(queries)
        identity, period = HPAIdentity.of(turn.view.hpa), turn.record.period
        asked = self._metrics.ask(queries, deadline=_seconds(turn), identity=identity, period=period)
        if not asked.done:
            async with worker.released():
                await asked.wait()
        return asked.answers()

    async def mark(self, write: Write, turn: Turn, worker: Worker) -> str | None:
        """Writes the costs of a scale-down, and removes those of earlier ones. Returns the error, None without one.

        Raises NotLeading or Edited if the permit ends.
        """
        spared = write.decision.spared
        planned = {} if spared is None else dict(spared.costs)
        pods, allowed = [pod for pod in write.view.pods if pod.is_active], turn.permit.require
        set_cost = self._cluster.set_deletion_cost
        writes: list[_Write] = [
            functools.partial(set_cost, pod, planned[pod.name], allowed) for pod in pods if pod.name in planned
        ]
        left = [pod for pod in pods if pod.is_marked and pod.name not in planned]
        writes += [functools.partial(self._remove, pod, allowed) for pod in left]
        if not writes:
            return None
        async with worker.released():
            error = await self._write(writes[:MOST], _seconds(turn))
            if planned and error is None:
                await self._clock.sleep(_PAUSE * _seconds(turn))
        return self._told(turn.permit.key, error)

    async def _remove(self, pod: Pod, allowed: Allowed) -> None:
        """Removes the cost of an earlier scale-down, unless it was changed a moment ago."""
        try:
            await self._cluster.remove_deletion_cost(pod, allowed)
        except errors.ApiError as error:
            if not error.test_failed:
                raise

    def _told(self, key: Key, error: str | None) -> str | None:
        if error is None:
            self._failing.ended(subject=key, hpa=str(key))
        else:
            self._failing.occurred(subject=key, cause=error, hpa=str(key), error=error)
        return error

    async def _write(self, writes: Sequence[_Write], seconds: float) -> str | None:
        """Writes a few at the same time, until one is refused for good. Returns the last error."""
        waiting, found = iter(writes), list[errors.ApiError]()

        async def run() -> None:
            for write in waiting:
                try:
                    await write()
                except errors.ApiError as error:
                    if not error.not_found:  # a pod that is gone needs no cost
                        found.append(error)
                if any(error.status in (401, 403) for error in found):
                    return

        tasks = [asyncio.create_task(run(), name="deletion costs") for _ in range(_CONCURRENCY)]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*tasks)
        except TimeoutError:
            return f"the API server did not take all of them within {seconds:g} s"
        finally:
            for task in tasks:
                task.cancel()
        return found[-1].message if found else None


def _seconds(turn: Turn) -> float:
    return min(_LONGEST, turn.timing.period * _PATIENCE)


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
    """Removes costs while `run` runs and this process leads; `kept` is in seconds.

    A cost has done its work once the controller of the target has removed pods, which takes seconds. So a mark that
    stays the same for `kept` seconds is removed whatever became of its HPA: the scale-down is done, the HPA was
    deleted, edited or paused, or the process that set the cost has ended. Each scale-down that needs a mark writes it
    again, with its time. A request changes a pod only if its mark is still the one seen.
    """

    def __init__(self, cluster: Cluster, owner: Authority, clock: Clock, *, kept: float = _MOST_SECONDS) -> None:
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

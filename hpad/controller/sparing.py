"""Asks before a scale-down what each pod is working on, and writes the deletion costs that make idle pods go first.

`hpad.controller.cost_removal` removes them again. Writes of costs are best effort: they end after `_PATIENCE` of a
period, and the scale is written whatever became of them. Source: KEP-2255.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, HPAIdentity, Sample
from hpad.clock import Clock
from hpad.controller.cluster import Cluster, Metrics
from hpad.controller.observe import Turn
from hpad.controller.workers import Worker
from hpad.engine import spare
from hpad.engine.deletion_costs import MOST
from hpad.engine.examine import Queries
from hpad.engine.turn import Write
from hpad.kube import errors
from hpad.kube.client import Allowed
from hpad.telemetry.episode import Episodes

_PATIENCE: Final = 0.15
"""The part of a period that the reading, and then the writing, may take: after slow metrics there is time for both."""
_LONGEST: Final = 5.0
"""The largest number of seconds for each of the two."""
_CONCURRENCY: Final = 8

Answers = Sequence[Sample | AdapterError]
_Write = Callable[[], Awaitable[None]]


class Sparing:
    """Reads the work of pods, and writes their deletion costs."""

    def __init__(self, cluster: Cluster, metrics: Metrics, clock: Clock) -> None:
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
        pods, allowed = spare.active(write.view.pods), turn.permit.require
        set_cost = self._cluster.set_deletion_cost
        writes: list[_Write] = [
            functools.partial(set_cost, pod, planned[pod.name], allowed) for pod in pods if pod.name in planned
        ]
        left = [pod for pod in pods if pod.is_marked and pod.name not in planned]
        writes += [functools.partial(self._remove, pod, allowed) for pod in left]
        return await self._written(turn, writes[:MOST], worker) if writes else None

    async def _remove(self, pod: Pod, allowed: Allowed) -> None:
        """Removes the cost of an earlier scale-down, unless it was changed a moment ago."""
        try:
            await self._cluster.remove_deletion_cost(pod, allowed)
        except errors.ApiError as error:
            if not error.test_failed:
                raise

    async def _written(self, turn: Turn, writes: Sequence[_Write], worker: Worker) -> str | None:
        key = turn.permit.key
        async with worker.released():
            error = await self._write(writes, _seconds(turn))
        if error is None:
            self._failing.ended(subject=key, hpa=str(key))
            return None
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
    return min(_LONGEST, turn.timing.plan.period * _PATIENCE)

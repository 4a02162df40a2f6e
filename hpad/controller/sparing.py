"""Asks before a scale-down what each pod is working on, and writes the deletion costs that make idle pods go first.

A cost is written with an annotation of hpad's own, which holds the cost before. Costs of pods that stay are removed in
the first turn that sees the scale-down done, or a minute later, by the process that owns the HPA then. So a crash or
another leader leaves none. Writes of costs are best effort: they end after `_PATIENCE` of a period, and the scale is
written whatever became of them. Source: KEP-2255.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog

from hpad.api.metadata import Key
from hpad.api.pod import COST_BEFORE, DELETION_COST, UNSET, Pod
from hpad.api.sample import AdapterError, HPAIdentity, Sample
from hpad.clock import Clock
from hpad.controller.cluster import Annotations, Cluster, Metrics
from hpad.controller.observe import Turn
from hpad.controller.workers import Worker
from hpad.engine import spare
from hpad.engine.decide import Decision
from hpad.engine.deletion_costs import MOST
from hpad.kube import errors
from hpad.telemetry.episode import Episodes

_PATIENCE: Final = 0.15
"""The part of a period that the reading, and then the writing, may take: after slow metrics there is time for both."""
_LONGEST: Final = 5.0
"""The largest number of seconds for each of the two."""
_CONCURRENCY: Final = 8
_LEFT_OVER_SECONDS: Final = 60.0
"""After this time costs are removed, even if the target still has more pods than it shall have."""

Answers = Sequence[Sample | AdapterError]


class _Write(NamedTuple):
    """One write: a pod, and its annotations, where None removes one."""

    pod: Key
    annotations: Annotations


class Sparing:
    """Reads the work of pods, and writes and removes their deletion costs."""

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

    async def spared(self, turn: Turn, decision: Decision, worker: Worker) -> tuple[Decision, Answers | None]:
        """Returns the decision that spares busy pods, and the answers about their work; None where none was asked."""
        view = turn.view
        if not spare.applies(view, decision):
            return decision, None
        identity, period = HPAIdentity.of(view.hpa), turn.record.period
        queries = spare.queries(view)
        if turn.own_pods is not None and turn.own_pods.error is not None:  # the pods themselves are not known
            answers: Answers = [turn.own_pods.error] * len(queries)
            return spare.spare(view, decision, answers), answers
        asked = self._metrics.ask(queries, deadline=_seconds(turn), identity=identity, period=period)
        if not asked.done:
            async with worker.released():
                await asked.wait()
        answers = asked.answers()
        return spare.spare(view, decision, answers), answers

    async def mark(self, turn: Turn, decision: Decision, worker: Worker) -> str | None:
        """Writes the costs of a scale-down, and removes those of earlier ones. Returns the error, None without one.

        Raises NotOwned or Edited if the permit ends.
        """
        planned = {} if decision.spared is None else dict(decision.spared.costs)
        pods = spare.active(turn.view.pods)
        writes = [_marking(pod, planned[pod.name]) for pod in pods if pod.name in planned]
        writes += [_restoring(pod) for pod in pods if _is_marked(pod) and pod.name not in planned]
        if not writes:
            return None
        turn.record.costs_since = self._clock.monotonic()
        return await self._written(turn, writes, worker)

    async def restore(self, turn: Turn, worker: Worker) -> None:
        """Removes the costs of an earlier scale-down, if it is done or long ago. Raises as `mark` does."""
        view, record, now = turn.view, turn.record, self._clock.monotonic()
        pods = spare.active(view.pods)
        marked = [pod for pod in pods if _is_marked(pod)]
        if not marked:
            record.costs_since = None
            return
        if record.costs_since is None:  # those of an earlier process
            record.costs_since = now
        if len(pods) > view.target_replicas and now - record.costs_since < _LEFT_OVER_SECONDS:
            return
        await self._written(turn, [_restoring(pod) for pod in marked[:MOST]], worker)

    async def _written(self, turn: Turn, writes: Iterable[_Write], worker: Worker) -> str | None:
        key = turn.view.hpa.metadata.key
        async with worker.released():
            error = await self._write(writes, turn.permit.require, _seconds(turn))
        if error is None:
            self._failing.ended(subject=key, hpa=str(key))
            return None
        self._failing.occurred(subject=key, cause=error, hpa=str(key), error=error)
        return error

    async def _write(self, writes: Iterable[_Write], allowed: Callable[[], None], seconds: float) -> str | None:
        """Writes a few at the same time, until one is refused for good. Returns the last error."""
        waiting, found = iter(writes), list[errors.ApiError]()

        async def run() -> None:
            for write in waiting:
                try:
                    await self._cluster.annotate_pod(write.pod, write.annotations, allowed)
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


def _is_marked(pod: Pod) -> bool:
    return pod.deletion_cost is not None and pod.deletion_cost.before is not None


def _marking(pod: Pod, cost: int) -> _Write:
    users = None if pod.deletion_cost is None else pod.deletion_cost.users
    return _Write(
        Key(pod.namespace, pod.name), {DELETION_COST: str(cost), COST_BEFORE: UNSET if users is None else users}
    )


def _restoring(pod: Pod) -> _Write:
    users = None if pod.deletion_cost is None else pod.deletion_cost.users
    return _Write(Key(pod.namespace, pod.name), {DELETION_COST: users, COST_BEFORE: None})

"""Runs the engine against a workload: one turn per period, as the daemon does with a real one.

Every write of the scale succeeds. History and status pass from turn to turn.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, Scale, ScaleSpec, ScaleStatus
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Query, Sample
from hpad.engine.annotations import PLAIN
from hpad.engine.history import EMPTY
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import Tunables, View

LABELS: Final = {"app": "simulated"}
"""The labels of the pods of every workload."""
SELECTOR: Final = "app=simulated"
_BEYOND: Final = timedelta(microseconds=1)
"""Added to each turn, so that an event exactly one window old has expired, as in the daemon (`controller.planning`)."""


class Workload(Protocol):
    """A model of what the HPA scales. Time only goes forward.

    `replicas` is the count that was written last; `ready` the number of pods that work.
    """

    @property
    def replicas(self) -> int: ...
    @property
    def ready(self) -> int: ...

    def advance(self, now: datetime) -> None:
        """Moves the model to this time."""
        ...

    def pods(self) -> Sequence[Pod]:
        """Returns the pods with the labels `LABELS`, as a watch shows them; the same object while nothing changes."""
        ...

    def answer(self, queries: Sequence[Query | AdapterError]) -> Sequence[Sample | AdapterError]:
        """Returns one answer per query, in order."""
        ...

    def scale(self, replicas: int) -> None:
        """Sets the count, as a write of the scale does."""
        ...


class Simulated(NamedTuple):
    """One simulated reconcile. `ready` is the number of pods that work before it, `after` the count that it left."""

    done: Reconcile
    ready: int
    after: int


def simulate(
    hpa: HorizontalPodAutoscaler,
    workload: Workload,
    *,
    start: datetime,
    length: timedelta,
    period: timedelta,
    tunables: Tunables,
) -> Iterator[Simulated]:
    """Yields one turn per period, from `start` on. The annotations of the HPA under `hpad.io/` apply."""
    own, history, began = PLAIN.of(hpa), EMPTY, start
    tunables = tunables.of_hpa(own.controls)
    scale = Scale(
        metadata={"name": hpa.spec.scale_target_ref.name},
        spec=ScaleSpec(workload.replicas),
        status=ScaleStatus(workload.replicas, SELECTOR),
    )
    step = period + _BEYOND
    for index in range(max(0, length // period)):
        now = began + index * step
        workload.advance(now)
        pods = workload.pods()
        if scale.spec.replicas != workload.replicas or scale.status.replicas != len(pods):
            scale = msgspec.structs.replace(
                scale, spec=ScaleSpec(workload.replicas), status=ScaleStatus(len(pods), SELECTOR)
            )
        view = View(
            hpa=hpa,
            now=now,
            tunables=tunables,
            history=history,
            scale=scale,
            pods=pods,
            fallback_policies=own.policies,
            annotation_error=own.error,
            annotation_reason=own.reason,
            controls=own.controls,
        )
        ready = workload.ready
        done = run(view, workload.answer)
        if done.outcome is not None and done.outcome.written:
            workload.scale(done.decision.desired)
        history = done.settlement.history
        if done.settlement.status_changed:
            hpa = msgspec.structs.replace(hpa, status=done.settlement.status)
        yield Simulated(done, ready, workload.replicas)

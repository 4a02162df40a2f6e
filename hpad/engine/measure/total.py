"""Metrics read as a whole: Object and External."""

from collections.abc import Sequence

from hpad.api.pod import Pod
from hpad.api.quantity import MAX_INT64, ceil_int64, quotient
from hpad.api.sample import ExternalSample, ObjectSample
from hpad.engine.measure.usage import Usage
from hpad.model.goal import AVERAGE_VALUE, Goal
from hpad.model.tunables import Gates


def total(
    goal: Goal, sample: ObjectSample | ExternalSample, pods: Sequence[Pod], status_replicas: int, gates: Gates
) -> Usage:
    """Usage of a whole, shared by the replicas that the target reports (AverageValue) or held to the goal (Value)."""
    average = goal.kind == AVERAGE_VALUE
    used = min(MAX_INT64, sample.value) if isinstance(sample, ObjectSample) else _sum(sample.values, average, gates)
    if not average:
        ready = sum(1 for pod in pods if pod.phase == "Running" and pod.ready == "True") if pods else None
        return Usage(ratio=quotient(float(used), float(goal.amount)), value=used, pods=ready)
    return Usage(
        ratio=quotient(float(used), float(goal.amount) * float(status_replicas)),
        value=_share(sample, used, status_replicas, gates),
        pods=status_replicas,
        total=used,
    )


def _sum(values: Sequence[int], average: bool, gates: Gates) -> int:
    """The sum of all series, at most what an int64 holds.

    The original takes a negative sum for an overflow wherever the goal is an average, and so scales to max.
    """
    used = 0
    for value in values:
        used += value
        if used > MAX_INT64 or (used < 0 and average and not gates.HPANegativeExternalSum):
            return MAX_INT64
    return used


def _share(sample: ObjectSample | ExternalSample, used: int, replicas: int, gates: Gates) -> int | None:
    """What is used for each replica, rounded up. With none there is no such number, but the original writes one.

    A sum of series that an int64 cannot hold is reported as it is: nobody knows what a share of it would be.
    """
    if replicas == 0 and gates.HPAZeroStatusReplicas:
        return None
    if isinstance(sample, ExternalSample) and float(used) >= float(MAX_INT64):
        return MAX_INT64
    return ceil_int64(quotient(float(used), float(replicas)))

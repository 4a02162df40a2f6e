"""What a sample says about a goal: how much is used, by how many pods, and the ratio of the two.

One sample against one goal.

Metrics read as a whole: Object and External.
"""

from collections.abc import Sequence
from datetime import datetime

from hpad.api.pod import Pod
from hpad.api.quantity import MAX_INT64, ceil_int64, quotient
from hpad.api.sample import EXTERNAL, ExternalSample, ObjectSample, PodSample, Sample
from hpad.engine.pods import Unmeasurable, Usage, per_pod
from hpad.engine.spec import AVERAGE_VALUE, CompiledMetric
from hpad.engine.view import Gates, Tunables


def total(
    metric: CompiledMetric,
    sample: ObjectSample | ExternalSample,
    pods: Sequence[Pod],
    status_replicas: int,
    gates: Gates,
) -> Usage:
    """Usage of a whole, shared by the replicas that the target reports (AverageValue) or held to the goal (Value)."""
    average = metric.kind == AVERAGE_VALUE
    used = min(MAX_INT64, sample.value) if isinstance(sample, ObjectSample) else _sum(sample.values, average, gates)
    if not average:
        ready = sum(1 for pod in pods if pod.phase == "Running" and pod.ready == "True") if pods else None
        return Usage(ratio=quotient(float(used), float(metric.amount)), value=used, pods=ready)
    return Usage(
        ratio=quotient(float(used), float(metric.amount) * float(status_replicas)),
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


__all__ = ["Unmeasurable", "Usage", "measure"]


def measure(
    metric: CompiledMetric, sample: Sample, pods: Sequence[Pod], status_replicas: int, now: datetime, tunables: Tunables
) -> Usage:
    """Usage against the goal; raises Unmeasurable where the sample says nothing about it."""
    if metric.of_pods:
        if not isinstance(sample, PodSample):
            raise _misfit(metric, sample, PodSample)
        return per_pod(metric, sample, pods, now, tunables)
    wanted = ExternalSample if metric.type == EXTERNAL else ObjectSample
    if isinstance(sample, PodSample) or not isinstance(sample, wanted):
        raise _misfit(metric, sample, wanted)
    return total(metric, sample, pods, status_replicas, tunables.gates)


def _misfit(metric: CompiledMetric, sample: Sample, wanted: type) -> Unmeasurable:
    got = type(sample).__name__
    return Unmeasurable(f"the metric source answered a {metric.type} metric with {got}; it takes {wanted.__name__}")

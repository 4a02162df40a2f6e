"""Second stage: measures the usage of one metric from a sample.

Metrics per pod are in `hpad.engine.pods`; Object and External metrics, with one value for the whole target, are here.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from hpad.api.pod import Pod
from hpad.api.quantity import MAX_INT64, ceil_int64, quotient
from hpad.api.sample import EXTERNAL, OBJECT, ExternalSample, ObjectSample, PodSample, Sample
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
    """Returns the usage of an Object or External metric: per reported replica (AverageValue) or in total (Value).

    Source: Kubernetes 1.36, replica_calculator.go: GetObjectMetricReplicas, GetObjectPerPodMetricReplicas,
    GetExternalMetricReplicas, GetExternalPerPodMetricReplicas.
    """
    average = metric.kind == AVERAGE_VALUE
    used = min(MAX_INT64, sample.value) if isinstance(sample, ObjectSample) else _sum(sample.values, average, gates)
    served = any(map(_is_ready, pods))
    unserved = used > 0 and bool(pods) and not served
    note = sample.note if isinstance(sample, ExternalSample) and served else ""
    if not average:
        ready = sum(map(_is_ready, pods)) if pods else None
        ratio = quotient(float(used), float(metric.amount))
        return Usage(ratio=ratio, value=used, pods=ready, unserved=unserved, note=note)
    return Usage(
        ratio=quotient(float(used), float(metric.amount) * float(status_replicas)),
        value=_share(sample, used, status_replicas, gates),
        pods=status_replicas,
        total=used,
        unserved=unserved,
        note=note,
    )


def _is_ready(pod: Pod) -> bool:
    return pod.phase == "Running" and pod.ready == "True"


def _sum(values: Sequence[int], average: bool, gates: Gates) -> int:
    """Returns the sum of all series, at most the largest int64.

    Kubernetes treats a negative sum of an AverageValue metric as an overflow and scales to the maximum; the gate
    HPANegativeExternalSum prevents this.
    """
    used = 0
    for value in values:
        used += value
        # At once and not after the loop: a negative value that follows must not hide the overflow.
        if used > MAX_INT64 or (used < 0 and average and not gates.HPANegativeExternalSum):
            return MAX_INT64
    return used


def _share(sample: ObjectSample | ExternalSample, used: int, replicas: int, gates: Gates) -> int | None:
    """Returns the usage per replica, rounded up; None without replicas (Kubernetes divides by zero there).

    A sum of series beyond an int64 is reported undivided.
    """
    if replicas == 0 and gates.HPAZeroStatusReplicas:
        return None
    if isinstance(sample, ExternalSample) and float(used) >= float(MAX_INT64):
        return MAX_INT64
    return ceil_int64(quotient(float(used), float(replicas)))


_SAMPLES: Final[dict[str, type]] = {OBJECT: ObjectSample, EXTERNAL: ExternalSample}
"""The samples of the metrics that have one value for the whole target."""


def sample_type(metric: CompiledMetric) -> type:
    """Returns the type of the samples of a metric."""
    return _SAMPLES.get(metric.type, PodSample)


def measure(
    metric: CompiledMetric, sample: Sample, pods: Sequence[Pod], status_replicas: int, now: datetime, tunables: Tunables
) -> Usage:
    """Returns the usage of one metric. Raises Unmeasurable where the sample does not fit or no pod counts."""
    expected = sample_type(metric)
    if not isinstance(sample, expected):
        got, needed = type(sample).__name__, expected.__name__
        raise Unmeasurable(f"the metric source answered a {metric.type} metric with {got}; it takes {needed}")
    if isinstance(sample, PodSample):
        return per_pod(metric, sample, pods, now, tunables)
    return total(metric, sample, pods, status_replicas, tunables.gates)

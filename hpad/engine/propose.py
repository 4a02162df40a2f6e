"""Stages measure and propose: measures the usage of one metric, and proposes a replica count from it.

Metrics per pod are in `hpad.engine.pods`; Object and External metrics, with one value for the whole target, are here.

Source: Kubernetes 1.36, replica_calculator.go: GetResourceReplicas, GetMetricReplicas, GetObjectMetricReplicas,
GetExternalMetricReplicas and their PerPod variants.
"""

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final, TypeVar

import msgspec

from hpad.api import amounts
from hpad.api.hpa import (
    ContainerResourceMetricStatus,
    ExternalMetricStatus,
    MetricStatus,
    MetricValueStatus,
    ObjectMetricStatus,
    PodsMetricStatus,
    ResourceMetricStatus,
)
from hpad.api.pod import Pod
from hpad.api.quantity import MAX_INT32, MAX_INT64, Quantity, ceil_int32, ceil_int64, quotient
from hpad.api.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    Answer,
    ExternalSample,
    ObjectSample,
    PodSample,
    Sample,
)
from hpad.engine import controls
from hpad.engine.pods import Unmeasurable, Usage, per_pod
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, VALUE, CompiledMetric
from hpad.engine.view import Gates, Tunables, View

T = TypeVar("T", bound=Sample)


class Proposal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The replica count that one metric proposes, or the error.

    `failure` is the error as it appears in the error of the reconcile; `cause` is the error without the prefixes of
    Kubernetes. `no_sample`: the metric source returned an error. `fallback` describes the fallback of a failed metric
    ("": none): it provides `replicas`, or leaves the metric out where `ignored`. `tolerated`: the ratio is within the
    tolerance. `measured` is the count before an activation threshold changed it to `replicas` (None: unchanged), and
    `threshold` that threshold in milli-units.
    """

    metric: CompiledMetric
    replicas: int
    usage: Usage | None = None
    error: str | None = None
    failure: str = ""
    cause: str = ""
    no_sample: bool = False
    fallback: str = ""
    ignored: bool = False
    tolerated: bool = False
    measured: int | None = None
    threshold: int = 0

    @property
    def proposed(self) -> int | None:
        """The count that the metric asks for, or its fallback; None where there is none."""
        return None if self.ignored or (self.error is not None and not self.fallback) else self.replicas

    @property
    def without_ready_pods(self) -> bool:
        """Whether the count stays because no pod is ready (HPANoReadyPodsKept)."""
        usage = self.usage
        unready = self.metric.kind == VALUE and usage is not None and usage.pods == 0
        return unready and not self.tolerated and self.replicas > 0

    @property
    def current(self) -> str:
        """The usage for people: "305%", "80" (the total where replicas share it), or "<unknown>"."""
        usage, metric = self.usage, self.metric
        if usage is None:
            return "<unknown>"
        if metric.kind == UTILIZATION:
            return f"{usage.percent}%"
        if usage.total is not None:
            return amounts.rounded(usage.total, 0, metric.unit)
        return "<unknown>" if usage.value is None else amounts.rounded(usage.value, metric.amount, metric.unit)

    @property
    def share(self) -> str:
        """The part of a total that is one replica's, for people; "" where replicas share none."""
        usage, metric = self.usage, self.metric
        if usage is None or usage.total is None or not usage.pods:
            return ""
        return amounts.rounded(Fraction(usage.total, usage.pods), metric.amount, metric.unit)

    @property
    def metric_target(self) -> str:
        """The metric target for people: "50%", "15"."""
        metric = self.metric
        return f"{metric.amount}%" if metric.kind == UTILIZATION else amounts.exact(metric.amount, metric.unit)

    @property
    def reading(self) -> str:
        """Usage and metric target: "305% / 50%", or "80 / 15 over 3 replicas" (Value).

        For AverageValue: "26.7 / 15 per replica, 80 in total".
        """
        usage, metric, share = self.usage, self.metric, self.share
        if usage is not None and usage.total is not None:
            if not share:
                return f"{self.current} in total / {self.metric_target} per replica"
            whole = "" if usage.pods == 1 else f", {self.current} in total"
            return f"{share} / {self.metric_target} per replica{whole}"
        text = f"{self.current} / {self.metric_target}"
        return text if usage is None or usage.pods is None or metric.of_pods else f"{text} over {usage.pods} replicas"

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.metric.label} {self.fallback or 'is invalid'}: {self.cause}"
        return f"{self.metric.label} wants {self.replicas} ({self.reading})"


class Tolerances(msgspec.Struct, frozen=True, gc=False):
    """How far the ratio may be below and above 1 without a change of the count (KEP-4951)."""

    down: float
    up: float

    def allow(self, ratio: float) -> bool:
        """Whether the ratio is within the tolerance; False for NaN."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


_NO_TOLERANCE: Final = Tolerances(0.0, 0.0)


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
    served = any(map(is_ready, pods))
    unserved = used > 0 and bool(pods) and not served
    note = sample.note if isinstance(sample, ExternalSample) and served else ""
    if not average:
        ready = sum(map(is_ready, pods)) if pods else None
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


def is_ready(pod: Pod) -> bool:
    """Whether a metric of the whole target counts the pod as one that serves."""
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


def propose(view: View, metric: CompiledMetric, answer: Answer) -> Proposal:
    """Returns the proposal of one metric. Never raises: errors are part of the proposal."""
    if metric.error is not None:
        return _failed(metric, "", metric.error)
    if isinstance(answer, AdapterError):
        return _failed(metric, metric.wording.fetch, answer.message, no_sample=True)
    scale = view.scale
    current, status = (0, 0) if scale is None else (scale.spec.replicas, scale.status.replicas)
    try:
        pods, answer = about(view, metric, answer)
        usage = measure(metric, answer, pods, status, view.now, view.tunables)
        if metric.kind == VALUE:
            usage = _of_value(view, usage, len(pods))
        allowed = tolerances(view)
        replicas = _replicas(metric, usage, current, status, allowed, view.tunables.gates)
    except Unmeasurable as error:
        return _failed(metric, metric.wording.measure, str(error))
    if view.tunables.gates.HPANegativeExternalSum:
        replicas = max(0, replicas)
    from_zero = metric.kind == VALUE and current == 0  # then the ratio decides without the tolerance
    tolerated = not from_zero and allowed.allow(usage.ratio if usage.cautious is None else usage.cautious)
    return Proposal(metric=metric, replicas=replicas, usage=usage, tolerated=tolerated)


def _of_value(view: View, usage: Usage, chosen: int) -> Usage:
    """Returns the usage of a Value metric over at most as many ready pods as there are replicas.

    Its note names pods that do not count; `chosen` is the number of those that the metric is about.
    """
    ready, current, note = usage.pods or 0, view.replicas, usage.note
    if chosen < len(view.pods):
        name = controls.written(controls.PODS, view.hpa.kind)
        note = note or f"only {chosen} of {len(view.pods)} pods count ({name})"
    if view.tunables.gates.HPASurplusPodsIgnored and 0 < current < ready:
        surplus = f"{ready} pods are ready: those beyond the {current} replicas do not count"
        return msgspec.structs.replace(usage, pods=current, note=note or surplus)
    return usage if note == usage.note else msgspec.structs.replace(usage, note=note)


def about(view: View, metric: CompiledMetric, answer: T) -> tuple[Sequence[Pod], T]:
    """Returns the pods that a metric is about, and its answer without the values of other pods.

    Raises Unmeasurable where `hpad.io/pods` leaves no pod.
    """
    pods, selector = view.pods_of(metric), view.chosen_by(metric)
    if selector is None:
        return pods, answer
    if not pods and view.pods and (metric.of_pods or metric.kind == VALUE):  # a Value counts the ready pods
        name = controls.written(controls.PODS, view.hpa.kind)
        raise Unmeasurable(f"of the {len(view.pods)} pods of the target none has the labels {selector} ({name})")
    if not isinstance(answer, PodSample):
        return pods, answer
    names = {pod.name for pod in pods}
    values = {name: value for name, value in answer.values.items() if name in names}
    return pods, msgspec.structs.replace(answer, values=values)


def untolerated(view: View, proposal: Proposal) -> int:
    """Returns the count that the metric would propose if the tolerance were zero."""
    usage, scale = proposal.usage, view.scale
    # An activation threshold decides after the tolerance.
    if not proposal.tolerated or usage is None or scale is None or proposal.measured is not None:
        return proposal.replicas
    current, status = scale.spec.replicas, scale.status.replicas
    try:
        replicas = _replicas(proposal.metric, usage, current, status, _NO_TOLERANCE, view.tunables.gates)
    except Unmeasurable:  # only the tolerance made up for the missing pods
        return proposal.replicas
    return max(0, replicas)


def tolerances(view: View) -> Tolerances:
    """Returns the tolerances of spec.behavior, of the HPA's annotations, or of the settings.

    Source: Kubernetes 1.36, horizontal.go: tolerancesForHpa.
    """
    settings, own, behavior = view.tunables.tolerance, view.controls, view.spec.behavior
    down = settings if own.tolerance_down is None else own.tolerance_down
    up = settings if own.tolerance_up is None else own.tolerance_up
    if behavior is None or not view.tunables.gates.HPAConfigurableTolerance:
        return Tolerances(down, up)
    of_down, of_up = behavior.down.tolerance, behavior.up.tolerance
    return Tolerances(down if of_down is None else of_down, up if of_up is None else of_up)


def _failed(metric: CompiledMetric, before: str, cause: str, *, no_sample: bool = False) -> Proposal:
    error = before + cause
    return Proposal(
        metric=metric, replicas=0, error=error, failure=metric.wording.outer + error, cause=cause, no_sample=no_sample
    )


def _replicas(
    metric: CompiledMetric, usage: Usage, current: int, status: int, allowed: Tolerances, gates: Gates
) -> int:
    if metric.of_pods:
        return by_pods(usage, current, allowed, huge=gates.HPAHugeProposals)
    if metric.kind == AVERAGE_VALUE:
        kept, huge = current if gates.HPASpecReplicasKept else status, gates.HPAHugeProposals or metric.type == EXTERNAL
        return by_share(usage, metric.amount, kept, allowed, huge=huge)
    return by_ratio(usage, current, allowed, keeps=gates.HPANoReadyPodsKept, huge=gates.HPAHugeProposals)


def by_pods(usage: Usage, current: int, allowed: Tolerances, *, huge: bool) -> int:
    """Returns pods times ratio. With unready or missing pods counted in, the count never changes against `ratio`.

    `huge`: a count beyond an int32 is the largest int32 (HPAHugeProposals), else the smallest.

    Source: Kubernetes 1.36, replica_calculator.go: GetResourceReplicas and calcPlainMetricReplicas.
    """
    ratio, cautious, pods = usage.ratio, usage.cautious, usage.pods or 0
    up = _capped if huge else ceil_int32
    if cautious is None:
        return current if allowed.allow(ratio) else up(ratio * pods)
    if allowed.allow(cautious) or (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio):
        return current
    replicas = up(cautious * pods)
    # The unready and missing pods alone could turn the direction, since they count in the number of pods.
    turned = replicas > current if cautious < 1.0 else cautious > 1.0 and replicas < current
    return current if turned else replicas


def by_share(usage: Usage, amount: int, kept: int, allowed: Tolerances, *, huge: bool) -> int:
    """Divides the total by `amount`, the metric target per replica, in milli-units; `kept` within the tolerance.

    That is the count of the spec (HPASpecReplicasKept), in Kubernetes that of the status, by which the ratio is
    computed. `huge` as in `by_pods`; in Kubernetes, External metrics have it, and Object metrics do not.
    Source: Kubernetes 1.36, replica_calculator.go: GetExternalPerPodMetricReplicas, GetObjectPerPodMetricReplicas.
    """
    if allowed.allow(usage.ratio) or usage.total is None:
        return kept
    return (_capped if huge else ceil_int32)(quotient(float(usage.total), float(amount)))


def by_ratio(usage: Usage, current: int, allowed: Tolerances, *, keeps: bool, huge: bool) -> int:
    """Returns ready pods times ratio; without replicas the ratio alone (KEP-2021).

    `keeps`: without ready pods the count stays, unless the value is 0 (HPANoReadyPodsKept). `huge` as in `by_pods`; in
    Kubernetes, only a target with replicas has it.

    Source: Kubernetes 1.36, replica_calculator.go: getUsageRatioReplicaCount.
    """
    if current == 0:
        return (_capped if huge else ceil_int32)(usage.ratio)
    if allowed.allow(usage.ratio):
        return current
    if usage.pods is None:
        empty = "no pods returned by selector while calculating replica count"
        raise Unmeasurable(f"unable to calculate ready pods: {empty}")
    if keeps and not usage.pods and usage.ratio > 0.0:
        return current
    return _capped(usage.ratio * usage.pods)


def _capped(replicas: float) -> int:
    """Rounds up, to at most the largest int32."""
    return MAX_INT32 if replicas > MAX_INT32 else ceil_int32(replicas)


def metric_status(proposal: Proposal) -> MetricStatus:
    """Returns the entry of currentMetrics of one metric; all fields are empty without a usage."""
    metric, usage = proposal.metric, proposal.usage
    if usage is None:
        return MetricStatus()
    quantity = None if usage.value is None else Quantity.from_milli(usage.value, metric.format)
    if metric.kind == VALUE:
        return _placed(metric, MetricValueStatus(value=quantity))
    if metric.kind == UTILIZATION:
        return _placed(metric, MetricValueStatus(average_value=quantity, average_utilization=usage.percent))
    return _placed(metric, MetricValueStatus(average_value=quantity))


def _placed(metric: CompiledMetric, current: MetricValueStatus) -> MetricStatus:
    """Puts a value into the field of the metric's type."""
    kind, spec = metric.type, metric.spec
    if kind == RESOURCE:
        return MetricStatus(kind, resource=ResourceMetricStatus(metric.name, current))
    if kind == CONTAINER_RESOURCE:
        container = ContainerResourceMetricStatus(metric.name, current, metric.query.container)
        return MetricStatus(kind, container_resource=container)
    if kind == PODS and spec.pods is not None:
        return MetricStatus(kind, pods=PodsMetricStatus(spec.pods.metric, current))
    if kind == OBJECT and spec.object is not None:
        described = spec.object.described_object
        return MetricStatus(kind, object=ObjectMetricStatus(spec.object.metric, current, described))
    if kind == EXTERNAL and spec.external is not None:
        return MetricStatus(kind, external=ExternalMetricStatus(spec.external.metric, current))
    return MetricStatus()

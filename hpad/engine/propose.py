"""Third stage: proposes a replica count from the usage of one metric.

Source: Kubernetes 1.36, replica_calculator.go: GetResourceReplicas, GetMetricReplicas, GetObjectMetricReplicas,
GetExternalMetricReplicas and their PerPod variants.
"""

from fractions import Fraction
from typing import Final

import msgspec

from hpad.api import amounts
from hpad.api.quantity import MAX_INT32, ceil_int32, quotient
from hpad.api.sample import AdapterError, Sample
from hpad.engine.measure import measure
from hpad.engine.pods import Unmeasurable, Usage
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, VALUE, CompiledMetric
from hpad.engine.view import Gates, View


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
    def metric_target(self) -> str:
        """The metric target for people: "50%", "15"."""
        metric = self.metric
        return f"{metric.amount}%" if metric.kind == UTILIZATION else amounts.exact(metric.amount, metric.unit)

    @property
    def reading(self) -> str:
        """Usage and metric target: "305% / 50%", or "80 / 15 over 3 replicas" (Value).

        For AverageValue: "26.7 / 15 per replica, 80 in total".
        """
        usage, metric = self.usage, self.metric
        if usage is not None and usage.total is not None:
            if not usage.pods:
                return f"{self.current} in total / {self.metric_target} per replica"
            share = amounts.rounded(Fraction(usage.total, usage.pods), metric.amount, metric.unit)
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


def propose(view: View, metric: CompiledMetric, answer: Sample | AdapterError) -> Proposal:
    """Returns the proposal of one metric. Never raises: errors are part of the proposal."""
    if metric.error is not None:
        return _failed(metric, "", metric.error)
    if isinstance(answer, AdapterError):
        return _failed(metric, metric.wording.fetch, answer.message, no_sample=True)
    scale = view.scale
    current, status = (0, 0) if scale is None else (scale.spec.replicas, scale.status.replicas)
    try:
        usage = measure(metric, answer, view.pods, status, view.now, view.tunables)
        allowed = tolerances(view)
        replicas = _replicas(metric, usage, current, status, allowed, view.tunables.gates)
    except Unmeasurable as error:
        return _failed(metric, metric.wording.measure, str(error))
    if view.tunables.gates.HPANegativeExternalSum:
        replicas = max(0, replicas)
    from_zero = metric.kind == VALUE and current == 0  # then the ratio decides without the tolerance
    tolerated = not from_zero and allowed.allow(usage.ratio if usage.cautious is None else usage.cautious)
    return Proposal(metric=metric, replicas=replicas, usage=usage, tolerated=tolerated)


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
        return by_share(usage, metric.amount, status, allowed)
    return by_ratio(usage, current, allowed)


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


def by_share(usage: Usage, amount: int, status: int, allowed: Tolerances) -> int:
    """Divides the total by `amount`, the metric target per replica, in milli-units.

    Source: Kubernetes 1.36, replica_calculator.go: GetExternalPerPodMetricReplicas.
    """
    # The count of the status and not of the spec, as in Kubernetes: the ratio was computed with it.
    if allowed.allow(usage.ratio) or usage.total is None:
        return status
    return _capped(quotient(float(usage.total), float(amount)))


def by_ratio(usage: Usage, current: int, allowed: Tolerances) -> int:
    """Returns ready pods times ratio; without replicas the ratio alone (KEP-2021).

    Source: Kubernetes 1.36, replica_calculator.go: getUsageRatioReplicaCount.
    """
    if current == 0:
        return _capped(usage.ratio)
    if allowed.allow(usage.ratio):
        return current
    if usage.pods is None:
        empty = "no pods returned by selector while calculating replica count"
        raise Unmeasurable(f"unable to calculate ready pods: {empty}")
    return _capped(usage.ratio * usage.pods)


def _capped(replicas: float) -> int:
    """Rounds up, to at most the largest int32."""
    return MAX_INT32 if replicas > MAX_INT32 else ceil_int32(replicas)

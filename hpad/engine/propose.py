"""From the usage of one metric to a replica count."""

from collections.abc import Callable
from fractions import Fraction

import msgspec

from hpad.api import amounts
from hpad.api.quantity import MAX_INT32, ceil_int32, quotient
from hpad.api.sample import AdapterError, Sample
from hpad.engine.measure import Unmeasurable, Usage, measure
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, VALUE, CompiledMetric
from hpad.engine.view import Gates, View


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What one metric wants. With `error` set it wants nothing, and `failure` is the error in its full length.

    `cause` is the error without what Kubernetes puts before it. `no_sample`: the error is that there was no sample.
    `fallback` says what stands in for it all the same, by the HPA's terms (`replicas`, or nothing where `ignored`).
    `tolerated`: the ratio lay within the tolerance. `measured` is the count before an activation threshold changed it
    to `replicas` (None: none did), and `threshold` that threshold in milli-units.
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
        """The reading as people read it: "305%", "80" (a total that replicas share is not divided), "<unknown>"."""
        usage, metric = self.usage, self.metric
        if usage is None:
            return "<unknown>"
        if metric.kind == UTILIZATION:
            return f"{usage.percent}%"
        if usage.total is not None:
            return amounts.rounded(usage.total, 0, metric.unit)
        return "<unknown>" if usage.value is None else amounts.rounded(usage.value, metric.amount, metric.unit)

    @property
    def wanted(self) -> str:
        """The target as people read it: "50%", "15"."""
        metric = self.metric
        return f"{metric.amount}%" if metric.kind == UTILIZATION else amounts.exact(metric.amount, metric.unit)

    @property
    def reading(self) -> str:
        """Reading and target: "305% / 50%"; "80 / 15 over 3 replicas" (Value); "26.7 / 15 per replica, 80 in total"
        (AverageValue).
        """
        usage, metric = self.usage, self.metric
        if usage is not None and usage.total is not None:
            if not usage.pods:
                return f"{self.current} in total / {self.wanted} per replica"
            share = amounts.rounded(Fraction(usage.total, usage.pods), metric.amount, metric.unit)
            whole = "" if usage.pods == 1 else f", {self.current} in total"
            return f"{share} / {self.wanted} per replica{whole}"
        held = f"{self.current} / {self.wanted}"
        return held if usage is None or usage.pods is None or metric.of_pods else f"{held} over {usage.pods} replicas"

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.metric.label} {self.fallback or 'is invalid'}: {self.cause}"
        return f"{self.metric.label} wants {self.replicas} ({self.reading})"


class Tolerances(msgspec.Struct, frozen=True, gc=False):
    """How far the ratio may lie below and above 1 without anything to do."""

    down: float
    up: float

    def allow(self, ratio: float) -> bool:
        """Whether the ratio is close enough to 1; a ratio that is no number never is."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


def propose(view: View, metric: CompiledMetric, answer: Sample | AdapterError) -> Proposal:
    """The replica count one metric wants, or why it can't tell. Never raises."""
    if metric.error is not None:
        return _failed(metric, "", metric.error)
    if isinstance(answer, AdapterError):
        return _failed(metric, metric.wording.fetch, answer.message, no_sample=True)
    scale = view.scale
    current, status = (0, 0) if scale is None else (scale.spec.replicas, scale.status.replicas)
    try:
        usage = measure(metric, answer, view.pods, status, view.now, view.tunables)
        allowed = _tolerances(view)
        replicas = _replicas(metric, usage, current, status, allowed, view.tunables.gates)
    except Unmeasurable as error:
        return _failed(metric, metric.wording.measure, str(error))
    if view.tunables.gates.HPANegativeExternalSum:
        replicas = max(0, replicas)
    waking = metric.kind == VALUE and current == 0  # then the ratio decides alone, however close to 1 it is
    tolerated = not waking and allowed.allow(usage.ratio if usage.cautious is None else usage.cautious)
    return Proposal(metric=metric, replicas=replicas, usage=usage, tolerated=tolerated)


def _tolerances(view: View) -> Tolerances:
    """Those of spec.behavior where it names any and HPAConfigurableTolerance is on, else the daemon's."""
    own, behavior = view.tunables.tolerance, view.spec.behavior
    if behavior is None or not view.tunables.gates.HPAConfigurableTolerance:
        return Tolerances(own, own)
    down, up = behavior.down.tolerance, behavior.up.tolerance
    return Tolerances(own if down is None else down, own if up is None else up)


def _failed(metric: CompiledMetric, before: str, cause: str, *, no_sample: bool = False) -> Proposal:
    error = before + cause
    return Proposal(
        metric=metric, replicas=0, error=error, failure=metric.wording.outer + error, cause=cause, no_sample=no_sample
    )


def _replicas(
    metric: CompiledMetric, usage: Usage, current: int, status: int, allowed: Tolerances, gates: Gates
) -> int:
    if metric.of_pods:
        return _by_pods(usage, current, allowed, _capped if gates.HPAHugeProposals else ceil_int32)
    if metric.kind == AVERAGE_VALUE:
        return _by_share(metric, usage, status, allowed)
    return _by_ratio(usage, current, allowed)


def _by_pods(usage: Usage, current: int, allowed: Tolerances, up: Callable[[float], int]) -> int:
    """Pods times ratio; where silent pods were guessed, never against the direction that the others show."""
    ratio, cautious, pods = usage.ratio, usage.cautious, usage.pods or 0
    if cautious is None:
        return current if allowed.allow(ratio) else up(ratio * pods)
    if allowed.allow(cautious) or (ratio < 1.0 < cautious) or (cautious < 1.0 < ratio):
        return current
    wanted = up(cautious * pods)
    turned = wanted > current if cautious < 1.0 else cautious > 1.0 and wanted < current
    return current if turned else wanted


def _by_share(metric: CompiledMetric, usage: Usage, status: int, allowed: Tolerances) -> int:
    """As many replicas as there are shares in the total."""
    if allowed.allow(usage.ratio) or usage.total is None:
        return status
    return _capped(quotient(float(usage.total), float(metric.amount)))


def _by_ratio(usage: Usage, current: int, allowed: Tolerances) -> int:
    """Ready pods times ratio; with no replicas, the ratio alone."""
    if current == 0:
        return _capped(usage.ratio)
    if allowed.allow(usage.ratio):
        return current
    if usage.pods is None:
        empty = "no pods returned by selector while calculating replica count"
        raise Unmeasurable(f"unable to calculate ready pods: {empty}")
    return _capped(usage.ratio * usage.pods)


def _capped(replicas: float) -> int:
    """Rounded up, and no more than an int32 holds."""
    return MAX_INT32 if replicas > MAX_INT32 else ceil_int32(replicas)

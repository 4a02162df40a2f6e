"""The metrics in a trace: sample, usage, proposal, and what stands in for a metric that fails."""

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.amounts import Unit
from hpad.api.quantity import Format, Quantity
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, Query, Sample
from hpad.engine import spare
from hpad.engine.addresses import addresses
from hpad.engine.propose import Proposal, sample_type, tolerances, untolerated
from hpad.engine.recommend import activates, last_good_until, next_fallback
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.trace.facts import facts, verdict
from hpad.engine.trace.metric_types import (
    ActivationTrace,
    FallbackTrace,
    MetricTargetTrace,
    MetricTrace,
    NextFallbackTrace,
    SampleTrace,
    ToleranceTrace,
    UsageTrace,
)
from hpad.engine.trace.pods import PodTraces, pod_traces
from hpad.engine.view import View

Answer = Sample | AdapterError
SPEC: Final = "spec"
SOURCE: Final = "source"
OF_PODS: Final = "pods"
"""What has to change so that a failing metric can be read; as the `blame` of an AdapterError, and the pods."""
SourceOf = Callable[[Query], str]


def metrics(
    view: View,
    answers: Sequence[Answer],
    proposals: Sequence[Proposal],
    source_of: SourceOf | None,
    most_pods: int | None,
) -> tuple[MetricTrace, ...]:
    """Returns the metrics in the order of the spec, each with up to `most_pods` pods; () where none was measured."""
    names = addresses(view.spec.metrics)
    real, found = view, []
    view = spare.counting(view)
    for index, (answer, proposal) in enumerate(zip(answers, proposals, strict=False)):
        shown = PodTraces()
        if not isinstance(answer, AdapterError):
            shown = pod_traces(real, proposal.metric, answer, proposal.usage, most_pods)
        made = msgspec.structs.replace(
            _metric(view, answer, proposal, shown),
            address=names[index],
            source="" if source_of is None or proposal.metric.error is not None else source_of(proposal.metric.query),
            fallback=_fallback(view, index, proposal),
            next_fallback=_next_fallback(view, index, proposal),
            activation=_activation(view, index, proposal),
        )
        words = tuple(facts(view, answer, proposal, made, real.replicas))
        found.append(msgspec.structs.replace(made, verdict=verdict(proposal), facts=words))
    return tuple(found)


def _metric(view: View, answer: Answer, proposal: Proposal, shown: PodTraces) -> MetricTrace:
    """Returns the metric without its address, its source, its policies and its words."""
    metric, error = proposal.metric, proposal.error
    exact = None
    if error is None and view.controls.metric_policy is not None:
        exact = untolerated(view, proposal)
    return MetricTrace(
        address="",
        type=metric.type,
        name=metric.name,
        label=metric.label,
        text=str(proposal),
        unit="" if metric.unit is Unit.COUNT else metric.unit.value,
        target=_target(metric),
        sample=None if isinstance(answer, AdapterError) else _sample(answer, view.now),
        pods=shown.pods,
        pods_omitted=shown.omitted,
        usage=_usage(proposal),
        tolerance=_tolerance(view, proposal),
        proposal=proposal.proposed,
        error=proposal.cause,
        api_error=proposal.failure,
        fault=fault(proposal, answer),
        exact=exact,
    )


def fault(proposal: Proposal, answer: Answer) -> str:
    """Returns what has to change so that a failed metric can be read; "" for another one."""
    if proposal.error is None:
        return ""
    if proposal.metric.error is not None:
        return SPEC
    if isinstance(answer, AdapterError):
        return answer.blame
    return OF_PODS if isinstance(answer, sample_type(proposal.metric)) else SOURCE


def _quantity(milli: int, form: Format = Format.DECIMAL_SI) -> str:
    return str(Quantity.from_milli(milli, form))


def _target(metric: CompiledMetric) -> MetricTargetTrace | None:
    if not metric.kind:
        return None
    amount = str(metric.amount) if metric.kind == UTILIZATION else _quantity(metric.amount)
    return MetricTargetTrace(type=metric.kind, amount=amount)


def _sample(sample: Sample, now: datetime) -> SampleTrace:
    # A sample that was taken while this reconcile ran, or by a clock that is ahead, is new.
    age = max(0.0, (now - sample.timestamp).total_seconds())
    if isinstance(sample, ObjectSample):
        return SampleTrace(timestamp=sample.timestamp, age_seconds=age, value=_quantity(sample.value))
    if isinstance(sample, ExternalSample):
        values = tuple(map(_quantity, sample.values))
        return SampleTrace(timestamp=sample.timestamp, age_seconds=age, values=values)
    assert isinstance(sample, PodSample)
    return SampleTrace(timestamp=sample.timestamp, age_seconds=age)


def _usage(proposal: Proposal) -> UsageTrace | None:
    usage, metric = proposal.usage, proposal.metric
    if usage is None:
        return None
    return UsageTrace(
        value=None if usage.value is None else _quantity(usage.value, metric.format),
        percent=usage.percent,
        total=None if usage.total is None else _quantity(usage.total, metric.format),
        pods=usage.pods,
        ratio=_number(usage.ratio),
        cautious_ratio=None if usage.cautious is None else _number(usage.cautious),
    )


def _number(ratio: float) -> float | None:
    return ratio if math.isfinite(ratio) else None


def _tolerance(view: View, proposal: Proposal) -> ToleranceTrace | None:
    if proposal.usage is None:
        return None
    allowed = tolerances(view)
    return ToleranceTrace(down=allowed.down, up=allowed.up, within=proposal.tolerated)


def _fallback(view: View, index: int, proposal: Proposal) -> FallbackTrace | None:
    if not proposal.fallback:
        return None
    policy = view.fallback_policies[index]
    return FallbackTrace(
        policy=str(policy.fallback),
        effect=proposal.fallback,
        ignored=proposal.ignored,
        until=last_good_until(view, index, proposal),
    )


def _next_fallback(view: View, index: int, proposal: Proposal) -> NextFallbackTrace | None:
    if proposal.error is None or not view.fallback_policies:
        return None
    upcoming = next_fallback(view, index, proposal)
    if upcoming is None:
        return None
    policy = view.fallback_policies[index]
    return NextFallbackTrace(policy=str(policy.fallback), at=upcoming.at, replicas=upcoming.replicas)


def _activation(view: View, index: int, proposal: Proposal) -> ActivationTrace | None:
    if not view.fallback_policies or not activates(view, proposal):
        return None
    threshold = view.fallback_policies[index].activation
    if threshold is None:
        return None
    return ActivationTrace(threshold=_quantity(threshold), measured=proposal.measured)

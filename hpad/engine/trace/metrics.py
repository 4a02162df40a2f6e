"""The metrics in a trace, in numbers and in words: sample, usage, proposal, and what stands in for one that fails."""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api import amounts
from hpad.api.amounts import Unit
from hpad.api.autoscaler import written_parameters
from hpad.api.sample import AdapterError, Answer, ExternalSample, ObjectSample, PodSample, Query, Sample
from hpad.api.text import begin
from hpad.engine import phrases, spare
from hpad.engine.addresses import addresses
from hpad.engine.pods import Usage
from hpad.engine.propose import Proposal, Tolerances, sample_type, tolerances, untolerated
from hpad.engine.recommend import activates, last_good_until, next_fallback
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, VALUE, CompiledMetric
from hpad.engine.trace.metric_types import (
    ActivationTrace,
    FactTrace,
    FallbackTrace,
    MetricTargetTrace,
    MetricTrace,
    NextFallbackTrace,
    SampleTrace,
    ToleranceTrace,
    UsageTrace,
)
from hpad.engine.trace.pods import PodTraces, pod_traces, quantity
from hpad.engine.view import View
from hpad.engine.words import clock, replicas, span

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
        words = tuple(_facts(view, answer, proposal, made, real.replicas))
        found.append(msgspec.structs.replace(made, verdict=_verdict(proposal), facts=words))
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


def _target(metric: CompiledMetric) -> MetricTargetTrace | None:
    if not metric.kind:
        return None
    amount = str(metric.amount) if metric.kind == UTILIZATION else quantity(metric.amount)
    return MetricTargetTrace(type=metric.kind, amount=amount)


def _sample(sample: Sample, now: datetime) -> SampleTrace:
    # A sample that was taken while this reconcile ran, or by a clock that is ahead, is new.
    age = max(0.0, (now - sample.timestamp).total_seconds())
    if isinstance(sample, ObjectSample):
        return SampleTrace(timestamp=sample.timestamp, age_seconds=age, value=quantity(sample.value))
    if isinstance(sample, ExternalSample):
        values = tuple(map(quantity, sample.values))
        return SampleTrace(timestamp=sample.timestamp, age_seconds=age, values=values)
    assert isinstance(sample, PodSample)
    return SampleTrace(timestamp=sample.timestamp, age_seconds=age)


def _usage(proposal: Proposal) -> UsageTrace | None:
    usage, metric = proposal.usage, proposal.metric
    if usage is None:
        return None
    return UsageTrace(
        value=None if usage.value is None else quantity(usage.value, metric.format),
        percent=usage.percent,
        total=None if usage.total is None else quantity(usage.total, metric.format),
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
    return ActivationTrace(threshold=quantity(threshold), measured=proposal.measured)


_MOST_SERIES: Final = 5
"""Series whose values are added up in writing."""
_LONGEST_QUERY: Final = 500
"""Characters of a query that an Autoscaler brings along."""


def _verdict(proposal: Proposal) -> str:
    """Returns what the metric asks for, after its address: "wants 3"."""
    count = proposal.proposed
    if count is None:
        return "is left out" if proposal.fallback else "fails"
    return f"fails, and counts as {replicas(count)}" if proposal.fallback else f"wants {count}"


def _facts(view: View, answer: Answer, proposal: Proposal, made: MetricTrace, present: int) -> Iterator[FactTrace]:
    """Yields the facts of a metric whose trace is complete but for its words.

    `view` is without the spare replicas, `present` the count with them.
    """
    name = made.label if made.label != made.name else f"{made.type} {made.name}"
    yield FactTrace(label="Metric", text=f"{name}, from {made.source}" if made.source else name)
    definition = proposal.metric.query.definition
    if definition is not None:
        yield FactTrace(label="Query", text=begin(written_parameters(definition), _LONGEST_QUERY))
    if made.error:
        yield FactTrace(label="Error", text=made.error)
    if made.fallback is not None:
        yield FactTrace(label="Fallback", text=f"{made.fallback.policy}: {made.fallback.effect}")
    if made.next_fallback is not None:
        since = clock(made.next_fallback.at, view.now)
        yield FactTrace(label="Fallback", text=f"{made.next_fallback.policy}: from {since} on")
    if not isinstance(answer, AdapterError):
        yield FactTrace(label="Sample", text=_sample_words(answer, proposal.metric, view.now))
    usage = proposal.usage
    if usage is None or not proposal.metric.kind:
        return
    yield FactTrace(label="Usage", text=f"{_usage_words(usage, proposal)}; target {_target_words(proposal)}")
    if present != view.replicas and (proposal.metric.of_pods or proposal.metric.kind == VALUE):
        yield FactTrace(label="Load", text=f"counts as shared by {view.replicas} of {replicas(present)}")
    yield FactTrace(label="Ratio", text=_ratio(usage, tolerances(view), within=proposal.tolerated))
    if not proposal.fallback:
        yield FactTrace(label="Wants", text=_wants(proposal, view.replicas))


def _sample_words(sample: Sample, metric: CompiledMetric, now: datetime) -> str:
    """Returns value and age: "3 + 4 = 7, 12s old"."""
    age = f"{span(round(max(0.0, (now - sample.timestamp).total_seconds())))} old"
    if isinstance(sample, ObjectSample):
        return f"{_shown(metric, sample.value)}, {age}"
    return f"{_series(metric, sample.values)}, {age}" if isinstance(sample, ExternalSample) else age


def _series(metric: CompiledMetric, values: Sequence[int]) -> str:
    """Returns the values of the series and their sum."""
    total = _shown(metric, sum(values))
    if len(values) == 1:
        return total
    short = 2 <= len(values) <= _MOST_SERIES
    return f"{' + '.join(_shown(metric, value) for value in values) if short else f'{len(values)} series'} = {total}"


def _shown(metric: CompiledMetric, milli: int, beside: int = 0) -> str:
    return amounts.rounded(milli, beside, metric.unit)


def _target_words(proposal: Proposal) -> str:
    metric = proposal.metric
    if metric.kind != AVERAGE_VALUE:
        return proposal.metric_target
    return f"{proposal.metric_target} per {'pod' if metric.of_pods else 'replica'}"


def _usage_words(usage: Usage, proposal: Proposal) -> str:
    metric = proposal.metric
    value = None if usage.value is None else _shown(metric, usage.value, metric.amount)
    if metric.kind == UTILIZATION:
        return f"{usage.percent}% of the requests" + (f", {value} per pod" if value else "")
    if metric.of_pods:
        return f"{value} per pod"
    if usage.total is None:
        return value or "unknown"
    if not usage.pods:
        return f"{proposal.current} in total"
    return f"{proposal.share} per replica ({proposal.current} over {replicas(usage.pods)})"


def _ratio(usage: Usage, allowed: Tolerances, *, within: bool) -> str:
    if not math.isfinite(usage.ratio):
        return "not a number, since there is no replica"
    text = phrases.number(usage.ratio)
    if usage.cautious is not None and usage.cautious != usage.ratio:
        text = f"{text}, and {phrases.number(usage.cautious)} with {_counted(usage)}"
    where = "within" if within else "outside"
    return f"{text}; {where} the tolerance ({phrases.number(1 - allowed.down)} to {phrases.number(1 + allowed.up)})"


def _counted(usage: Usage) -> str:
    """Returns the pods that are counted in although their usage is unknown."""
    grows = usage.ratio > 1.0
    count = usage.missing + (usage.unready if grows else 0)
    return f"{count} more {'pod' if count == 1 else 'pods'} counted as {'idle' if grows else 'busy'}"


def _wants(proposal: Proposal, current: int) -> str:
    """Returns the calculation of the proposal: "2 = 20 / 10", "7, rounded up from 6.1 x 1 pod = 6.1"."""
    count = proposal.replicas
    if proposal.measured is not None:
        where, threshold = "above" if count else "not above", amounts.exact(proposal.threshold, proposal.metric.unit)
        return f"{count} instead of {proposal.measured}, {where} the activation threshold {threshold}"
    calculation = None if proposal.tolerated else phrases.calculation(proposal, current)
    if calculation is None:
        return f"{count}, unchanged" if proposal.tolerated else f"{count}"
    text, result = calculation
    equation = text if text == phrases.number(result) else f"{text} = {phrases.number(result)}"
    if max(0, math.ceil(result)) != count:
        return f"{count}, unchanged: {equation} would reverse the scale direction"
    return f"{count} = {text}" if result == count else f"{count}, rounded up from {equation}"

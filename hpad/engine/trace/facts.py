"""What a trace says about each metric in words: sample, usage, ratio, and how the proposal follows from them."""

import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from fractions import Fraction
from typing import Final

from hpad.api import amounts
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, Sample
from hpad.api.text import begin
from hpad.engine import explain, own_query
from hpad.engine.pods import Usage
from hpad.engine.propose import Proposal, Tolerances, tolerances
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, VALUE, CompiledMetric
from hpad.engine.trace.metric_types import FactTrace, MetricTrace
from hpad.engine.view import View
from hpad.engine.words import clock, replicas, span

_MOST_SERIES: Final = 5
"""Series whose values are added up in writing."""
_LONGEST_QUERY: Final = 500
"""Characters of a query that an Autoscaler brings along."""


def verdict(proposal: Proposal) -> str:
    """Returns what the metric asks for, after its address: "wants 3"."""
    count = proposal.proposed
    if count is None:
        return "is left out" if proposal.fallback else "fails"
    return f"fails, and counts as {replicas(count)}" if proposal.fallback else f"wants {count}"


def facts(
    view: View, answer: Sample | AdapterError, proposal: Proposal, made: MetricTrace, present: int
) -> Iterator[FactTrace]:
    """Yields the facts of a metric whose trace is complete but for its words.

    `view` is without the spare replicas, `present` the count with them.
    """
    name = made.label if made.label != made.name else f"{made.type} {made.name}"
    yield FactTrace(label="Metric", text=f"{name}, from {made.source}" if made.source else name)
    definition = proposal.metric.query.definition
    if definition is not None:
        yield FactTrace(label="Query", text=begin(own_query.written(definition), _LONGEST_QUERY))
    if made.error:
        yield FactTrace(label="Error", text=made.error)
    if made.fallback is not None:
        yield FactTrace(label="Fallback", text=f"{made.fallback.policy}: {made.fallback.effect}")
    if made.next_fallback is not None:
        since = clock(made.next_fallback.at, view.now)
        yield FactTrace(label="Fallback", text=f"{made.next_fallback.policy}: from {since} on")
    if not isinstance(answer, AdapterError):
        yield FactTrace(label="Sample", text=_sample(answer, proposal.metric, view.now))
    usage = proposal.usage
    if usage is None or not proposal.metric.kind:
        return
    yield FactTrace(label="Usage", text=f"{_usage(usage, proposal)}; target {_target(proposal)}")
    if present != view.replicas and (proposal.metric.of_pods or proposal.metric.kind == VALUE):
        yield FactTrace(label="Load", text=f"counts as shared by {view.replicas} of {replicas(present)}")
    yield FactTrace(label="Ratio", text=_ratio(usage, tolerances(view), within=proposal.tolerated))
    if not proposal.fallback:
        yield FactTrace(label="Wants", text=_wants(proposal, view.replicas))


def _sample(sample: Sample, metric: CompiledMetric, now: datetime) -> str:
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


def _shown(metric: CompiledMetric, milli: Fraction | int, beside: int = 0) -> str:
    return amounts.rounded(milli, beside, metric.unit)


def _target(proposal: Proposal) -> str:
    metric = proposal.metric
    if metric.kind != AVERAGE_VALUE:
        return proposal.metric_target
    return f"{proposal.metric_target} per {'pod' if metric.of_pods else 'replica'}"


def _usage(usage: Usage, proposal: Proposal) -> str:
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
    share = _shown(metric, Fraction(usage.total, usage.pods), metric.amount)
    return f"{share} per replica ({proposal.current} over {replicas(usage.pods)})"


def _ratio(usage: Usage, allowed: Tolerances, *, within: bool) -> str:
    if not math.isfinite(usage.ratio):
        return "not a number, since there is no replica"
    text = explain.number(usage.ratio)
    if usage.cautious is not None and usage.cautious != usage.ratio:
        text = f"{text}, and {explain.number(usage.cautious)} with {_counted(usage)}"
    where = "within" if within else "outside"
    return f"{text}; {where} the tolerance ({explain.number(1 - allowed.down)} to {explain.number(1 + allowed.up)})"


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
    calculation = None if proposal.tolerated else explain.calculation(proposal, current)
    if calculation is None:
        return f"{count}, unchanged" if proposal.tolerated else f"{count}"
    text, result = calculation
    equation = text if text == explain.number(result) else f"{text} = {explain.number(result)}"
    if max(0, math.ceil(result)) != count:
        return f"{count}, unchanged: {equation} would reverse the scale direction"
    return f"{count} = {text}" if result == count else f"{count}, rounded up from {equation}"

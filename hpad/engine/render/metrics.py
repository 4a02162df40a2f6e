"""The metrics of a trace as lines: sample, usage, ratio, proposal, and the pods."""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Final

from hpad.api import amounts
from hpad.api.quantity import parse_milli
from hpad.engine import trace
from hpad.engine.outlook.words import clock, replicas, span
from hpad.engine.render.metric import amount, is_utilization, of_pods, unit
from hpad.engine.render.pods import pod_lines
from hpad.engine.render.text import BAD, STRONG, WARN, Line, Span, labelled, line
from hpad.engine.spec import AVERAGE_VALUE

_WIDTH: Final = 11
_MOST_SERIES: Final = 5
"""Series whose values are added up in writing."""


def metric_lines(metric: trace.MetricTrace, made: trace.Trace, *, all_pods: bool, hint: str) -> Iterator[Line]:
    """Yields one metric. `hint` says how to see all pods of a long list."""
    yield line("  ", Span(metric.address, STRONG), " ", _verdict(metric), hang=4)
    for label, text in _facts(metric, made):
        yield labelled(label, text, indent=4, width=_WIDTH)
    yield from pod_lines(metric, all_pods=all_pods, hint=hint)


def _verdict(metric: trace.MetricTrace) -> Span:
    if metric.proposal is None:
        return Span("is left out" if metric.fallback is not None else "fails", BAD)
    if metric.fallback is not None:
        return Span(f"fails, and counts as {replicas(metric.proposal)}", WARN)
    return Span(f"wants {metric.proposal}")


def _facts(metric: trace.MetricTrace, made: trace.Trace) -> Iterator[tuple[str, str | Span]]:
    name = metric.label if metric.label != metric.name else f"{metric.type} {metric.name}"
    yield "Metric", f"{name}, from {metric.source}" if metric.source else name
    if metric.error:
        yield "Error", Span(metric.error, BAD)
    yield from _replacement(metric, made)
    if metric.sample is not None:
        yield "Sample", _sample(metric, metric.sample)
    if metric.usage is None or metric.target is None:
        return
    yield "Usage", f"{_usage(metric, metric.usage)}; target {_target(metric)}"
    yield "Ratio", _ratio(metric, metric.usage)
    if metric.fallback is None:
        yield "Wants", _proposal(metric, metric.usage, made.replicas)


def _replacement(metric: trace.MetricTrace, made: trace.Trace) -> Iterator[tuple[str, str]]:
    if metric.fallback is not None:
        yield "Fallback", f"{metric.fallback.policy}: {metric.fallback.effect}"
    if metric.next_fallback is not None:
        yield "Fallback", f"{metric.next_fallback.policy}: from {clock(metric.next_fallback.at, made.time)} on"


def _sample(metric: trace.MetricTrace, sample: trace.SampleTrace) -> str:
    """Returns value and age: "3 + 4 = 7, 12s old"."""
    age = f"{span(round(sample.age_seconds))} old"
    if sample.value is not None:
        return f"{_shown(metric, parse_milli(sample.value))}, {age}"
    if sample.values is None:
        return age
    return f"{_series(metric, sample.values, sample.values_omitted)}, {age}"


def _series(metric: trace.MetricTrace, texts: tuple[str, ...], omitted: int) -> str:
    """Returns the values of the series and their sum."""
    values = [parse_milli(text) for text in texts]
    if omitted:
        return f"{len(values) + omitted} series"
    total = _shown(metric, sum(values))
    if len(values) == 1:
        return total
    short = 2 <= len(values) <= _MOST_SERIES
    return f"{' + '.join(_shown(metric, value) for value in values) if short else f'{len(values)} series'} = {total}"


def _shown(metric: trace.MetricTrace, milli: Fraction | int, beside: int = 0) -> str:
    return amounts.rounded(milli, beside, unit(metric))


def _target(metric: trace.MetricTrace) -> str:
    if is_utilization(metric):
        return f"{amount(metric)}%"
    text = amounts.exact(amount(metric), unit(metric))
    if metric.target is None or metric.target.type != AVERAGE_VALUE:
        return text
    return f"{text} per {'pod' if of_pods(metric) else 'replica'}"


def _usage(metric: trace.MetricTrace, usage: trace.UsageTrace) -> str:
    value = None if usage.value is None else _shown(metric, parse_milli(usage.value), amount(metric))
    if is_utilization(metric):
        return f"{usage.percent}% of the requests" + (f", {value} per pod" if value else "")
    if of_pods(metric):
        return f"{value} per pod"
    if usage.total is None:
        return value or "unknown"
    total = parse_milli(usage.total)
    if not usage.pods:
        return f"{_shown(metric, total)} in total"
    share = _shown(metric, Fraction(total, usage.pods), amount(metric))
    return f"{share} per replica ({_shown(metric, total)} over {replicas(usage.pods)})"


def _ratio(metric: trace.MetricTrace, usage: trace.UsageTrace) -> str:
    if usage.ratio is None:
        return "not a number, since there is no replica"
    text, allowed = _number(usage.ratio), metric.tolerance
    if usage.cautious_ratio is not None and usage.cautious_ratio != usage.ratio:
        text = f"{text}, and {_number(usage.cautious_ratio)} with {_counted(metric, usage.ratio)}"
    if allowed is None:
        return text
    where = "within" if allowed.within else "outside"
    return f"{text}; {where} the tolerance ({_number(1 - allowed.down)} to {_number(1 + allowed.up)})"


def _counted(metric: trace.MetricTrace, ratio: float) -> str:
    """Returns the pods that are counted in although their usage is unknown."""
    groups = (trace.UNREADY, trace.MISSING, trace.LACKING) if ratio > 1 else (trace.MISSING,)
    count = sum(1 for pod in metric.pods if pod.group in groups)
    if metric.pods_omitted or not count:
        return f"the other pods as {'idle' if ratio > 1 else 'busy'}"
    return f"{count} more {'pod' if count == 1 else 'pods'} counted as {'idle' if ratio > 1 else 'busy'}"


def _number(number: float) -> str:
    """Writes at least three digits: enough to tell the number from the nearest integer."""
    exact = Fraction(number).limit_denominator(10**9)
    return amounts.rounded(exact * 1000, round(exact) * 1000)


def _proposal(metric: trace.MetricTrace, usage: trace.UsageTrace, counts: trace.ReplicasTrace) -> str:
    """Returns the calculation of the proposal: "2 = 20 / 10", "7, from 6.1 x 1 pod = 6.1"."""
    proposal, activation = metric.proposal, metric.activation
    if activation is not None and activation.measured is not None:
        where = "above" if proposal else "not above"
        threshold = amounts.exact(parse_milli(activation.threshold), unit(metric))
        return f"{proposal} instead of {activation.measured}, {where} the activation threshold {threshold}"
    if metric.tolerance is not None and metric.tolerance.within:
        return f"{proposal}, unchanged"
    needed = _needed(metric, usage, counts)
    if needed is None:
        return f"{proposal}"
    text, result = needed
    if max(0, ceil(result)) != proposal:
        equation = text if result.denominator != 1 else f"{text} = {result}"
        return f"{proposal}, unchanged: {equation} would reverse the scale direction"
    return f"{proposal} = {text}" if result == proposal else f"{proposal}, rounded up from {text}"


def _needed(
    metric: trace.MetricTrace, usage: trace.UsageTrace, counts: trace.ReplicasTrace
) -> tuple[str, Fraction] | None:
    """Returns the calculation of the count before rounding, and that count; None where it is not a number."""
    if usage.total is not None:
        total, goal = parse_milli(usage.total), amount(metric)
        result = Fraction(total, goal) if goal else None
        return None if result is None else (_with_result(f"{_shown(metric, total)} / {_target_alone(metric)}", result))
    ratio = usage.ratio if usage.cautious_ratio is None else usage.cautious_ratio
    if ratio is None:
        return None
    if not of_pods(metric) and not counts.current:
        return _number(ratio), Fraction(ratio)
    pods = usage.pods or 0
    return _with_result(f"{_number(ratio)} x {pods} {'pod' if pods == 1 else 'pods'}", Fraction(ratio * pods))


def _target_alone(metric: trace.MetricTrace) -> str:
    return amounts.exact(amount(metric), unit(metric))


def _with_result(text: str, result: Fraction) -> tuple[str, Fraction]:
    """Adds the result where it is no integer: an integer is the proposal itself."""
    return (text if result.denominator == 1 else f"{text} = {_number(float(result))}"), result

"""Thins histories to the width of a chart: metrics with their goals, and changes of counts, in equal parts."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.simulation.history import REPLICAS, STALE_STEPS, Column, LoadHistory, goal_of, is_total, metrics_of, pointwise

PARTS: Final = 700
"""Parts of the time of a chart for counts; about the pixels of its width."""
VALUE_PARTS: Final = 350
"""Parts for values of metrics, each of which has two points."""
Extremes = tuple[float | None, ...]
Steps = Sequence[tuple[float, int | None]]
"""Times in seconds since 1970, and a count from then on; None begins a gap."""
PERCENT: Final = "%"
_METRICS: Final = 3
"""Metrics that are drawn."""


class MetricChart(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric in the parts of a chart (VALUE_PARTS); None is a gap.

    `unit` is "%", or the value of an `api.amounts.Unit`; `goal` is the metric target of now. `per_replica`: the values
    are a total over the recorded replicas, as the metric target is.
    """

    address: str
    unit: str
    goal: float | None
    lowest: Extremes
    highest: Extremes
    per_replica: bool = False


def metric_charts(hpa: HorizontalPodAutoscaler, load: LoadHistory) -> tuple[MetricChart, ...]:
    """Returns the metrics that have values, the one with the highest values compared with its goal first."""
    metrics = metrics_of(hpa).items()
    found = [_compared(address, metric, load) for address, metric in metrics if address in load.columns]
    found.sort(key=lambda pair: pair[0], reverse=True)
    return tuple(chart for _, chart in found[:_METRICS])


def _compared(address: str, metric: CompiledMetric, load: LoadHistory) -> tuple[float, MetricChart]:
    """Returns the mean value of a metric as a share of its goal, and its chart in the form that is compared with it."""
    column, counts = load.columns[address], load.columns.get(REPLICAS)
    per_replica = counts is not None and is_total(metric)
    if counts is not None and per_replica:
        column = pointwise(lambda value, count: value / max(1.0, count), column, counts)
    unknown = metric.error is not None or (is_total(metric) and not per_replica)
    goal = None if unknown else goal_of(metric)
    known = [value for value in column if value is not None]
    lowest, highest = extremes(_in_parts(load, column))
    chart = MetricChart(
        address=address,
        unit=PERCENT if metric.kind == UTILIZATION else metric.unit.value,
        goal=goal,
        lowest=lowest,
        highest=highest,
        per_replica=per_replica,
    )
    return sum(known) / len(known) / goal if known and goal else 0.0, chart


def _in_parts(load: LoadHistory, column: Column) -> Iterator[tuple[range, float]]:
    """Yields each known value with the parts in which it holds."""
    begin, end = load.times[0], load.times[-1]
    for time, until, value in _held(load, column):
        if value is not None:
            first = min(VALUE_PARTS - 1, int((time - begin) / (end - begin) * VALUE_PARTS))
            after = math.ceil((until - begin) / (end - begin) * VALUE_PARTS)
            yield range(first, max(after, first + 1)), value


def extremes(held: Iterable[tuple[range, float]]) -> tuple[Extremes, Extremes]:
    """Returns the lowest and the highest value of each part, from values with the parts in which they hold.

    None is a gap.
    """
    lowest: list[float | None] = [None] * VALUE_PARTS
    highest: list[float | None] = [None] * VALUE_PARTS
    for parts, value in held:
        for part in parts:
            low, high = lowest[part], highest[part]
            lowest[part] = value if low is None else min(low, value)
            highest[part] = value if high is None else max(high, value)
    return tuple(lowest), tuple(highest)


def _held(load: LoadHistory, column: Column) -> Iterator[tuple[float, float, float | None]]:
    """Yields the time of each value, the time until which it holds, and the value; a gap where times are missing."""
    times = load.times
    longest = STALE_STEPS * load.step
    for time, later, value in zip(times, (*times[1:], times[-1]), column, strict=True):
        until = min(later, time + longest)
        yield time, until, value
        if until < later:
            yield until, later, None


def steps(load: LoadHistory, column: Column) -> Steps:
    """Returns the changes of a count, and its last time."""
    found: list[tuple[float, int | None]] = []
    for time, until, value in _held(load, column) if column else ():
        count = None if value is None else round(value)
        if not found or found[-1][1] != count:
            found.append((time, count))
        last = until, count
    return [*found, last] if found else found


def thinned(curve: Steps, begin: float, end: float) -> Steps:
    """Keeps of the changes within one part the first, the last, the lowest and the highest, and each gap."""
    if len(curve) <= PARTS:
        return tuple(curve)
    kept: list[tuple[float, int | None]] = []
    length = (end - begin) / PARTS
    for _, changes in itertools.groupby(curve, lambda each: ((each[0] - begin) // length, each[1] is None)):
        group = list(changes)
        wanted = {group[0], min(group, key=_count), max(group, key=_count), group[-1]}
        kept.extend(sorted(wanted, key=lambda each: each[0]))
    return tuple(kept)


def _count(step: tuple[float, int | None]) -> int:
    return step[1] or 0

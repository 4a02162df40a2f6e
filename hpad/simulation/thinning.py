"""Thins histories to the width of a chart: metrics with their goals, and changes of counts, in equal parts."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

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
    found.sort(key=_pressure, reverse=True)
    return tuple(_chart(each, load) for each in found[:_METRICS])


class _Compared(NamedTuple):
    """A metric in the form in which it is compared with its goal."""

    address: str
    metric: CompiledMetric
    column: Column
    per_replica: bool

    @property
    def goal(self) -> float | None:
        metric = self.metric
        unknown = metric.error is not None or (is_total(metric) and not self.per_replica)
        return None if unknown else goal_of(metric)


def _compared(address: str, metric: CompiledMetric, load: LoadHistory) -> _Compared:
    column, counts = load.columns[address], load.columns.get(REPLICAS)
    if counts is None or not is_total(metric):
        return _Compared(address, metric, column, per_replica=False)
    shared = pointwise(lambda value, count: value / max(1.0, count), column, counts)
    return _Compared(address, metric, shared, per_replica=True)


def _pressure(each: _Compared) -> float:
    """Returns the mean value as a share of the goal."""
    known = [value for value in each.column if value is not None]
    return sum(known) / len(known) / each.goal if known and each.goal else 0.0


def _chart(each: _Compared, load: LoadHistory) -> MetricChart:
    lowest, highest = extremes(_in_parts(load, each.column))
    return MetricChart(
        address=each.address,
        unit=PERCENT if each.metric.kind == UTILIZATION else each.metric.unit.value,
        goal=each.goal,
        lowest=lowest,
        highest=highest,
        per_replica=each.per_replica,
    )


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

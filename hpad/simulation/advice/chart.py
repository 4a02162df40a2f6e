"""What is drawn of one HPA: its past and its curves, thinned to the width of a chart."""

import itertools
import math
from collections.abc import Iterator
from typing import Final

from hpad.engine.spec import UTILIZATION, CompiledMetric, compiled_spec
from hpad.simulation.advice.assessment import Chart, Curve, MetricChart, Steps
from hpad.simulation.advice.past import Column, HpaPast
from hpad.simulation.history import REPLICAS, STALE_STEPS, LoadHistory, named

PARTS: Final = 700
"""Parts of equal length that the time of a chart has; about the pixels of its width."""
_METRICS: Final = 3
"""Metrics that are drawn."""


def chart_of(past: HpaPast, modelled: Curve, advised: Curve) -> Chart | None:
    """Returns the chart; None if the past has less than two times."""
    load = past.load
    if len(load.times) < 2:
        return None
    span = load.times[0], load.times[-1]
    return Chart(
        begin=span[0],
        end=span[1],
        metrics=tuple(_metrics(past)),
        recorded=_thinned(_steps(load, load.columns.get(REPLICAS, ())), *span),
        modelled=_thinned(modelled, *span),
        advised=_thinned(advised, *span),
        minimum=_thinned(_steps(load, past.minimum), *span),
        maximum=_thinned(_steps(load, past.maximum), *span),
    )


def _metrics(past: HpaPast) -> Iterator[MetricChart]:
    """Yields the metrics that have values, the one with the highest values compared with its goal first."""
    specs = dict(zip(named(past.hpa), compiled_spec(past.hpa).metrics, strict=True))
    columns = {address: past.load.columns[address] for address in specs if address in past.load.columns}
    order = sorted(columns, key=lambda each: _pressure(columns[each], _goal(specs[each])), reverse=True)
    for address in order[:_METRICS]:
        metric = specs[address]
        lowest, highest = _extremes(past.load, columns[address])
        unit = "%" if metric.kind == UTILIZATION else metric.unit.value
        yield MetricChart(address=address, unit=unit, goal=_goal(metric), lowest=lowest, highest=highest)


def _goal(metric: CompiledMetric) -> float | None:
    if metric.error is not None:
        return None
    return float(metric.amount) if metric.kind == UTILIZATION else metric.amount / 1000


def _pressure(column: Column, goal: float | None) -> float:
    """Returns the mean value as a share of the goal."""
    known = [value for value in column if value is not None]
    return sum(known) / len(known) / goal if known and goal else 0.0


def _extremes(load: LoadHistory, column: Column) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
    """Returns the lowest and the highest value of each part. A value holds until the next time."""
    lowest: list[float | None] = [None] * PARTS
    highest: list[float | None] = [None] * PARTS
    begin, end = load.times[0], load.times[-1]
    for time, until, value in _held(load, column):
        if value is None:
            continue
        first, after = _part(time, begin, end), math.ceil((until - begin) / (end - begin) * PARTS)
        for part in range(first, max(after, first + 1)):
            low, high = lowest[part], highest[part]
            lowest[part] = value if low is None else min(low, value)
            highest[part] = value if high is None else max(high, value)
    return tuple(lowest), tuple(highest)


def _part(time: float, begin: float, end: float) -> int:
    return min(PARTS - 1, int((time - begin) / (end - begin) * PARTS))


def _held(load: LoadHistory, column: Column) -> Iterator[tuple[float, float, float | None]]:
    """Yields the time of each value, the time until which it holds, and the value; a gap where times are missing."""
    times = load.times
    longest = STALE_STEPS * load.step
    for time, later, value in zip(times, (*times[1:], times[-1]), column, strict=True):
        until = min(later, time + longest)
        yield time, until, value
        if until < later:
            yield until, later, None


def _steps(load: LoadHistory, column: Column) -> Steps:
    """Returns the changes of a count, and its last time."""
    found: list[tuple[float, int | None]] = []
    for time, until, value in _held(load, column) if column else ():
        count = None if value is None else round(value)
        if not found or found[-1][1] != count:
            found.append((time, count))
        last = until, count
    return [*found, last] if found else found


def _thinned(steps: Steps, begin: float, end: float) -> Steps:
    """Keeps of the changes within one part the first, the last, the lowest and the highest, and each gap."""
    if len(steps) <= PARTS:
        return tuple(steps)
    kept: list[tuple[float, int | None]] = []
    for _, changes in itertools.groupby(steps, lambda each: (_part(each[0], begin, end), each[1] is None)):
        group = list(changes)
        extremes = (group[0], min(group, key=_count), max(group, key=_count), group[-1])
        kept.extend(sorted(set(extremes)))
    return tuple(kept)


def _count(step: tuple[float, int | None]) -> int:
    return step[1] or 0

"""The metrics of an HPA over the time of a chart, with their goals."""

from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.spec import UTILIZATION, CompiledMetric, compiled_spec
from hpad.simulation.history import LoadHistory, named
from hpad.simulation.thinning import Column, Extremes, extremes

PERCENT: Final = "%"
_METRICS: Final = 3
"""Metrics that are drawn."""


class MetricChart(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric in the parts of a chart (`thinning.VALUE_PARTS`); None is a gap.

    `unit` is "%", or the value of an `api.amounts.Unit`; `goal` is the metric target of now.
    """

    address: str
    unit: str
    goal: float | None
    lowest: Extremes
    highest: Extremes


def metric_charts(hpa: HorizontalPodAutoscaler, load: LoadHistory) -> tuple[MetricChart, ...]:
    """Returns the metrics that have values, the one with the highest values compared with its goal first."""
    specs = dict(zip(named(hpa), compiled_spec(hpa).metrics, strict=True))
    columns = {address: load.columns[address] for address in specs if address in load.columns}
    order = sorted(columns, key=lambda each: _pressure(columns[each], _goal(specs[each])), reverse=True)
    return tuple(_chart(address, specs[address], load) for address in order[:_METRICS])


def _chart(address: str, metric: CompiledMetric, load: LoadHistory) -> MetricChart:
    lowest, highest = extremes(load, load.columns[address])
    unit = PERCENT if metric.kind == UTILIZATION else metric.unit.value
    return MetricChart(address=address, unit=unit, goal=_goal(metric), lowest=lowest, highest=highest)


def _goal(metric: CompiledMetric) -> float | None:
    if metric.error is not None:
        return None
    return float(metric.amount) if metric.kind == UTILIZATION else metric.amount / 1000


def _pressure(column: Column, goal: float | None) -> float:
    """Returns the mean value as a share of the goal."""
    known = [value for value in column if value is not None]
    return sum(known) / len(known) / goal if known and goal else 0.0

"""The metrics of an HPA over the time of a chart, with their goals."""

from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.spec import UTILIZATION, CompiledMetric, compiled_spec
from hpad.simulation.history import REPLICAS, LoadHistory, is_total, named
from hpad.simulation.thinning import Column, Extremes, extremes

PERCENT: Final = "%"
_METRICS: Final = 3
"""Metrics that are drawn."""


class MetricChart(msgspec.Struct, frozen=True, kw_only=True):
    """The values of one metric in the parts of a chart (`thinning.VALUE_PARTS`); None is a gap.

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
    metrics = dict(zip(named(hpa), compiled_spec(hpa).metrics, strict=True))
    found = [_compared(address, metrics[address], load) for address in metrics if address in load.columns]
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
        if metric.error is not None or (is_total(metric) and not self.per_replica):
            return None
        return float(metric.amount) if metric.kind == UTILIZATION else metric.amount / 1000


def _compared(address: str, metric: CompiledMetric, load: LoadHistory) -> _Compared:
    column, counts = load.columns[address], load.columns.get(REPLICAS)
    if counts is None or not is_total(metric):
        return _Compared(address, metric, column, per_replica=False)
    shared = [
        None if value is None or count is None else value / max(1.0, count)
        for value, count in zip(column, counts, strict=True)
    ]
    return _Compared(address, metric, shared, per_replica=True)


def _pressure(each: _Compared) -> float:
    """Returns the mean value as a share of the goal."""
    known = [value for value in each.column if value is not None]
    return sum(known) / len(known) / each.goal if known and each.goal else 0.0


def _chart(each: _Compared, load: LoadHistory) -> MetricChart:
    lowest, highest = extremes(load, each.column)
    return MetricChart(
        address=each.address,
        unit=PERCENT if each.metric.kind == UTILIZATION else each.metric.unit.value,
        goal=each.goal,
        lowest=lowest,
        highest=highest,
        per_replica=each.per_replica,
    )

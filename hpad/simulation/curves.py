"""The charts of one HPA: a metric with its goal, and all its replica curves on one scale."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hpad.api.amounts import Unit
from hpad.engine.words import percent
from hpad.simulation import charts
from hpad.simulation.charts import COUNT_OF_REPLICAS, ChartLine, ChartScale
from hpad.simulation.thinning import PARTS, PERCENT, MetricChart, Steps

RECORDED: Final = "recorded"
MODELLED: Final = "modelled"
ADVISED: Final = "advised"
_NEAR: Final = 1.6
"""A bound up to so many times the highest count belongs to the scale; a farther one would flatten the curves."""
_UNITS: Final = {PERCENT: "% of the request", Unit.CORES.value: "cores", Unit.BYTES.value: "bytes"}


class ReplicaCurve(NamedTuple):
    """A curve of replica counts: its look (RECORDED, MODELLED or ADVISED), and its name in the legend."""

    look: str
    name: str
    steps: Steps


def metric_chart(metric: MetricChart, begin: float, end: float) -> str:
    """Returns the chart of a metric: the band of its lowest and highest values, and its goal."""
    low = [value for value in metric.lowest if value is not None]
    high = [value for value in metric.highest if value is not None]
    goals = [] if metric.goal is None else [metric.goal]
    scale = ChartScale.of(begin, end, [*low, *high, *goals], metric.unit)
    note = f"{_written(min(low), metric.unit)} to {_written(max(high), metric.unit)}" if low else "no values"
    lines = [
        ChartLine("band", "", charts.band_path(metric.lowest, metric.highest, scale)),
        ChartLine("load", metric.address, charts.middle_path(metric.lowest, metric.highest, scale), note),
    ]
    lines += [ChartLine("goal", "goal", charts.level_path(goal, scale), _written(goal, metric.unit)) for goal in goals]
    parts = ["Load", _UNITS.get(metric.unit, ""), "per replica" if metric.per_replica else ""]
    return charts.chart(", ".join(filter(None, parts)), lines, scale)


def _written(value: float, unit: str) -> str:
    return percent(value / 100) if unit == PERCENT else charts.amount(value, unit)


def replica_chart(
    curves: Sequence[ReplicaCurve], begin: float, end: float, minimum: Steps = (), maximum: Steps = ()
) -> str:
    """Returns the chart of the curves, with the bounds of the HPA, on one scale of whole numbers."""
    highest = max((count for curve in curves for count in _counts(curve.steps)), default=0)
    bounds = [("minimum", minimum), ("maximum", maximum)]
    near = [bound for bound in bounds if max(_counts(bound[1]), default=0) <= max(1, highest) * _NEAR]
    values = [highest, *(count for _, steps in near for count in _counts(steps))]
    scale = ChartScale.of(begin, end, values, COUNT_OF_REPLICAS)
    lines = [
        *(line for curve in curves if curve.look == RECORDED for line in _below(curve.steps, scale)),
        *(_bound(name, steps, scale, near=(name, steps) in near) for name, steps in bounds if _counts(steps)),
        *(_curve(curve, scale) for curve in curves if curve.steps),
    ]
    return charts.chart("Replicas", lines, scale)


def _below(steps: Steps, scale: ChartScale) -> Iterator[ChartLine]:
    """Yields the area below the recorded curve, and its gaps."""
    gaps = charts.gap_path(steps, scale)
    yield ChartLine("gap", "not known" if gaps else "", gaps)
    yield ChartLine("below", "", charts.area_path(steps, scale))


def _curve(curve: ReplicaCurve, scale: ChartScale) -> ChartLine:
    """Returns the line of a curve; where it changes too often for a line, the band of its counts."""
    if len(curve.steps) > PARTS:
        band = charts.band_path(*charts.extremes_of(curve.steps, scale), scale)
        return ChartLine(f"{curve.look} dense", curve.name, band, _range(curve.steps))
    return ChartLine(curve.look, curve.name, charts.step_path(curve.steps, scale), _range(curve.steps))


def _bound(name: str, steps: Steps, scale: ChartScale, *, near: bool) -> ChartLine:
    if not near:
        return ChartLine("bound", name, "", f"{_range(steps)}, above the chart")
    return ChartLine("bound", name, charts.step_path(steps, scale), _range(steps))


def _counts(steps: Steps) -> list[int]:
    return [count for _, count in steps if count is not None]


def _range(steps: Steps) -> str:
    low, high = min(_counts(steps), default=0), max(_counts(steps), default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"

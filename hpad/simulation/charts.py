"""Charts as HTML: SVG paths in whole numbers, with texts beside them that keep their size at any width.

A chart is `PARTS` units wide and `HEIGHT` high, and is stretched to its place; strokes and texts are not. The looks of
lines are classes of `web/page.css`.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final, NamedTuple

from hpad.api import amounts
from hpad.api.amounts import Unit
from hpad.engine.words import percent
from hpad.simulation.document import escaped, prose
from hpad.simulation.thinning import PARTS, PERCENT, VALUE_PARTS, Extremes, MetricChart, Steps, extremes

HEIGHT: Final = 240
_WIDTH: Final = PARTS // VALUE_PARTS
"""Units of a part of values."""
COUNT_OF_REPLICAS: Final = "replicas"
"""The unit of a replica count."""
RECORDED: Final = "recorded"
MODELLED: Final = "modelled"
ADVISED: Final = "advised"
_NEAR: Final = 1.6
"""A bound up to so many times the highest count belongs to the scale; a farther one would flatten the curves."""
_UNITS: Final = {PERCENT: "% of the request", Unit.CORES.value: "cores", Unit.BYTES.value: "bytes"}
_ROWS: Final = 4
"""Spaces between the lines of the grid, about."""
_MARKS: Final = 8
"""Times on the axis, at most."""
_DAY: Final = 86_400
_INTERVALS: Final = (60, 300, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, _DAY, 2 * _DAY, 7 * _DAY, 28 * _DAY)
_MONDAY: Final = 4 * _DAY
"""The first Monday after the begin of 1970, so that weeks are marked at their begin."""
_ROOM: Final = 0.05
"""The share of the width that a text on the axis of times needs."""
_WIDE: Final = 0.16
"""The same on a narrow screen."""


class ChartScale(NamedTuple):
    """The times and values of a chart. `ticks` are round numbers at equal distances, ascending; `unit` is theirs."""

    begin: float
    end: float
    ticks: Sequence[float]
    unit: str

    @classmethod
    def of(cls, begin: float, end: float, values: Iterable[float], unit: str) -> "ChartScale":
        """Returns the scale from zero that all values fit into."""
        return cls(begin, end, ticks(values, unit), unit)

    def x(self, time: float) -> int:
        return round((time - self.begin) / ((self.end - self.begin) or 1.0) * PARTS)

    def y(self, value: float) -> int:
        low, high = self.ticks[0], self.ticks[-1]
        return round((high - value) / (high - low) * HEIGHT)


class ChartLine(NamedTuple):
    """One line: its look, its name in the legend, the SVG path, and a note behind the name, such as "2 to 9"."""

    look: str
    name: str
    path: str
    note: str = ""


def ticks(values: Iterable[float], unit: str) -> list[float]:
    """Returns round numbers at equal distances, from one at or below zero and all values to one at or above them.

    Those of replicas are whole; those of bytes are round in Ki, Mi and so on.
    """
    found = [0.0, *values]
    low, high = min(found), max(found)
    unity = 1024.0 ** math.floor(math.log(high, 1024)) if unit == Unit.BYTES.value and high >= 1024 else 1.0
    size = (high - low) / unity / _ROWS or 1 / _ROWS
    power = 10.0 ** math.floor(math.log10(size))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= size * 0.999)
    step = max(1.0, step) if unit == COUNT_OF_REPLICAS else step
    first = math.floor(low / unity / step)
    last = max(math.ceil(high / unity / step), first + 1)
    return [number * step * unity for number in range(first, last + 1)]


def amount(value: float, unit: str) -> str:
    """Returns a value with its unit: "1,500", "60 %", "512Mi"."""
    if unit == COUNT_OF_REPLICAS:
        return f"{round(value):,}"
    if unit == PERCENT:
        return f"{amounts.rounded(_milli(value))} %"
    if unit == Unit.CORES.value and 0 < abs(value) < 1:
        return f"{amounts.rounded(_milli(value * 1000))}m"
    text = amounts.rounded(_milli(value), unit=Unit(unit))
    return f"{int(text):,}" if text.isdigit() else text


def _milli(value: float) -> Fraction:
    return Fraction(value).limit_denominator(10**9) * 1000


def step_path(curve: Steps, scale: ChartScale) -> str:
    """Returns the path of a count that holds until it changes."""
    return "".join(part for run in _runs(curve) for part in _stairs(run, scale))


def _runs(curve: Steps) -> Iterator[list[tuple[float, int]]]:
    """Yields the parts of a curve between its gaps; each ends with the time at which its last count ends."""
    run: list[tuple[float, int]] = []
    for time, count in curve:
        if count is not None:
            run.append((time, count))
        elif run:
            yield [*run, (time, run[-1][1])]
            run = []
    if len(run) > 1:
        yield run


def _stairs(run: Sequence[tuple[float, int]], scale: ChartScale) -> Iterator[str]:
    x, y = scale.x(run[0][0]), scale.y(run[0][1])
    yield f"M{x} {y}"
    for time, count in run[1:]:
        across, down = scale.x(time) - x, scale.y(count) - y
        last = (time, count) == run[-1]
        if across and (down or last):
            yield f"h{across}"
            x += across
        if down:
            yield f"v{down}"
            y += down


def band_path(lowest: Extremes, highest: Extremes, scale: ChartScale) -> str:
    """Returns the path around the lowest and highest values of each part."""
    parts: list[str] = []
    for run in _known(lowest):
        above = [(part * _WIDTH, scale.y(highest[part] or 0.0)) for part in run]
        below = [(part * _WIDTH, scale.y(lowest[part] or 0.0)) for part in run]
        end = (run[-1] + 1) * _WIDTH
        parts.append(f"{_joined([*above, (end, above[-1][1]), (end, below[-1][1]), *reversed(below)])}z")
    return "".join(parts)


def middle_path(lowest: Extremes, highest: Extremes, scale: ChartScale) -> str:
    """Returns the path halfway between the lowest and highest values of each part."""
    parts: list[str] = []
    for run in _known(lowest):
        points = [(part * _WIDTH, scale.y(((lowest[part] or 0.0) + (highest[part] or 0.0)) / 2)) for part in run]
        parts.append(_joined([*points, ((run[-1] + 1) * _WIDTH, points[-1][1])]))
    return "".join(parts)


def _known(values: Extremes) -> Iterator[list[int]]:
    """Yields the parts between the gaps."""
    for is_known, group in itertools.groupby(range(len(values)), lambda part: values[part] is not None):
        if is_known:
            yield list(group)


def _joined(points: Sequence[tuple[int, int]]) -> str:
    """Returns the path through these points, without those in the middle of horizontal lines."""
    kept = [
        point
        for index, point in enumerate(points)
        if index in (0, len(points) - 1) or not points[index - 1][1] == point[1] == points[index + 1][1]
    ]
    x, y = kept[0]
    text = [f"M{x} {y}l"]
    for across, down in kept[1:]:
        text.append(f"{'' if across < x or len(text) == 1 else ' '}{across - x}{'' if down < y else ' '}{down - y}")
        x, y = across, down
    return "".join(text)


def extremes_of(curve: Steps, scale: ChartScale) -> tuple[Extremes, Extremes]:
    """Returns the lowest and the highest count of each part; None in a gap."""

    def in_parts() -> Iterator[tuple[range, float]]:
        for (time, count), (later, _) in itertools.pairwise(curve):
            if count is not None:
                first = scale.x(time) // _WIDTH
                yield range(first, min(VALUE_PARTS, max(first + 1, -(-scale.x(later) // _WIDTH)))), count

    return extremes(in_parts())


def level_path(value: float, scale: ChartScale) -> str:
    """Returns the path of a horizontal line."""
    return f"M0 {scale.y(value)}h{PARTS}"


def gap_path(curve: Steps, scale: ChartScale) -> str:
    """Returns the path of the times in which a count is not known."""
    edges = [scale.begin, *(time for run in _runs(curve) for time in (run[0][0], run[-1][0])), scale.end]
    gaps = [(scale.x(begin), scale.x(end)) for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    return "".join(f"M{begin} 0h{end - begin}v{HEIGHT}h{begin - end}z" for begin, end in gaps if end > begin)


def chart(title: str, lines: Sequence[ChartLine], scale: ChartScale) -> str:
    """Returns the chart with its legend and axes. The lines are drawn in their order."""
    named = sorted((each for each in lines if each.name), key=lambda each: each.look in ("bound", "gap"))
    legend = "".join(map(_entry, named))
    paths = "".join(f'<path class="{each.look}" d="{each.path}"/>' for each in lines if each.path)
    said = ", ".join(f"{each.name} {each.note}".strip() for each in named)
    return (
        f'<figure class="chart"><figcaption><b>{escaped(title)}</b><ul class="legend">{legend}</ul></figcaption>'
        f'<div class="plot"><div class="ys" aria-hidden="true">{_heights(scale)}</div>'
        f'<svg class="area" viewBox="0 0 {PARTS} {HEIGHT}" preserveAspectRatio="none" role="img"{_data(scale)}'
        f' aria-label="{escaped(f"{title} over time: {said}")}">{_grid(scale)}{paths}</svg>'
        f'<svg class="xs" aria-hidden="true">{"".join(_times(scale))}</svg></div></figure>'
    )


def _data(scale: ChartScale) -> str:
    """Returns what a script needs to read values from the paths."""
    low, high = scale.ticks[0], scale.ticks[-1]
    times = f'data-begin="{scale.begin:.0f}" data-end="{scale.end:.0f}"'
    return f' {times} data-low="{low:g}" data-high="{high:g}" data-unit="{scale.unit}"'


def _entry(line: ChartLine) -> str:
    note = f" <i>{prose(line.note)}</i>" if line.note else ""
    return f"<li>{key(line.look)}<span>{escaped(line.name)}{note}</span></li>"


def key(look: str) -> str:
    """Returns a piece of a line of this look, for legends."""
    return f'<svg class="key" viewBox="0 0 22 10" aria-hidden="true"><path class="{look}" d="M0 5h22"/></svg>'


def _heights(scale: ChartScale) -> str:
    return "".join(f"<span>{amount(each, scale.unit)}</span>" for each in reversed(scale.ticks))


def _grid(scale: ChartScale) -> str:
    rows = "".join(level_path(each, scale) for each in scale.ticks)
    days = "".join(f"M{scale.x(time)} 0v{HEIGHT}" for time, is_day in marks(scale.begin, scale.end) if is_day)
    return f'<path class="grid" d="{rows}"/><path class="day" d="{days}"/>'


def _times(scale: ChartScale) -> Iterator[str]:
    length = (scale.end - scale.begin) or 1.0
    for index, (time, is_day) in enumerate(marks(scale.begin, scale.end)):
        share = (time - scale.begin) / length
        if share <= 1 - _ROOM:
            tight = ' class="tight"' if index % 2 or share > 1 - _WIDE else ""
            at = datetime.fromtimestamp(time, UTC)
            yield f'<text x="{share * 100:.4g}%" y="13" dx="3"{tight}>{at:{"%a %-d" if is_day else "%H:%M"}}</text>'


def marks(begin: float, end: float) -> list[tuple[int, bool]]:
    """Returns round times in UTC on the axis, and whether a day begins there."""
    length = end - begin
    interval = next((each for each in _INTERVALS if length / each <= _MARKS), _INTERVALS[-1])
    shift = _MONDAY if interval > _DAY else 0
    first = math.ceil((begin - shift) / interval) * interval + shift
    return [(time, time % _DAY == 0) for time in range(first, math.floor(end) + 1, interval)]


# The charts of one HPA: a metric with its goal, and all its replica curves on one scale.


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
        ChartLine("band", "", band_path(metric.lowest, metric.highest, scale)),
        ChartLine("load", metric.address, middle_path(metric.lowest, metric.highest, scale), note),
    ]
    lines += [ChartLine("goal", "goal", level_path(goal, scale), _written(goal, metric.unit)) for goal in goals]
    parts = ["Load", _UNITS.get(metric.unit, ""), "per replica" if metric.per_replica else ""]
    return chart(", ".join(filter(None, parts)), lines, scale)


def _written(value: float, unit: str) -> str:
    return percent(value / 100) if unit == PERCENT else amount(value, unit)


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
        *(_gaps(curve.steps, scale) for curve in curves if curve.look == RECORDED),
        *(_bound(name, steps, scale, near=(name, steps) in near) for name, steps in bounds if _counts(steps)),
        *(_curve(curve, scale) for curve in curves if curve.steps),
    ]
    return chart("Replicas", lines, scale)


def _gaps(steps: Steps, scale: ChartScale) -> ChartLine:
    gaps = gap_path(steps, scale)
    return ChartLine("gap", "not known" if gaps else "", gaps)


def _curve(curve: ReplicaCurve, scale: ChartScale) -> ChartLine:
    """Returns the line of a curve; where it changes too often for a line, the band of its counts."""
    if len(curve.steps) > PARTS:
        band = band_path(*extremes_of(curve.steps, scale), scale)
        return ChartLine(f"{curve.look} dense", curve.name, band, _range(curve.steps))
    return ChartLine(curve.look, curve.name, step_path(curve.steps, scale), _range(curve.steps))


def _bound(name: str, steps: Steps, scale: ChartScale, *, near: bool) -> ChartLine:
    if not near:
        return ChartLine("bound", name, "", f"{_range(steps)}, above the chart")
    return ChartLine("bound", name, step_path(steps, scale), _range(steps))


def _counts(steps: Steps) -> list[int]:
    return [count for _, count in steps if count is not None]


def _range(steps: Steps) -> str:
    low, high = min(_counts(steps), default=0), max(_counts(steps), default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"

"""Draws replicas over time with block characters."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpad.lab.demo.style import Style

EIGHTHS = " ▁▂▃▄▅▆▇█"
MARGIN = 10
MOST_ROWS = 8
SECONDS_A_TICK = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300)
NARROWEST_TICK = 8


class Point(NamedTuple):
    """Replicas and metric `at` seconds after the start; `reading` is in the metric's unit, None without a value."""

    at: float
    replicas: int
    reading: float | None = None


def chart(
    points: Sequence[Point], width: int, style: Style, *, label: str = "", rows: int = MOST_ROWS, span: float = 1.0
) -> list[str]:
    """Returns the lines of a chart `width` columns wide: bars of replicas, a time axis, and a curve of the metric.

    Each column is a slice of time and shows its maximum of replicas and of readings, so that short peaks are visible.
    `label` names the metric; the axis has at least `span` seconds. Without points there are no lines.
    """
    if not points:
        return []
    columns = max(10, width - MARGIN - 1)
    span = max(points[-1].at, span)
    replicas = _columns(points, columns, span, lambda point: float(point.replicas))
    lines = [*_bars(replicas, rows, style), *_axis(columns, span, style)]
    if label:
        readings = _columns(points, columns, span, lambda point: point.reading or 0.0)
        lines.append(f"{label:>{MARGIN - 2}.{MARGIN - 2}}  {style.reading(_curve(readings).rstrip())}".rstrip())
    return lines


def _columns(points: Sequence[Point], columns: int, span: float, value: Callable[[Point], float]) -> list[float]:
    """Returns one value per column: the maximum in its slice of time, or the last value before an empty slice."""
    slices: list[list[float]] = [[] for _ in range(columns)]
    for point in points:
        slices[_column(point.at, columns, span)].append(value(point))
    last, result = value(points[0]), []
    for within in slices[: _column(points[-1].at, columns, span) + 1]:
        result.append(max(within, default=last))
        last = within[-1] if within else last
    return result + [0.0] * (columns - len(result))


def _column(at: float, columns: int, span: float) -> int:
    return min(columns - 1, int(at / span * columns))


def _bars(replicas: Sequence[float], rows: int, style: Style) -> list[str]:
    per_row = max(1, math.ceil(max(replicas) / max(1, rows)))
    count = max(1, math.ceil(max(replicas) / per_row))
    lines = []
    for row in reversed(range(count)):
        cells = "".join(_block((value - row * per_row) / per_row) for value in replicas)
        lines.append(f"{(row + 1) * per_row:>{MARGIN - 2}} ┤{style.bar(cells)}")
    return lines


def _block(fullness: float) -> str:
    """Returns a cell filled from below: empty at 0 or less, full at 1 or more."""
    return EIGHTHS[round(min(1.0, max(0.0, fullness)) * 8)]


def _axis(columns: int, span: float, style: Style) -> list[str]:
    """Returns two lines: the axis with ticks at round seconds, and the numbers of seconds."""
    step = next((each for each in SECONDS_A_TICK if each / span * columns >= NARROWEST_TICK), SECONDS_A_TICK[-1])
    line, numbers = ["─"] * columns, [" "] * (columns + NARROWEST_TICK)
    for seconds in range(0, int(span) + 1, step):
        column = _column(seconds, columns, span)
        line[column] = "┴"
        text = f"{seconds} s"
        numbers[column : column + len(text)] = text
    pad = " " * (MARGIN - 1)
    shown = "".join(numbers)[:columns].rstrip()
    return [style.dim(f"{pad}└{''.join(line)}"), style.dim(f"{pad} {shown}")]


def _curve(values: Sequence[float]) -> str:
    """Draws each value as the height of one character; 0 is blank, any value above 0 is visible."""
    top = max(values) or 1.0
    return "".join(EIGHTHS[max(1, round(value / top * 8))] if value > 0 else " " for value in values)

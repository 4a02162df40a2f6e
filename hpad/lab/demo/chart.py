"""Replicas over time, drawn with block characters."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hpad.lab.demo.style import Style

EIGHTHS = " ▁▂▃▄▅▆▇█"
MARGIN = 10
MOST_ROWS = 8
SECONDS_A_TICK = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300)
NARROWEST_TICK = 8


@dataclass(frozen=True)
class Point:
    """What was seen `at` seconds after the start: the replicas, and the metric (in its own unit, None: no reading)."""

    at: float
    replicas: int
    reading: float | None = None


def chart(
    points: Sequence[Point], width: int, style: Style, *, label: str = "", rows: int = MOST_ROWS, span: float = 1.0
) -> list[str]:
    """The lines of a chart `width` columns wide: bars of replicas, a time axis, and the metric as a small curve.

    One column stands for a slice of time and shows the most replicas and the highest reading in it, so that nothing
    that was there for a moment is lost. `label` names the metric; `span` is the least number of seconds on the
    axis, and what is not there yet is left blank. No points give no lines.
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
    """One value a column: the highest of the points in its slice of time, or what the one before it left behind."""
    slices: list[list[float]] = [[] for _ in range(columns)]
    for point in points:
        slices[_column(point.at, columns, span)].append(value(point))
    held, result = value(points[0]), []
    for within in slices[: _column(points[-1].at, columns, span) + 1]:
        result.append(max(within, default=held))
        held = within[-1] if within else held
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
    """A cell filled from below: 0 or less is empty, 1 or more is full."""
    return EIGHTHS[round(min(1.0, max(0.0, fullness)) * 8)]


def _axis(columns: int, span: float, style: Style) -> list[str]:
    """The axis with a tick at round seconds, and the seconds below."""
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
    """Each value as the height of one character; nothing at all is blank, anything above nothing is visible."""
    top = max(values) or 1.0
    return "".join(EIGHTHS[max(1, round(value / top * 8))] if value > 0 else " " for value in values)

"""A metric over time, drawn with block characters. Where there was no value the graph has a gap, not a zero."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from hpad.api import amounts
from hpad.lab.demo.chart import EIGHTHS

ROWS: Final = 8
MARGIN: Final = 10
GAP: Final = "·"
_TICK: Final = 16
"""Columns from one time on the axis to the next, at least."""
_ONE_DAY: Final = timedelta(days=1)


def graph(values: Sequence[int | None], begin: datetime, end: datetime, width: int) -> list[str]:
    """The lines of a graph at most `width` columns wide; `values`, in thousandths, are at equal distances in time.

    A column shows the highest value of its slice of time. No value at all gives no lines.
    """
    known = [value for value in values if value is not None]
    if not known:
        return []
    columns = _columns(values, max(_TICK, width - MARGIN - 1))
    low, high = min(0, *known), max(0, *known)
    scale = (high - low) or 1000
    lines = []
    for row in reversed(range(ROWS)):
        cells = "".join(_cell(value, low, scale, row) for value in columns)
        top = amounts.rounded(low + scale * (row + 1) // ROWS)
        lines.append(f"{top:>{MARGIN - 2}} ┤{cells.rstrip()}")
    return [*lines, *_axis(len(columns), begin, end)]


def _columns(values: Sequence[int | None], most: int) -> list[int | None]:
    """One value a column, or several columns of one value where there are few."""
    count = most if len(values) > most else len(values) * (most // len(values))
    found: list[int | None] = []
    for column in range(count):
        first = column * len(values) // count
        within = values[first : max(first + 1, (column + 1) * len(values) // count)]
        found.append(max((value for value in within if value is not None), default=None))
    return found


def _cell(value: int | None, low: int, scale: int, row: int) -> str:
    """A cell of a column; the lowest value is a line at the bottom, and a gap a dot."""
    if value is None:
        return GAP if row == 0 else " "
    eighths = round((value - low) * ROWS * 8 / scale) - row * 8
    return EIGHTHS[min(8, max(1 if row == 0 else 0, eighths))]


def _axis(columns: int, begin: datetime, end: datetime) -> list[str]:
    """The axis with times, from the first to the last."""
    form = "%H:%M" if end - begin < _ONE_DAY else "%m-%d %H:%M"
    ticks = max(1, columns // _TICK)
    line, numbers = ["─"] * columns, [" "] * columns
    for tick in range(ticks):
        column = tick * columns // ticks
        line[column] = "┴"
        text = (begin + (end - begin) * column / columns).strftime(form)
        numbers[column : column + len(text)] = text
    last = end.strftime(form)
    if columns - (ticks - 1) * columns // ticks >= 2 * len(last) + 1:
        numbers[columns - len(last) :] = last
    pad = " " * (MARGIN - 1)
    return [f"{pad}└{''.join(line)}", f"{pad} {''.join(numbers).rstrip()}"]

"""Thins histories to the width of a chart: extremes of values, and changes of counts, in parts of equal length."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Final

from hpad.simulation.history import STALE_STEPS, LoadHistory

PARTS: Final = 700
"""Parts of the time of a chart for counts; about the pixels of its width."""
VALUE_PARTS: Final = 350
"""Parts for values of metrics, each of which has two points."""
Column = Sequence[float | None]
Extremes = tuple[float | None, ...]
Steps = Sequence[tuple[float, int | None]]
"""Times in seconds since 1970, and a count from then on; None begins a gap."""


def extremes(load: LoadHistory, column: Column) -> tuple[Extremes, Extremes]:
    """Returns the lowest and the highest value of each part; None in a gap. A value holds until the next time."""
    lowest: list[float | None] = [None] * VALUE_PARTS
    highest: list[float | None] = [None] * VALUE_PARTS
    begin, end = load.times[0], load.times[-1]
    for time, until, value in _held(load, column):
        if value is None:
            continue
        first = min(VALUE_PARTS - 1, int((time - begin) / (end - begin) * VALUE_PARTS))
        after = math.ceil((until - begin) / (end - begin) * VALUE_PARTS)
        for part in range(first, max(after, first + 1)):
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

"""What a spec did over a past: its counts and its ready replicas, and the figures of a part of the time."""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpad.simulation.advice.assessment import Figures
from hpad.simulation.outcome import FLAP

Steps = Sequence[tuple[float, int]]
"""Times in seconds since 1970, ascending, and the count from then on."""
_FLAP = FLAP.total_seconds()


class Course(NamedTuple):
    """The run of one spec up to `end`, in seconds since 1970. `counts` and `ready` have changes only."""

    counts: Steps
    ready: Steps
    end: float


class Needs(NamedTuple):
    """The ready replicas with which each metric would be just at its limit, from each time on; None in a gap.

    `goal`: the limit is the metric's own target with its tolerance. `level`: it is the level of overload. After
    `longest` seconds without a later time, nothing is known.
    """

    times: Sequence[float]
    goal: Sequence[float | None]
    level: Sequence[float | None]
    longest: float


def figures(course: Course, needs: Needs, begin: float, end: float) -> Figures:
    """Returns the figures from `begin` to `end`."""
    parts = list(_parts(course.counts, begin, end))
    counts = [count for _, _, count in parts]
    rescales = _rescales(course.counts, begin, end)
    return Figures(
        seconds=max(0.0, end - begin),
        replica_seconds=sum((later - time) * count for time, later, count in parts),
        above_goal=_short(course.ready, needs, needs.goal, (begin, end)),
        overloaded=_short(course.ready, needs, needs.level, (begin, end)),
        rescales=len(rescales),
        flaps=flaps(rescales),
        lowest=min(counts, default=0),
        highest=max(counts, default=0),
    )


def _parts(steps: Steps, begin: float, end: float) -> Iterator[tuple[float, float, int]]:
    """Yields begin, end and count of each part of the time in which the count stays."""
    first = max(0, bisect_right(steps, begin, key=lambda each: each[0]) - 1)
    for index in range(first, len(steps)):
        time, count = steps[index]
        if time >= end:
            return
        later = steps[index + 1][0] if index + 1 < len(steps) else end
        if min(later, end) > max(time, begin):
            yield max(time, begin), min(later, end), count


def _rescales(counts: Steps, begin: float, end: float) -> list[tuple[float, int]]:
    """Returns the times of changes, and by how much the count changed."""
    pairs = itertools.pairwise(counts)
    return [(time, count - before) for (_, before), (time, count) in pairs if begin <= time < end and count != before]


def flaps(rescales: Sequence[tuple[float, int]]) -> int:
    """Returns the number of rescales within five minutes after one in the other direction."""
    return sum(
        (one > 0) != (two > 0) and later - time <= _FLAP for (time, one), (later, two) in itertools.pairwise(rescales)
    )


def _short(ready: Steps, needs: Needs, needed: Sequence[float | None], span: tuple[float, float]) -> float:
    """Returns the seconds of the span with fewer ready replicas than needed."""
    times, longest, seconds = needs.times, needs.longest, 0.0
    last, index = len(times) - 1, max(0, bisect_right(times, span[0]) - 1)
    for begin, end, count in _parts(ready, *span):
        while index < last and times[index + 1] <= begin:
            index += 1
        while True:
            need, time = needed[index], times[index]
            later = times[index + 1] if index < last else end
            if need is not None and need > count:
                seconds += max(0.0, min(later, end, time + longest) - max(time, begin))
            if later >= end or index == last:
                break
            index += 1
    return seconds

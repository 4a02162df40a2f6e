"""Is it flat? Straight lines through series of samples, and how sure one can be of their slopes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

BLOCKS = 24
"""Neighbouring samples resemble each other (a fault, a burst), which would make a fit look surer than it is. So the
line goes through one point for each of this many stretches of time, which hardly know of each other: the least value in
it. What is needed for a moment, while a source hangs say, is no leak; what is never given back raises the floor."""
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10,
          2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04)  # fmt: skip
"""Student's t for 95 %, two-sided, by degrees of freedom from 1."""


class Slope(NamedTuple):
    """Units an hour: the line's slope, and half the width of its 95 % confidence interval. `floor` is in units."""

    per_hour: float
    margin: float
    floor: float
    hours: float

    @property
    def is_up(self) -> bool:
        """Whether it is distinguishable from flat, and rises."""
        return self.per_hour - self.margin > 0

    @property
    def growth(self) -> float:
        """Units gained over the time observed."""
        return self.per_hour * self.hours


def fitted(points: Sequence[tuple[float, float]], blocks: int = BLOCKS) -> Slope:
    """Least squares through the floors of blocks of (seconds, value). Raises ValueError for fewer than three points."""
    if len(points) < 3:
        raise ValueError(f"{len(points)} samples make no line")
    floors = _floors(points, min(blocks, len(points)))
    n = len(floors)
    middle, mean = (sum(column) / n for column in zip(*floors, strict=True))
    spread = sum((t - middle) ** 2 for t, _ in floors)
    slope = sum((t - middle) * (value - mean) for t, value in floors) / spread
    rest = sum((value - mean - slope * (t - middle)) ** 2 for t, value in floors)
    error = math.sqrt(rest / (n - 2) / spread)
    margin = error * _T_975[min(n - 2, len(_T_975)) - 1]
    return Slope(slope * 3600, margin * 3600, mean, (points[-1][0] - points[0][0]) / 3600)


def _floors(points: Sequence[tuple[float, float]], blocks: int) -> list[tuple[float, float]]:
    edges = [round(number * len(points) / blocks) for number in range(blocks + 1)]
    groups = [points[begin:end] for begin, end in itertools.pairwise(edges) if begin < end]
    return [min(group, key=lambda point: (point[1], point[0])) for group in groups]


class Bound(NamedTuple):
    """What may be gained while one looks before it matters, in `unit`, and why that much. `blocks`: stretches of time
    that hardly know of each other."""

    unit: str
    growth: float
    why: str
    blocks: int = BLOCKS


def leaks(series: Mapping[str, Sequence[tuple[float, float]]], bounds: Mapping[str, Bound]) -> list[str]:
    """A sentence for each series that rises, surely, by more than its bound."""
    found = []
    for name, bound in bounds.items():
        slope = fitted(series[name], bound.blocks)
        if slope.is_up and slope.growth > bound.growth:
            found.append(
                f"{name} is not flat: {slope.per_hour:+.1f} ±{slope.margin:.1f} {bound.unit}/h, "
                f"{slope.growth:+.1f} in all, where {bound.growth:g} may be chance ({bound.why})"
            )
    return found

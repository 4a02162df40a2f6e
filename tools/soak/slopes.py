"""Fits straight lines to series of samples, with confidence intervals, to decide whether a resource grows."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

BLOCKS = 24
"""Number of blocks of time; the line is fitted to the minimum of each block.

Neighbouring samples are correlated (a fault, a burst), so a fit of all samples would have too small an interval; the
blocks are nearly independent. The minimum ignores what is needed for a moment, such as while a source hangs. A leak is
never released, so it raises the minimum.
"""
_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13, 2.12, 2.11, 2.10,
          2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04)  # fmt: skip
"""Student's t for 95 %, two-sided, by degrees of freedom from 1."""


class Slope(NamedTuple):
    """The slope in units per hour, half the width of its 95 % confidence interval, and the mean `floor` in units."""

    per_hour: float
    margin: float
    floor: float
    hours: float

    @property
    def is_up(self) -> bool:
        """Whether the slope is significantly above zero."""
        return self.per_hour - self.margin > 0

    @property
    def growth(self) -> float:
        """Growth over the observed time, in units."""
        return self.per_hour * self.hours


def fitted(points: Sequence[tuple[float, float]], blocks: int = BLOCKS) -> Slope:
    """Fits a line by least squares to the minima of blocks of points; raises ValueError below three points."""
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
    """The growth that is allowed over the observed time, in `unit`, and its reason; `blocks` as for `fitted`."""

    unit: str
    growth: float
    why: str
    blocks: int = BLOCKS


def leaks(series: Mapping[str, Sequence[tuple[float, float]]], bounds: Mapping[str, Bound]) -> list[str]:
    """Returns a sentence for each series that significantly grows by more than its bound."""
    found = []
    for name, bound in bounds.items():
        slope = fitted(series[name], bound.blocks)
        if slope.is_up and slope.growth > bound.growth:
            found.append(
                f"{name} is not flat: {slope.per_hour:+.1f} ±{slope.margin:.1f} {bound.unit}/h, "
                f"{slope.growth:+.1f} in total, where {bound.growth:g} is allowed ({bound.why})"
            )
    return found

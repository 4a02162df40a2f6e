"""What the metrics of an HPA asked for over time, in a few bytes per change."""

import functools
from array import array
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from hpad.decisions.entry import Numbers, Point

_NOTHING: Final = -(1 << 31)
"""Stands for None."""
_LARGEST: Final = (1 << 31) - 1
_MOST_NUMBERS: Final = 512
_FEWEST_POINTS: Final = 16
_MILLISECOND: Final = timedelta(milliseconds=1)


@functools.lru_cache(maxsize=1 << 10)
def _shared(numbers: Numbers) -> Numbers:
    """Returns the same object for equal numbers, which many HPAs have."""
    return numbers


class Points:
    """The changes of recommendation and proposals since `began`: 4 bytes per number, at most about 2 kB.

    The points are rows of 32-bit numbers: milliseconds since `began`, the recommendation, and each proposal.
    """

    __slots__ = ("_began", "_last", "_rows")

    def __init__(self, began: datetime, numbers: Numbers) -> None:
        self._began = began
        self._last = _shared(numbers)
        self._rows = array("i", (0, *_row(numbers)))

    @property
    def full(self) -> bool:
        """Whether the entry should be continued by another."""
        return len(self._rows) >= max(_MOST_NUMBERS, _FEWEST_POINTS * self._width)

    @property
    def _width(self) -> int:
        return 2 + len(self._last[1])

    def __len__(self) -> int:
        return len(self._rows) // self._width

    def note(self, now: datetime, numbers: Numbers) -> None:
        """Adds a point if the numbers have changed. `now` is within 24 days of `began`."""
        if numbers != self._last:
            self._last = _shared(numbers)
            self._rows.extend((_since(self._began, now), *_row(numbers)))

    def split(self, length: int, moment: datetime) -> "Points":
        """Keeps the first `length` points; returns the points from `moment` on."""
        rows, width = self._rows, self._width
        at, shift = length * width, _since(self._began, moment)
        later = Points(moment, self._last)
        rest = rows[at:]
        if not rest or rest[0] > shift:  # the numbers at that moment were those before it
            rest = array("i", (shift, *rows[at - width + 1 : at])) + rest
        rest[::width] = array("i", (offset - shift for offset in rest[::width]))
        later._rows = rest
        self._rows = rows[:at]
        return later

    def packed(self) -> list[int | None]:
        """Returns the rows, each time as the difference to the one before, for `unpacked`."""
        flat: list[int | None] = [None if number == _NOTHING else number for number in self._rows]
        times = self._rows[:: self._width]
        flat[:: self._width] = [now - before for now, before in zip(times, (0, *times), strict=False)]
        return flat


def unpacked(began: datetime, flat: Sequence[int | None], metrics: int) -> Iterator[Point]:
    """Yields the points of an entry. Raises ValueError, TypeError or OverflowError if they are damaged."""
    width, offset = 2 + metrics, 0
    if len(flat) % width:
        raise ValueError(f"{len(flat)} numbers do not divide into rows of {width}")
    for at in range(0, len(flat), width):
        offset += flat[at] or 0
        yield Point(began + offset * _MILLISECOND, flat[at + 1], tuple(flat[at + 2 : at + width]))


def _since(began: datetime, now: datetime) -> int:
    return (now - began) // _MILLISECOND


def _row(numbers: Numbers) -> Iterator[int]:
    recommended, proposals = numbers
    return (
        _NOTHING if number is None else max(-_LARGEST, min(number, _LARGEST)) for number in (recommended, *proposals)
    )

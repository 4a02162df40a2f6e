"""Range queries of Prometheus, apart from how they are sent: their times, their answers, and why there is none."""

import enum
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from hpad.simulation.history import HistoryError


class QueryFailure(enum.Enum):
    """Why a query has no answer, as far as it matters for what to do next."""

    REFUSED = enum.auto()
    """The same query would be refused again."""
    TOO_LARGE = enum.auto()
    """A shorter time may be answered."""
    TRANSIENT = enum.auto()
    """The same query may be answered later."""


class QueryError(HistoryError):
    """A query without an answer; the message does not name the query."""

    def __init__(self, failure: QueryFailure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


class TimeGrid(NamedTuple):
    """Times of values: the first one in seconds since 1970, the seconds between two, and their number."""

    begin: float
    step: float
    points: int

    @classmethod
    def between(cls, begin: datetime, end: datetime, step: float) -> "TimeGrid":
        """Returns the times from `begin` to `end`. Raises HistoryError if there is less than one step."""
        count = math.floor((end - begin).total_seconds() / step) + 1
        if count < 2:
            raise HistoryError(
                f"from {begin:%Y-%m-%dT%H:%M:%SZ} to {end:%Y-%m-%dT%H:%M:%SZ} there is less than one step"
            )
        return cls(
            float(round(begin.timestamp())), float(step), count
        )  # the library rounds the begin to whole seconds, too

    @property
    def end(self) -> float:
        """The last time."""
        return self.begin + (self.points - 1) * self.step

    @property
    def times(self) -> list[float]:
        return [self.begin + index * self.step for index in range(self.points)]

    def parts(self, most: int) -> "list[TimeGrid]":
        """Returns the times in parts of at most so many."""
        starts = range(0, self.points, most)
        return [TimeGrid(self.begin + at * self.step, self.step, min(most, self.points - at)) for at in starts]


class FoundSeries(NamedTuple):
    """One series of an answer: a value for each time of the grid, None in a gap."""

    labels: Mapping[str, str]
    values: Sequence[float | None]


def added(series: Sequence[FoundSeries], count: int) -> list[float | None]:
    """Returns the sum of the series at each of `count` times; None where none has a value."""
    total: list[float | None] = [None] * count
    for each in series:
        total = [
            value if before is None else before if value is None else before + value
            for before, value in zip(total, each.values, strict=True)
        ]
    return total

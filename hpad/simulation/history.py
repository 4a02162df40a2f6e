"""The history of a workload: the values of its metrics and its replica count at given times.

A value that is None is a gap, and stays one: missing is never zero.
"""

import csv
import functools
import io
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.text import shown
from hpad.engine.addresses import addresses
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, CompiledMetric, compiled_spec
from hpad.files import content

REPLICAS: Final = "replicas"
DAY: Final = 86_400.0
"""Seconds."""
STALE_STEPS: Final = 2.5
"""After so many steps without a later value, a value is no longer known."""


Column = Sequence[float | None]
"""A value for each time; None is a gap."""


def pointwise(of: Callable[..., float | None], *columns: Column) -> list[float | None]:
    """Returns what `of` makes of the values at each time; a gap where a column has one."""
    return [None if None in values else of(*values) for values in zip(*columns, strict=True)]


class HistoryError(ValueError):
    """A history that cannot be read, or lacks something. The message names the file, the line and the column."""


@dataclass(frozen=True)
class LoadHistory:
    """Times in seconds since 1970, ascending, and a value per time in each column.

    The columns of metrics have their addresses as names (`engine.addresses`), `replicas` is the count. Values are in
    the units of the metric targets: percent of the request for a utilization, else whole units.
    """

    times: Sequence[float]
    columns: Mapping[str, Column]

    @property
    def start(self) -> datetime:
        return datetime.fromtimestamp(self.times[0], UTC)

    @property
    def end(self) -> datetime:
        return datetime.fromtimestamp(self.times[-1], UTC)

    @functools.cached_property
    def step(self) -> float:
        """The median distance of two times, in seconds."""
        apart = sorted(later - earlier for earlier, later in zip(self.times, self.times[1:], strict=False))
        return apart[len(apart) // 2] if apart else 0.0

    def at(self, column: str, time: float) -> float | None:
        """Returns the value that holds at a time: the last one, if it is recent; None in a gap."""
        index = bisect_right(self.times, time) - 1
        if index < 0 or time - self.times[index] > STALE_STEPS * self.step:
            return None
        return self.columns[column][index]

    def between(self, begin: datetime | None, end: datetime | None) -> "LoadHistory":
        """Returns the part of the history from `begin` to `end`. Raises HistoryError if it has less than two times."""
        first = -math.inf if begin is None else begin.timestamp()
        last = math.inf if end is None else end.timestamp()
        kept = [index for index, time in enumerate(self.times) if first <= time <= last]
        if len(kept) < 2:
            raise HistoryError(f"the history has {len(kept)} times in this interval; two or more are needed")
        return LoadHistory(
            [self.times[index] for index in kept],
            {name: [values[index] for index in kept] for name, values in self.columns.items()},
        )


def named(hpa: HorizontalPodAutoscaler) -> tuple[str, ...]:
    """Returns the column of each metric of the HPA, in order."""
    return addresses(compiled_spec(hpa).metrics)


def metrics_of(hpa: HorizontalPodAutoscaler) -> dict[str, CompiledMetric]:
    """Returns the metrics of the HPA by their columns, in order."""
    return dict(zip(named(hpa), compiled_spec(hpa).metrics, strict=True))


def goal_of(metric: CompiledMetric) -> float:
    """Returns the metric target: percent of the request, or whole units."""
    return float(metric.amount) if metric.kind == UTILIZATION else metric.amount / 1000


def is_same(one: CompiledMetric, other: CompiledMetric) -> bool:
    """Whether two metrics have values of the same thing in the same unit, whatever their targets are."""
    return (one.query, one.kind) == (other.query, other.kind)


def is_total(metric: CompiledMetric) -> bool:
    """Whether the column of a metric is a total over all replicas, which does not fall as they grow."""
    return not metric.of_pods and metric.kind == AVERAGE_VALUE


def read_csv(path: Path, unnamed: Sequence[str] = ()) -> LoadHistory:
    """Reads a CSV file whose first line names the columns: `time`, metrics, and `replicas` if it is known.

    Times are seconds since 1970 or RFC 3339; an empty cell is a gap. `unnamed`: the columns of a file whose first line
    begins with a time. Raises HistoryError. Blocks.
    """
    rows, first = _rows(path), 2
    if unnamed and rows and rows[0] and _is_time(rows[0][0]):
        rows, first = [[*unnamed], *rows], 1
    heads = [name.strip() for name in rows[0]] if rows else []
    if not heads or heads[0] != "time" or len(set(heads)) != len(heads) or len(heads) < 2:
        raise HistoryError(f"{path}, line 1: the columns must be time, then others, each once, with commas between")
    times: list[float] = []
    columns: dict[str, list[float | None]] = {name: [] for name in heads[1:]}
    for number, row in enumerate(rows[1:], start=first):
        if not any(cell.strip() for cell in row):
            continue
        try:
            _add(row, heads, times, columns)
        except ValueError as error:
            raise HistoryError(f"{path}, line {number}: {error}") from None
    if len(times) < 2:
        raise HistoryError(f"{path}: has fewer than two lines of values")
    return LoadHistory(times, columns)


def _rows(path: Path) -> list[list[str]]:
    """Returns the cells of a CSV file. Raises HistoryError. Blocks."""
    try:
        return list(csv.reader(io.StringIO(content(path).decode("utf-8-sig"), newline="")))
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise HistoryError(f"{path}: not a CSV file in UTF-8: {error}") from None


def _add(row: Sequence[str], heads: Sequence[str], times: list[float], columns: dict[str, list[float | None]]) -> None:
    if len(row) != len(heads):
        raise ValueError(f"{len(row)} columns; {', '.join(heads)} are needed")
    time = _time(row[0].strip())
    if times and time <= times[-1]:
        raise ValueError(f"time: {shown(row[0])} is not after the line before")
    values = {name: _number(name, cell.strip()) for name, cell in zip(heads[1:], row[1:], strict=True)}
    times.append(time)
    for name, value in values.items():
        columns[name].append(value)


def _time(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"time: {shown(text)} is neither seconds nor one such as 2026-01-31T08:00:00Z") from None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not 0 <= value < 2**37:  # before the year 6326, so that times after it are dates as well
        raise ValueError(f"time: {shown(text)} is not a time since 1970")
    return value


def _is_time(text: str) -> bool:
    try:
        _time(text.strip())
    except ValueError:
        return False
    return True


def _number(name: str, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name}: {shown(text)} is not a number; an empty cell is a gap")
    return value

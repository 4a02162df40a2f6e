"""Asks one Prometheus for the pasts of many HPAs: again after passing failures, and in parts."""

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self, TypeVar

from hpad.simulation.history import HistoryError
from hpad.simulation.prometheus import (
    MOST_POINTS,
    FoundSeries,
    PrometheusClient,
    QueriedPrometheus,
    QueryError,
    QueryFailure,
    TimeGrid,
    session_of,
)

_T = TypeVar("_T")

PAUSES = (1.0, 4.0, 15.0)
"""Seconds before each further attempt."""
_FEWEST: Final = 600
"""Points of a query that is not divided further."""
_COARSE: Final = 170
"""Points of a look at the whole time."""


class Answers:
    """The answers of a server, for several threads. `most` bounds the values of all together."""

    def __init__(self, server: QueriedPrometheus, most: int) -> None:
        self._server = server
        self._most = most
        self._clients = threading.local()
        self._sessions = ExitStack()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._is_down = False
        self.samples = 0
        """Values so far."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
        self._sessions.close()

    def stop(self) -> None:
        """Ends pauses; a failed query is not repeated any more."""
        self._stopped.set()

    def ranged(self, expression: str, grid: TimeGrid) -> list[FoundSeries]:
        """Returns the series of an expression. Raises QueryError, and HistoryError for too many values in total."""
        parts = [self._part(expression, part) for part in grid.parts(MOST_POINTS)]
        return parts[0] if len(parts) == 1 else _joined(parts, [part.points for part in grid.parts(MOST_POINTS)])

    def coarse(self, expression: str, grid: TimeGrid, most: int = _COARSE) -> list[FoundSeries]:
        """Returns the series of an expression at a few times of the grid, its last one among them."""
        every = -(-grid.points // most)
        points = (grid.points - 1) // every + 1
        return self.ranged(expression, TimeGrid(grid.end - (points - 1) * every * grid.step, every * grid.step, points))

    def instant(self, expression: str, at: float) -> list[tuple[Mapping[str, str], float]]:
        """Returns a vector at a time. Raises QueryError."""
        return self._asked(lambda client: client.instant(expression, at))

    def _part(self, expression: str, grid: TimeGrid) -> list[FoundSeries]:
        try:
            found = self._asked(lambda client: client.ranged(expression, grid))
        except QueryError as error:
            if error.failure is not QueryFailure.TOO_LARGE or grid.points < 2 * _FEWEST:
                raise
            halves = grid.parts(-(-grid.points // 2))
            return _joined([self._part(expression, half) for half in halves], [half.points for half in halves])
        self._count(found)
        return found

    def _count(self, found: list[FoundSeries]) -> None:
        count = sum(len(each.values) - each.values.count(None) for each in found)
        with self._lock:
            self.samples += count
            if self.samples > self._most:
                raise HistoryError(f"the answers have more than {self._most:,} values; {LESS}")

    def _asked(self, ask: Callable[[PrometheusClient], _T]) -> _T:
        for pause in (*PAUSES, None):
            try:
                answer = ask(self._client())
            except QueryError as error:
                passing = error.failure is QueryFailure.TRANSIENT
                if not passing or pause is None or self._is_down or self._stopped.wait(pause):
                    self._is_down = passing
                    raise
            else:
                self._is_down = False
                return answer
        raise AssertionError  # the last attempt returns or raises

    def _client(self) -> PrometheusClient:
        client: PrometheusClient | None = getattr(self._clients, "own", None)
        if client is None:
            with self._lock:
                session = self._sessions.enter_context(session_of(self._server))
            client = self._clients.own = PrometheusClient(self._server, session)
        return client


LESS: Final = "choose a shorter time, a larger step, or fewer HPAs"


def _joined(parts: list[list[FoundSeries]], points: list[int]) -> list[FoundSeries]:
    """Returns the series of answers one after another in time; a series that one of them lacks has a gap there."""
    found: dict[frozenset[tuple[str, str]], FoundSeries] = {}
    before = 0
    for part, count in zip(parts, points, strict=True):
        for each in part:
            labels = frozenset(each.labels.items())
            known = found.get(labels, FoundSeries(each.labels, []))
            gap: list[float | None] = [None] * (before - len(known.values))
            found[labels] = FoundSeries(each.labels, [*known.values, *gap, *each.values])
        before += count
    whole: list[FoundSeries] = []
    for each in found.values():
        gap = [None] * (before - len(each.values))
        whole.append(FoundSeries(each.labels, [*each.values, *gap]))
    return whole

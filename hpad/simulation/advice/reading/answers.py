"""Asks one Prometheus for the pasts of many HPAs: again after passing failures, in parts, and with a memory on disk."""

import hashlib
import os
import tempfile
import threading
import zlib
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from hpad.simulation.history import HistoryError
from hpad.simulation.prometheus import (
    MOST_POINTS,
    FoundSeries,
    PrometheusClient,
    QueriedPrometheus,
    QueryError,
    QueryFailure,
    TimeGrid,
    connected,
)

PAUSES = (1.0, 4.0, 15.0)
"""Seconds before each further attempt."""
_FEWEST: Final = 600
"""Points of a query that is not divided further."""
_COARSE: Final = 170
"""Points of a look at the whole time."""
_SUFFIX: Final = ".answer"
_UNFINISHED: Final = "unfinished.json"
_RESUMABLE: Final = 24 * 3600.0


class _Reading(msgspec.Struct, frozen=True):
    """What an unfinished command has read."""

    url: str
    grid: TimeGrid


class AnswerFolder:
    """Keeps answers, so that a command that broke off can continue. Answers are complete or not there. Blocks."""

    def __init__(self, folder: Path, url: str) -> None:
        self._folder = folder
        self._url = url

    def resumed(self, grid: TimeGrid) -> TimeGrid:
        """Returns the times of an unfinished command for as long a time, of the last day; else the given ones."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
                known = msgspec.json.decode((self._folder / _UNFINISHED).read_bytes(), type=_Reading)
                fits = (known.url, known.grid.step, known.grid.points) == (self._url, grid.step, grid.points)
                if fits and 0 <= grid.end - known.grid.end <= _RESUMABLE:
                    return known.grid
            self.clear()
            self._write(self._folder / _UNFINISHED, msgspec.json.encode(_Reading(self._url, grid)))
        except OSError as error:
            raise HistoryError(f"{self._folder}: cannot be used for answers: {error.strerror or error}") from None
        return grid

    def clear(self) -> None:
        """Removes what was kept."""
        for path in (*self._folder.glob(f"*{_SUFFIX}"), self._folder / _UNFINISHED):
            path.unlink(missing_ok=True)

    def get(self, expression: str, grid: TimeGrid) -> list[FoundSeries] | None:
        """Returns an answer; None if there is none that can be read."""
        with suppress(OSError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError):
            content = zlib.decompress(self._path(expression, grid).read_bytes())
            found = msgspec.msgpack.decode(content, type=list[FoundSeries])
            if all(len(each.values) == grid.points for each in found):
                return found
        return None

    def put(self, expression: str, grid: TimeGrid, found: list[FoundSeries]) -> None:
        """Keeps an answer. Raises HistoryError."""
        try:
            self._write(self._path(expression, grid), zlib.compress(msgspec.msgpack.encode(found), 1))
        except OSError as error:
            raise HistoryError(f"{self._folder}: cannot keep answers: {error.strerror or error}") from None

    def _path(self, expression: str, grid: TimeGrid) -> Path:
        key = msgspec.json.encode([self._url, expression, float(grid.begin), float(grid.step), grid.points])
        return self._folder / f"{hashlib.sha256(key).hexdigest()}{_SUFFIX}"

    def _write(self, path: Path, content: bytes) -> None:
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=_SUFFIX)  # `clear` removes what was broken off
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        Path(name).replace(path)


class Answers:
    """The answers of a server, for several threads. `folder` keeps them; `most` bounds the values of all together."""

    def __init__(self, server: QueriedPrometheus, most: int, folder: AnswerFolder | None = None) -> None:
        self._server = server
        self._most = most
        self._folder = folder
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
        return self._whole(expression, grid.parts(MOST_POINTS))

    def _whole(self, expression: str, parts: list[TimeGrid]) -> list[FoundSeries]:
        found = [self._part(expression, part) for part in parts]
        return found[0] if len(found) == 1 else _joined(found, parts)

    def coarse(self, expression: str, grid: TimeGrid, most: int = _COARSE) -> list[FoundSeries]:
        """Returns the series of an expression at a few times of the grid, its last one among them."""
        every = -(-grid.points // most)
        points = (grid.points - 1) // every + 1
        return self.ranged(expression, TimeGrid(grid.end - (points - 1) * every * grid.step, every * grid.step, points))

    def _part(self, expression: str, grid: TimeGrid) -> list[FoundSeries]:
        known = None if self._folder is None else self._folder.get(expression, grid)
        if known is not None:
            self._count(known)
            return known
        try:
            found = self._asked(expression, grid)
        except QueryError as error:
            if error.failure is not QueryFailure.TOO_LARGE or grid.points < 2 * _FEWEST:
                raise
            found = self._whole(expression, grid.parts(-(-grid.points // 2)))
        else:
            self._count(found)
        if self._folder is not None:
            self._folder.put(expression, grid, found)
        return found

    def _count(self, found: list[FoundSeries]) -> None:
        count = sum(len(each.values) - each.values.count(None) for each in found)
        with self._lock:
            self.samples += count
            if self.samples > self._most:
                raise HistoryError(f"the answers have more than {self._most:,} values; {LESS}")

    def _asked(self, expression: str, grid: TimeGrid) -> list[FoundSeries]:
        """Asks again after passing failures, unless the server seems to be down."""
        for pause in (*PAUSES, None):
            try:
                found = self._client().ranged(expression, grid)
            except QueryError as error:
                passing = error.failure is QueryFailure.TRANSIENT
                if not passing or pause is None or self._is_down or self._stopped.wait(pause):
                    self._is_down = passing
                    raise
            else:
                self._is_down = False
                return found
        raise AssertionError  # the last attempt returns or raises

    def _client(self) -> PrometheusClient:
        client: PrometheusClient | None = getattr(self._clients, "own", None)
        if client is None:
            with self._lock:
                client = self._clients.own = self._sessions.enter_context(connected(self._server))
        return client


LESS: Final = "choose a shorter time, a larger step, or fewer HPAs"


def _joined(answers: list[list[FoundSeries]], parts: list[TimeGrid]) -> list[FoundSeries]:
    """Returns the series of answers one after another in time; a series that one of them lacks has a gap there."""
    found: dict[frozenset[tuple[str, str]], FoundSeries] = {}
    before = 0
    for answer, part in zip(answers, parts, strict=True):
        for each in answer:
            labels = frozenset(each.labels.items())
            known = found.get(labels, FoundSeries(each.labels, []))
            gap: list[float | None] = [None] * (before - len(known.values))
            found[labels] = FoundSeries(each.labels, [*known.values, *gap, *each.values])
        before += part.points
    whole: list[FoundSeries] = []
    for each in found.values():
        gap = [None] * (before - len(each.values))
        whole.append(FoundSeries(each.labels, [*each.values, *gap]))
    return whole

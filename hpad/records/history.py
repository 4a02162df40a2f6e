"""The decision history: takes the reconciles of the controller, and answers what was decided for an HPA, when and why.

Turns are merged into entries (`hpad.records.stretch`). A stored entry has its first reconcile as a step, from which the
past is decided and settled again, so that all that is said of it is made as for the last decision. The stretch in
progress of each HPA is in memory, with its last reconcile. A restart begins a new entry for each HPA, even if the
reason is the same: nothing is known of the time in between.
"""

import asyncio
import itertools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from hpad.api.hpa import kind_of, without_status
from hpad.api.metadata import Key
from hpad.api.sample import Query
from hpad.clock import Clock, SystemClock, micros, moment_of
from hpad.engine.trace import Trace
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.records.archive import DEFAULT, Archive, HistoryLimits, HistoryUsage
from hpad.records.entry import MOST_TEXT, Entry, Point, UnreadableEntry, unpack_said, unpack_step
from hpad.records.stretch import Stretch, reason, slim
from hpad.records.tables import FAR, EntryRow, Search
from hpad.telemetry.episode import Episode

SAVE_SECONDS: Final = 5.0
"""Seconds between saves; a crash loses the entries since the last one."""
REFRESH_SECONDS: Final = 300.0
"""Seconds between notes of how far the stretches in progress are, and between removals of entries that are too old.

Each note writes a row of every HPA: once a minute this was a fifth of the cost of the history.
"""
_MOST_READINGS: Final = 20_000
"""More readings in memory are written before that, or dropped if they cannot be: they take about 4 MB."""
_NOTED: Final = 500
"""Stretches are noted in parts of this size, a few milliseconds of work."""
_READ_AT_ONCE: Final = 20
"""More entries are read on a thread."""
_MOST_PODS: Final = 100
"""The largest number of pods of one metric in the traces of a list."""


class PastDecision(NamedTuple):
    """A past decision: its entry, and its reconcile as this version decides it; None where its inputs are not kept."""

    entry: Entry
    done: Reconcile | None

    @property
    def note(self) -> str:
        """How this version decides otherwise on the same inputs; "" where it does not."""
        if self.done is None:
            return ""
        decision, said = self.done.decision, self.entry.sentence
        if (self.done.sentence[:MOST_TEXT], decision.desired) == (said, self.entry.desired):
            return ""
        return f"the hpad of that time decided otherwise than this version does on the same inputs: {said}"


class DecisionHistory:
    """The decision history of all HPAs. `run` it in the background, then `stop` it.

    `source_of` names the metric source of a query. Entries are in memory unless there is a `file`. Where `limits.span`
    is 0 none are kept: only the last reconcile is known.
    """

    def __init__(
        self,
        source_of: Callable[[Query], str] | None = None,
        *,
        file: Path | None = None,
        limits: HistoryLimits = DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        self._source_of = source_of
        self._limits = limits
        self._clock = clock or SystemClock()
        self._archive = Archive(file, self._clock, limits) if limits.span else None
        self._open: dict[Key, Stretch] = {}
        self._listeners: set[Callable[[Key], None]] = set()
        log = structlog.get_logger("hpad.history")
        text = "bug: the decision history could not be kept"
        self._bugs = Episode(log, self._clock, text, "", level="exception")
        self._last = 0
        """The number of the latest entry."""

    def add(self, done: Reconcile) -> Reconcile:
        """Takes one reconcile, and returns it as it is kept. Never waits, never raises."""
        key = done.view.key
        stretch, why = self._open.get(key), reason(done)
        if stretch is not None and stretch.takes(done, why):
            if stretch.settled:
                self._divide(stretch)
        else:
            if stretch is not None:
                self._divide(stretch)
            self._begin(Stretch(done, why, slim(done, without_status(done.view.hpa))))
        now = self._open[key]
        if self._archive is None:
            now.readings.clear()
        return now.last

    def subscribe(self, listener: Callable[[Key], None]) -> None:
        """Calls the listener with the key of the HPA of each entry that begins, until `unsubscribe`.

        Each rescale begins an entry. The listener must neither wait nor raise.
        """
        self._listeners.add(listener)

    def unsubscribe(self, listener: Callable[[Key], None]) -> None:
        """Ends the calls of a listener."""
        self._listeners.discard(listener)

    def release(self, keys: Collection[Key]) -> None:
        """Ends the stretches of HPAs that were deleted, or that another replica decides from now on."""
        for key in keys:
            stretch = self._open.pop(key, None)
            if stretch is not None:
                stretch.end(apart=False)
                self._put(stretch)

    def usage(self) -> HistoryUsage:
        """Returns what the history takes."""
        return HistoryUsage() if self._archive is None else self._archive.usage()

    def last(self, key: Key) -> Reconcile | None:
        """Returns the last reconcile, without statuses; None before the first one of this process."""
        stretch = self._open.get(key)
        return None if stretch is None else stretch.last

    def trace(self, done: Reconcile) -> Trace:
        """Returns the trace of a decision. O(pods): call it on a thread."""
        return make_trace(done, self._source_of)

    async def entries(
        self,
        key: Key,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 1000,
        traces: bool = False,
    ) -> list[Entry]:
        """Returns the entries that overlap the time from `since` to `until`, the newest first.

        With `before`, only entries with a lower number: the next page after an entry of that number. They have a trace
        if `traces` is set and their inputs are kept.
        """
        begin = -FAR if since is None else micros(since)
        end = FAR if until is None else micros(until)
        found = await self._find(key, Search(begin, end, FAR if before is None else before, limit, traces))
        if len(found) <= _READ_AT_ONCE and not traces:
            return self._listed(key, found)
        stopped = threading.Event()
        try:
            wanted = itertools.takewhile(lambda _: not stopped.is_set(), found)
            return await asyncio.to_thread(self._listed, key, wanted)
        finally:
            stopped.set()  # entries with thousands of pods take longer than a client may wait

    async def at(self, key: Key, time: datetime) -> PastDecision | None:
        """Returns the decision in force at a moment; None if the history begins later (see `reaches`).

        That is of the newest entry with a turn before and after it, else of the newest one that began before: the
        target keeps its count while hpad does not run.
        """
        at = micros(time)
        found = await self._find(key, Search(since=at, until=at, limit=1, steps=True))
        found = found or await self._find(key, Search(until=at, limit=1, steps=True))
        return await asyncio.to_thread(lambda: next(_past(key, found), None))

    async def reaches(self, key: Key) -> datetime | None:
        """Returns the time of the oldest decision in the history; None if there is none."""
        return None if self._archive is None else await self._archive.oldest(key, self._open.get(key))

    async def run(self) -> None:
        """Saves until cancelled, and drops what is too old."""
        archive = self._archive
        if archive is None:
            return
        self._last = max(self._last, await archive.load())
        refreshed = self._clock.monotonic()
        while True:
            await self._clock.sleep(SAVE_SECONDS)
            try:
                await archive.save()
                if archive.emptied():
                    for each in self._open.values():
                        each.lost = True
                late = self._clock.monotonic() - refreshed >= REFRESH_SECONDS
                if late or self._has_many_readings():
                    refreshed = self._clock.monotonic()
                    await self._refresh(archive)
                    self._shorten()
            except Exception:  # noqa: BLE001  # the history must not end the daemon
                self._bugs.occurred()

    async def stop(self) -> None:
        """Ends all stretches, and saves. Call it after the last decision."""
        self.release(tuple(self._open))
        if self._archive is not None:
            await self._archive.close()

    async def _refresh(self, archive: Archive) -> None:
        stretches = tuple(self._open.values())
        for begin in range(0, len(stretches), _NOTED):
            await archive.note(stretches[begin : begin + _NOTED])
        now, span = self._clock.now(), self._limits.span
        await archive.sweep(micros(now - span), micros(now + span))

    def _has_many_readings(self) -> bool:
        return sum(len(each.readings) for each in self._open.values()) > _MOST_READINGS

    def _shorten(self) -> None:
        """Drops the oldest readings of each stretch in progress if they could not be saved and are too many."""
        if self._has_many_readings():
            most = max(1, _MOST_READINGS // len(self._open))
            for each in self._open.values():
                del each.readings[:-most]

    async def _find(self, key: Key, search: Search) -> list[EntryRow]:
        return [] if self._archive is None else await self._archive.find(key, search, self._open.get(key))

    def _divide(self, stretch: Stretch) -> None:
        """Ends a stretch. Its latest turns, if they had another reason, become one."""
        later = stretch.end(apart=True)
        self._put(stretch)
        if later is not None:
            self._begin(later)

    def _begin(self, stretch: Stretch) -> None:
        self._last = stretch.number = max(self._last + 1, micros(stretch.began))
        self._open[stretch.key] = stretch
        self._put(stretch)
        for listener in tuple(self._listeners):
            listener(stretch.key)

    def _put(self, stretch: Stretch) -> None:
        if self._archive is None:
            stretch.saved(len(stretch.readings))
        else:
            self._archive.put(stretch)

    def _listed(self, key: Key, found: Iterable[EntryRow]) -> list[Entry]:
        """Returns entries, with a trace where their step was read."""
        return [entry if done is None else self._with_trace(entry, done) for entry, done in _past(key, found)]

    def _with_trace(self, entry: Entry, done: Reconcile) -> Entry:
        return msgspec.structs.replace(entry, trace=make_trace(done, self._source_of, _MOST_PODS))


def _past(key: Key, found: Iterable[EntryRow]) -> Iterator[PastDecision]:
    """Yields the entries that are readable."""
    for each in found:
        try:
            yield PastDecision(_entry(key, each), unpack_step(each.step))
        except (UnreadableEntry, OverflowError):
            continue


def _entry(key: Key, row: EntryRow) -> Entry:
    """Returns the entry of a row. Raises UnreadableEntry or OverflowError."""
    said, readings = unpack_said(row.said), sorted(row.readings.items())
    return msgspec.structs.replace(
        said,
        number=row.number,
        namespace=key.namespace,
        name=key.name,
        kind=kind_of(key),
        began=moment_of(row.began),
        ended=moment_of(row.ended),
        turns=row.turns,
        points=tuple(Point(moment_of(time), *each) for time, each in readings if len(each[1]) == len(said.metrics)),
    )

"""Takes the decisions of the controller, and answers what was decided for an HPA, when and why.

Turns are merged into entries (`hpad.decisions.stretch`). The entry in progress of each HPA is in memory, with its
last reconcile; an archive keeps all entries and their traces. A restart begins a new entry for each HPA,
even if the reason is the same: nothing is known of the time in between.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Final

import structlog

from hpad.api.metadata import Key
from hpad.api.sample import Query
from hpad.clock import Clock, SystemClock
from hpad.decisions import compact
from hpad.decisions.archive import DEFAULT, Archive, Limits, Search, Usage
from hpad.decisions.compact import Stored, Unreadable, micros
from hpad.decisions.entry import Entry
from hpad.decisions.memory import MemoryArchive
from hpad.decisions.reason import reason
from hpad.decisions.stretch import Stretch
from hpad.decisions.subscription import Listeners, Subscription
from hpad.engine.trace import Trace
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.telemetry.episode import Episode

SAVE_SECONDS: Final = 5.0
"""Seconds between saves; a crash loses the entries since the last one."""
REFRESH_SECONDS: Final = 300.0
"""Seconds between notes of how far the entries in progress are, and between removals of entries that are too old.

Each note packs and writes an entry of every HPA: once a minute this was a fifth of the cost of the history.
"""
_PACKED: Final = 100
"""Other tasks run after this number of packed entries, a few milliseconds of work."""
_READ_AT_ONCE: Final = 20
"""More entries are read on a thread."""


class DecisionLog:
    """The decision history of all HPAs. `run` it in the background, then `stop` it.

    `source_of` names the metric source of a query. The archive is in memory unless one is given. Where `limits.span`
    is 0 there is no archive: only the entry in progress is known, without its trace.
    """

    def __init__(
        self,
        source_of: Callable[[Query], str] | None = None,
        *,
        archive: Archive | None = None,
        limits: Limits = DEFAULT,
        clock: Clock | None = None,
    ) -> None:
        self._source_of = source_of
        if archive is None and limits.span:
            archive = MemoryArchive(limits)
        self._archive = archive
        self._limits = limits
        self._clock = clock or SystemClock()
        self._open: dict[Key, Stretch] = {}
        self._listeners = Listeners()
        log = structlog.get_logger("hpad.decisions")
        text = "bug: the decision history could not be kept"
        self._bugs = Episode(log, self._clock, text, "", level="exception")
        self._last = 0
        """The number of the latest entry."""

    def add(self, done: Reconcile) -> Reconcile:
        """Takes one reconcile, and returns it as it is kept. Never waits, never raises."""
        key = done.view.key
        self._add(key, done)
        return self._open[key].last

    def _add(self, key: Key, done: Reconcile) -> None:
        stretch, why = self._open.get(key), reason(done)
        if stretch is not None and not stretch.full:
            if stretch.takes(done, why):
                if stretch.settled:
                    self._divide(key, stretch)
                return
            if stretch.wavers:
                stretch = self._divide(key, stretch)
        if stretch is not None:
            self._close(key, stretch)
        self._begin(key, Stretch(done, why, self._number(done)), done)

    def subscribe(self) -> Subscription:
        """Returns the decisions from now on: the key and the entry, without trace, of each stretch that begins.

        Each rescale begins a stretch. Close the subscription after use; one that is not read ends by itself.
        """
        return self._listeners.subscribe()

    def forget(self, key: Key) -> None:
        """Drops the history of a deleted HPA."""
        self._open.pop(key, None)
        if self._archive is not None:
            self._archive.forget(key)

    def release(self, keys: Collection[Key]) -> None:
        """Ends the entries in progress of HPAs that another replica decides from now on."""
        for key in keys:
            stretch = self._open.pop(key, None)
            if stretch is not None:
                self._close(key, stretch)

    def usage(self) -> Usage:
        """Returns what the archive takes."""
        return Usage() if self._archive is None else self._archive.usage()

    def last(self, key: Key) -> Reconcile | None:
        """Returns the last reconcile, without statuses; None before the first one of this process."""
        stretch = self._open.get(key)
        return None if stretch is None else stretch.last

    def latest(self, key: Key) -> Trace | None:
        """Returns the trace of the last decision; None before the first one of this process."""
        done = self.last(key)
        return None if done is None else make_trace(done, self._source_of)

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
        if `traces` is set and it is known.
        """
        asked = Search(limit=limit, traces=traces)
        if since is not None:
            asked = asked._replace(since=micros(since))
        if until is not None:
            asked = asked._replace(until=micros(until))
        return await self._find(key, asked if before is None else asked._replace(before=before))

    async def at(self, key: Key, moment: datetime) -> Entry | None:
        """Returns the entry in force at a moment, with its trace; None if the history begins later (see `reaches`).

        That is the newest entry with a turn before and after it, else the newest one that began before: the target
        keeps its count while hpad does not run.
        """
        at = micros(moment)
        found = await self._find(key, Search(since=at, until=at, limit=1, traces=True))
        found = found or await self._find(key, Search(until=at, limit=1, traces=True))
        return found[0] if found else None

    async def reaches(self, key: Key) -> datetime | None:
        """Returns the time of the oldest decision in the history; None if there is none."""
        stretch = self._open.get(key)
        began = None if stretch is None else stretch.entry.began
        oldest = None if self._archive is None else await self._archive.oldest(key)
        known = (began, None if oldest is None else compact.moment(oldest))
        return min((each for each in known if each is not None), default=None)

    async def run(self) -> None:
        """Saves until cancelled, and drops what is too old."""
        archive = self._archive
        if archive is None:
            return
        highest = await archive.load()
        self._last = max(self._last, highest)
        refreshed = self._clock.monotonic()
        while True:
            await self._clock.sleep(SAVE_SECONDS)
            try:
                await archive.save()
                if self._clock.monotonic() - refreshed >= REFRESH_SECONDS:
                    refreshed = self._clock.monotonic()
                    await self._refresh(archive)
            except Exception:  # noqa: BLE001  # the history must not end the daemon
                self._bugs.occurred()

    async def stop(self) -> None:
        """Ends all entries in progress, saves, and ends all subscriptions. Call it after the last decision."""
        self._listeners.close()
        self.release(tuple(self._open))
        if self._archive is not None:
            await self._archive.close()

    async def _refresh(self, archive: Archive) -> None:
        if archive.keeps_progress:
            noted: list[tuple[Key, Stored]] = []
            for number, (key, stretch) in enumerate(tuple(self._open.items()), start=1):
                noted.append((key, stretch.packed()))
                if number % _PACKED == 0:
                    await self._clock.sleep(0)
            await archive.refresh(noted)
        now, span = self._clock.now(), self._limits.span
        await archive.sweep(micros(now - span), micros(now + span), self._open.__contains__)

    async def _find(self, key: Key, search: Search) -> list[Entry]:
        """Returns entries of the archive, with the one in progress as it is now."""
        stretch = self._open.get(key)
        live = None if stretch is None else stretch.packed()
        found = [] if self._archive is None else await self._archive.find(key, search)
        if live is not None:
            known = [each for each in found if each.number == live.number]
            found = [each for each in found if each.number != live.number]
            if search.finds(live):
                if search.traces and not known and self._archive is not None:
                    known = await self._archive.find(key, Search(before=live.number + 1, limit=1, traces=True))
                found = [_updated(live, known), *found][: search.limit]
        if len(found) <= _READ_AT_ONCE:
            return _read(key, found, traces=search.traces)
        return await asyncio.to_thread(_read, key, found, traces=search.traces)

    def _number(self, done: Reconcile) -> int:
        """Returns the number of an entry: its time in microseconds, if that is higher than all numbers before."""
        self._last = max(self._last + 1, micros(done.view.now))
        return self._last

    def _divide(self, key: Key, stretch: Stretch) -> Stretch:
        """Makes the latest turns an entry of their own, and closes the entry of the turns before."""
        later, done = stretch.divided(self._number(stretch.last))
        self._close(key, stretch)
        self._begin(key, later, done)
        return later

    def _begin(self, key: Key, stretch: Stretch, done: Reconcile) -> None:
        self._open[key] = stretch
        if self._archive is not None:
            most = compact.most_pods(len(done.view.pods), len(done.answers))
            self._archive.put(key, stretch.packed(make_trace(done, self._source_of, most)))
        if self._listeners:
            self._listeners.tell(key, stretch.closed())

    def _close(self, key: Key, stretch: Stretch) -> None:
        if self._archive is not None:
            self._archive.put(key, stretch.packed())


def _updated(live: Stored, known: Collection[Stored]) -> Stored:
    """Returns the entry in progress with the trace of its first turn, if that is known."""
    return next((compact.with_trace(live, each.trace) for each in known if each.number == live.number), live)


def _read(key: Key, found: Collection[Stored], *, traces: bool) -> list[Entry]:
    """Returns the entries that are readable."""
    entries = []
    for stored in found:
        try:
            entries.append(compact.unpack(key, stored, trace=traces))
        except Unreadable:
            continue
    return entries

"""The database of the decision history: a file beside the state file, or memory.

The history may be lost; it never delays a decision or a save of state. Stretches wait in memory for the next save, and
are encoded on a thread. While a file cannot be written, they stay in memory within the budget of a database in memory,
and the log says so once. Nothing is written while less than `RESERVE` bytes of the disk are free, so that the history
never takes the space that the state needs.
"""

import asyncio
import os
import sqlite3
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, micros, moment_of
from hpad.records import tables
from hpad.records.entry import Numbers, Stored
from hpad.records.stretch import Stretch
from hpad.records.tables import EntryChange, EntryRow, Search
from hpad.store.database import Database, MemoryDatabase
from hpad.telemetry.episode import Episode

RESERVE: Final = 64 << 20
RETRY: Final = 15.0
"""Seconds between two attempts while the file cannot be written."""
_MOST_WAITING: Final = 20_000
"""The number of stretches that wait to be encoded while the database is slow."""
_WAITING_BYTES: Final = 500
"""What a stretch that waits takes beside its stored form and its readings."""
_READING_BYTES: Final = 200
"""What a reading takes in memory."""
_MIB: Final = 1 << 20
_FAILS: Final = "cannot save the decision history: it is kept in memory, and decisions go on"


class HistoryLimits(NamedTuple):
    """The bounds of the history: age and number of the entries of one HPA, and the bytes of all entries."""

    span: timedelta = timedelta(hours=24)
    entries: int = 1000
    memory: int = 16 << 20
    disk: int = 256 << 20


DEFAULT: Final = HistoryLimits()


class HistoryUsage(NamedTuple):
    """Bytes in memory and on disk, entries dropped for a budget, and the error of the last save ("": none)."""

    memory: int = 0
    disk: int = 0
    dropped: int = 0
    trouble: str = ""


class _Held(NamedTuple):
    """A stretch as it is now."""

    stretch: Stretch
    ended: datetime
    turns: int
    readings: tuple[tuple[datetime, Numbers], ...]

    @classmethod
    def of(cls, stretch: Stretch, *, whole: bool = False) -> "_Held":
        """Returns the stretch as it is now; with `whole` also its latest turns, which may become another one."""
        readings = (*stretch.readings, *stretch.tail) if whole else tuple(stretch.readings)
        return cls(stretch, *stretch.progress(), readings)

    def change(self) -> EntryChange:
        """Returns what a save writes of it. Call it on a thread."""
        one, stored = self.stretch, self.stretch.stored()
        readings = {micros(time): numbers for time, numbers in self.readings}
        said, step = stored or (b"", b"")
        row = EntryRow(one.number, micros(one.began), micros(self.ended), self.turns, said, step, readings)
        return EntryChange(one.key, row, stored is not None)


class Archive:
    """Keeps entries in `file`, or in memory without one.

    No method raises, and those that are not async never wait.
    """

    def __init__(self, file: Path | None, clock: Clock, limits: HistoryLimits) -> None:
        self._file = file
        self._clock = clock
        self._limits = limits
        self._most_bytes = limits.memory if file is None else limits.disk
        if file is None:
            self._database: Database = MemoryDatabase(clock, tables.LAYOUT, self._most_bytes)
        else:
            self._database = Database(file, clock, tables.LAYOUT, self._most_bytes)
        self._waiting: dict[int, Stretch] = {}
        self._saving: dict[int, Stretch] = {}
        """Those that the save in progress writes."""
        self._trouble: str | None = None
        """The error because of which entries are only in memory; None if they are saved."""
        self._size = self._dropped = 0
        self._tried = 0.0
        log = structlog.get_logger("hpad.history", file=str(file))
        self._failing = Episode(log, clock, _FAILS, "the decision history is saved again")

    def usage(self) -> HistoryUsage:
        """Returns what the history takes."""
        waiting = sum(map(_cost, self._waiting.values()))
        memory, disk = (waiting + self._size, 0) if self._file is None else (waiting, self._size)
        return HistoryUsage(memory, disk, self._dropped, self._trouble or "")

    def put(self, stretch: Stretch) -> None:
        """Has the next save write a stretch: a new one, or one that has ended."""
        self._waiting[stretch.number] = stretch
        if len(self._waiting) > _MOST_WAITING:
            self._drop_first()

    async def find(self, key: Key, search: Search, live: Stretch | None) -> list[EntryRow]:
        """Returns entries of an HPA, the newest first; `live` is its stretch in progress."""
        # All before the read: an entry that is saved meanwhile is then in both results, not in none.
        held = {each.number: _Held.of(each, whole=True) for each in self._held(key, live)}
        changes = await asyncio.to_thread(_changes, held.values()) if held else ()

        found, _ = await self._database.run(lambda connection: tables.find(connection, key, search, held))
        return _merged(found or (), changes, search)

    async def oldest(self, key: Key, live: Stretch | None) -> datetime | None:
        """Returns when the first entry of the HPA began."""
        began = [each.began for each in self._held(key, live)]
        saved, _ = await self._database.run(lambda connection: tables.oldest(connection, key))
        return min([*began, *(() if saved is None else (moment_of(saved),))], default=None)

    async def load(self) -> int:
        """Opens the database. Returns the highest number, 0 if there is no entry."""
        highest, error = await self._database.run(tables.highest)
        self._report(error)
        self._database.emptied()
        return highest or 0

    def emptied(self) -> bool:
        """Whether what was saved is gone since the last call, as a file that is damaged or removed is replaced."""
        return self._database.emptied()

    async def save(self) -> None:
        """Writes what waits. After an error it stays in memory, and is tried again later."""
        if self._trouble is None or self._clock.monotonic() - self._tried >= RETRY:
            await self._save()

    async def note(self, stretches: Iterable[Stretch]) -> None:
        """Writes how far the stretches in progress are, so that a crash does not lose it."""
        if self._trouble is None:
            await self._write([_Held.of(each) for each in stretches])

    async def sweep(self, earliest: int, latest: int) -> None:
        """Drops entries that ended before `earliest`, or after `latest`: a clock that was wrong has left these."""
        more: bool | None = self._trouble is None
        while more:  # in parts, between which entries are read
            more, _ = await self._database.run(lambda connection: tables.sweep(connection, earliest, latest))

    async def close(self) -> None:
        """Saves, and closes the database."""
        await self._save()
        await self._database.close()

    def _held(self, key: Key, live: Stretch | None) -> list[Stretch]:
        """Returns the stretches of an HPA in memory."""
        waiting = (*self._saving.values(), *self._waiting.values())
        held = [each for each in waiting if each.key == key]
        return held if live is None else [*held, live]

    async def _save(self) -> None:
        # A save that was cancelled, as at the stop, has left what it had not written.
        self._saving, self._waiting = self._saving | self._waiting, {}
        if not self._saving:
            return
        self._tried = self._clock.monotonic()
        error = await self._write([_Held.of(each) for each in self._saving.values()])
        unsaved, self._saving = self._saving, {}
        if error is not None:
            self._waiting = unsaved | self._waiting
            self._shrink()
        self._report(error)
        self._size = await self._database.size()

    async def _write(self, held: Collection[_Held]) -> str | None:
        """Writes the stretches. Returns the error."""
        changes = await asyncio.to_thread(_changes, held)
        if self._file is not None and await asyncio.to_thread(_free_bytes, self._file.parent) < RESERVE:
            return f"{self._file.parent}: less than {RESERVE // _MIB} MiB are free, which are left to the state"

        def work(connection: sqlite3.Connection) -> int:
            return tables.save(connection, changes, most_entries=self._limits.entries, most_bytes=self._most_bytes)

        deleted, error = await self._database.run(work)
        self._dropped += deleted or 0
        if error is None:
            for each in held:
                each.stretch.saved(len(each.readings))
        return error

    def _shrink(self) -> None:
        """Drops the oldest stretches that wait beyond the budget."""
        size = sum(map(_cost, self._waiting.values()))
        while size > self._limits.memory:
            size -= self._drop_first()

    def _drop_first(self) -> int:
        """Drops the stretch that waits longest. Returns what it took."""
        stretch = self._waiting.pop(next(iter(self._waiting)))
        size = _cost(stretch)
        stretch.saved(0)
        self._dropped += 1
        return size

    def _report(self, error: str | None) -> None:
        self._trouble = error
        if error is None:
            self._failing.ended()
        else:
            self._failing.occurred(error=error)


def _changes(held: Iterable[_Held]) -> list[EntryChange]:
    return [each.change() for each in held]


def _merged(found: Iterable[EntryRow], changes: Iterable[EntryChange], search: Search) -> list[EntryRow]:
    """Returns the entries of the database as those in memory continue them, and those that are only there."""
    known = {each.number: each for each in found}
    for _, row, new in changes:
        before = known.get(row.number)
        if before is not None:
            readings = {**before.readings, **row.readings}
            known[row.number] = before._replace(ended=row.ended, turns=row.turns, readings=readings)
        elif new:
            known[row.number] = row if search.steps else row._replace(step=b"")
    wanted = [each for each in known.values() if search.finds(each)]
    return sorted(wanted, key=lambda each: -each.number)[: search.limit]


def _cost(stretch: Stretch) -> int:
    stored = stretch.unsaved
    packed = len(stored.said) + len(stored.step) if isinstance(stored, Stored) else 0
    return _WAITING_BYTES + packed + _READING_BYTES * len(stretch.readings)


def _free_bytes(folder: Path) -> int:
    """Returns the free bytes of a file system; many if they are unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return 1 << 62
    return status.f_bavail * status.f_frsize

"""An archive in an SQLite file beside the state file. It may be lost; it never delays a decision or a save of state.

Entries are put into memory and written every few seconds. While the file cannot be written, they stay there within the
budget of a `MemoryArchive`, and the log says so once. A crash loses the entries since the last save. Entries in
progress are noted every five minutes, so that a crash loses no more of their duration; the next start takes over what
was noted. On the disk, the file takes its budget and a write-ahead log of a few MB. Nothing is written while less than
`RESERVE` bytes are free, so that the history never takes the space that the state needs.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.decisions import tables
from hpad.decisions.archive import Limits, Search, Usage
from hpad.decisions.compact import Stored, with_trace
from hpad.decisions.memory import MemoryArchive
from hpad.store.database import Database
from hpad.telemetry.episode import Episode

RESERVE: Final = 64 << 20
RETRY: Final = 15.0
"""Seconds between two attempts while the file cannot be written."""
_MOST_FORGOTTEN: Final = 1 << 14
_MIB: Final = 1 << 20
_FAILS: Final = "cannot save the decision history: it is kept in memory, and decisions go on"

T = TypeVar("T")


class FileArchive:
    """Keeps entries in the file `path`. `free` returns the free bytes of the file system of a folder."""

    keeps_progress = True

    def __init__(self, path: Path, clock: Clock, limits: Limits, *, free: Callable[[Path], int] | None = None) -> None:
        self._trouble: str | None = None
        """The error because of which entries are only in memory; None if they are saved."""
        self._size = 0
        self._folder = path.parent
        self._clock = clock
        self._limits = limits
        self._database = Database(path, clock, tables.LAYOUT, limits.disk)
        self._unsaved = MemoryArchive(limits)
        self._forgotten: set[Key] = set()
        self._forgetting: set[Key] = set()
        """HPAs that the save in progress forgets."""
        self._deleted = 0
        self._tried = 0.0
        self._highest: int | None = None
        """The highest number when the file was read first; None before that."""
        self._free = free or _free_bytes
        log = structlog.get_logger("hpad.decisions", file=str(path))
        self._failing = Episode(log, clock, _FAILS, "the decision history is saved again")

    def usage(self) -> Usage:
        dropped = self._unsaved.dropped + self._deleted
        return Usage(self._unsaved.used, self._size, dropped, self._trouble or "")

    def put(self, key: Key, stored: Stored) -> None:
        self._unsaved.put(key, stored)

    def forget(self, key: Key) -> None:
        self._unsaved.forget(key)
        if len(self._forgotten) < _MOST_FORGOTTEN:  # the entries of more HPAs are deleted when they are too old
            self._forgotten.add(key)

    async def find(self, key: Key, search: Search) -> list[Stored]:
        # Before the read: an entry that is saved meanwhile is then in both results, not in none.
        unsaved = self._unsaved.found(key, search)
        if key in self._forgotten or key in self._forgetting:
            return unsaved
        traceless = [each.number for each in unsaved if not each.trace]
        rows, _ = await self._run(lambda connection: tables.find(connection, key, search, traceless))
        found = {each.number: each for each in rows or ()}
        for each in unsaved:
            before = found.get(each.number)
            found[each.number] = each if before is None else with_trace(each, before.trace)
        return sorted(found.values(), key=lambda each: -each.number)[: search.limit]

    async def oldest(self, key: Key) -> int | None:
        unsaved = self._unsaved.earliest(key)
        if key in self._forgotten or key in self._forgetting:
            return unsaved
        saved, _ = await self._run(lambda connection: tables.oldest(connection, key))
        return min((each for each in (unsaved, saved) if each is not None), default=None)

    async def load(self) -> int:
        _, error = await self._run(lambda connection: None)
        self._report(error)
        return self._highest or 0

    async def save(self) -> None:
        if self._trouble is None or self._clock.monotonic() - self._tried >= RETRY:
            await self._save()

    async def refresh(self, entries: Collection[tuple[Key, Stored]]) -> None:
        if self._trouble is None:
            await self._run(lambda connection: tables.note_progress(connection, entries))

    async def sweep(self, earliest: int, latest: int, is_open: Callable[[Key], bool]) -> None:
        await self._unsaved.sweep(earliest, latest, is_open)
        more: bool | None = self._trouble is None
        while more:  # in parts, between which entries are read
            more, _ = await self._run(lambda connection: tables.sweep(connection, earliest, latest))

    async def close(self) -> None:
        await self._save()
        await self._database.close()

    async def _save(self) -> None:
        """Writes everything that was put and forgotten. After an error it stays in memory."""
        entries = sorted(self._unsaved.all(), key=lambda entry: entry[1].number)  # appends are faster than insertions
        if not entries and not self._forgotten:
            return
        self._tried = self._clock.monotonic()
        forgotten, self._forgotten = self._forgotten, set()
        self._forgetting = forgotten
        error = await self._write(entries, forgotten)
        self._forgetting = set()
        if error is None:
            for key, stored in entries:
                self._unsaved.remove(key, stored)
        else:
            self._forgotten |= forgotten
        self._report(error)
        self._size = await self._database.size()

    async def _write(self, entries: list[tuple[Key, Stored]], forgotten: Collection[Key]) -> str | None:
        free = await asyncio.to_thread(self._free, self._folder)
        if free < RESERVE:
            return f"{self._folder}: less than {RESERVE // _MIB} MiB are free, which are left to the state"
        most_entries, most_bytes = self._limits.entries, self._limits.disk
        deleted, error = await self._run(
            lambda connection: tables.write(
                connection, entries, forgotten, most_entries=most_entries, most_bytes=most_bytes
            )
        )
        self._deleted += deleted or 0
        return error

    async def _run(self, work: Callable[[sqlite3.Connection], T]) -> tuple[T | None, str | None]:
        return await self._database.run(lambda connection: self._work(connection, work))

    def _work(self, connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
        """Runs work in the thread; the first one takes over what an earlier process has left."""
        if self._highest is None:
            self._highest = tables.load(connection)
        return work(connection)

    def _report(self, error: str | None) -> None:
        self._trouble = error
        if error is None:
            self._failing.ended()
        else:
            self._failing.occurred(error=error)


def _free_bytes(folder: Path) -> int:
    """Returns the free bytes of a file system; many if they are unknown."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return 1 << 62
    return status.f_bavail * status.f_frsize

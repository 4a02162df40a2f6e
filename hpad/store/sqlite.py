"""Records in an SQLite file: the storage backend of a service on one machine.

- One thread owns the connection, so that a slow disk never blocks the event loop.
- The file stays locked while it is open, so that a second hpad with the same file gets an error instead of overwriting
  the records.
- A save is one transaction in the write-ahead log, synced to disk, so that a power loss never leaves half a save.
- A file that is damaged, of another format or no database is renamed with the time and replaced; the last few are kept.
- A file that cannot be opened, read or written at the moment is left alone and tried again with each save.
"""

import asyncio
import contextlib
import errno
import glob
import os
import sqlite3
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.store.memory import StoreError

FILE: Final = "history.db"
FORMAT: Final = 1
_APPLICATION: Final = 0x68706164
_PAGE: Final = 4096
MOST_BYTES: Final = 1 << 29
KEPT_ASIDE: Final = 5
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")
_BROKEN: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_IN_USE: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_FOR_GOOD: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG,
}  # fmt: skip
_SHORT_READ: Final = 522  # SQLITE_IOERR_SHORT_READ: the file ends within a page
_SCHEMA: Final = "CREATE TABLE histories (namespace TEXT, name TEXT, record BLOB, PRIMARY KEY (namespace, name))"
_PUT: Final = "INSERT OR REPLACE INTO histories VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM histories WHERE namespace = ? AND name = ?"

Rows = list[tuple[Key, bytes]]
T = TypeVar("T")


class _Damaged(Exception):
    """The file is not what it should be; the message says why."""


def check(path: Path) -> None:
    """Raises StoreError if the file can never be created there. Blocks.

    A disk that is full or sick and a file that is in use may be better later: they are no matter of the settings.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if not os.access(path.parent, os.W_OK | os.X_OK):  # SQLite has files of its own beside this one
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno in _FOR_GOOD:
            what = "state cannot be kept in this file; hpad must be able to write to it and its folder"
            raise StoreError(f"store: {path}: {error.strerror}: {what}") from None


class Sqlite:
    """A `persistent.Backend` in a file, whose folder is made as needed. It takes at most `most_bytes`."""

    def __init__(self, path: Path, clock: Clock, *, most_bytes: int = MOST_BYTES) -> None:
        self.name = str(path)
        self._path = path
        self._files = (path, path.with_name(f"{path.name}-wal"))
        self._clock = clock
        self._now = clock.now()
        self._most_pages = max(1, most_bytes // _PAGE)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        self._connection: sqlite3.Connection | None = None
        self._file = (0, 0)
        self._is_new = False
        self._log = structlog.get_logger("hpad.store", store=self.name)

    def group(self, key: Key) -> Hashable:
        """All are written together."""
        return ""

    async def load(self) -> tuple[Rows, str | None]:
        rows, trouble = await self._do(self._load)
        return rows or [], trouble

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        _, trouble = await self._do(lambda: self._save(changes))
        return {} if trouble is None else dict.fromkeys(changes, trouble)

    async def quarantine(self, keys: Collection[Key]) -> None:
        """A copy of the whole file is put aside; the file goes on without these records, so that no other is lost."""
        await self._do(lambda: self._take_out(keys))

    def emptied(self) -> bool:
        was, self._is_new = self._is_new, False
        return was

    async def size(self) -> int:
        return (await self._do(self._size))[0] or 0

    async def close(self) -> None:
        await self._do(self._close)
        self._thread.shutdown(wait=False)

    async def _do(self, work: Callable[[], T]) -> tuple[T | None, str | None]:
        """Have it done by the thread: its result, or what went wrong."""
        self._now = self._clock.now()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)
        except RuntimeError as error:  # no room for the thread
            return None, f"{self._path}: {error}"

    def _guarded(self, work: Callable[[], T]) -> tuple[T | None, str | None]:
        """The border to SQLite. A file found damaged is put aside, and the work done again on a new one."""
        try:
            try:
                return work(), None
            except (_Damaged, sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if not _is_damage(error):
                    raise
                self._put_aside(str(error))
                return work(), None
        except (_Damaged, sqlite3.Error, OSError, UnicodeError) as error:
            with contextlib.suppress(sqlite3.Error):
                self._close()
            return None, f"{self._path}: {_said(error)}"

    def _load(self) -> Rows:
        rows = self._opened().execute("SELECT namespace, name, record FROM histories").fetchall()
        for row in rows:
            if [type(field) for field in row] != [str, str, bytes]:
                raise _Damaged("a row of it has fields of the wrong type")
        return [(Key(namespace, name), record) for namespace, name, record in rows]

    def _save(self, changes: Mapping[Key, bytes | None]) -> None:
        connection = self._opened()
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(_PUT, [(*key, record) for key, record in changes.items() if record is not None])
            connection.executemany(_DELETE, [key for key, record in changes.items() if record is None])
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _take_out(self, keys: Collection[Key]) -> None:
        """Raises _Damaged, sqlite3.Error or OSError: then all of it is damaged, or can't be written now."""
        connection = self._opened()
        if connection.execute("SELECT count(*) FROM histories").fetchone() == (0,):
            return
        aside = self._aside()
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection.execute("VACUUM INTO ?", (str(aside),))
        self._save(dict.fromkeys(keys))
        self._log.error("damaged records: left out", records=len(keys), kept_as=str(aside))

    def _size(self) -> int:
        return sum(file.stat().st_size for file in self._files if file.exists())

    def _opened(self) -> sqlite3.Connection:
        """The connection; where there is none yet, the file is opened, checked, and made if need be.

        Raises _Damaged, sqlite3.Error or OSError.
        """
        if self._connection is not None and self._identity() != self._file:
            self._log.error("the state file was removed: creating a new one")
            self._close()
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
                self._is_new = True
            self._connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
            self._file = self._identity()
            _prepare(self._connection, self._most_pages)
        return self._connection

    def _identity(self) -> tuple[int, int]:
        """Which file has the name now, (0, 0) if none has."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_dev, found.st_ino

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _put_aside(self, why: str) -> None:
        """Rename the file and what belongs to it; raises OSError."""
        with contextlib.suppress(sqlite3.Error):
            self._close()
        aside = self._aside()
        for suffix in ("", *_SIDE_FILES):
            file = self._path.with_name(self._path.name + suffix)
            if file.exists():
                file.rename(aside.with_name(aside.name + suffix))
        self._log.error("the state file is damaged: renamed, creating a new one", why=why, kept_as=str(aside))

    def _aside(self) -> Path:
        """A name for a damaged file, once the oldest of those with such names have made room; raises OSError."""
        others = sorted(self._path.parent.glob(f"{glob.escape(self._path.name)}.damaged-*Z"))
        for old in others[: len(others) - KEPT_ASIDE + 1]:
            for suffix in ("", *_SIDE_FILES):
                old.with_name(old.name + suffix).unlink(missing_ok=True)
        return self._path.with_name(f"{self._path.name}.damaged-{self._now:%Y%m%dT%H%M%S.%fZ}")


def _prepare(connection: sqlite3.Connection, most_pages: int) -> None:
    """Make a connection ready for use; raises _Damaged or sqlite3.Error."""
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA journal_size_limit = {1 << 24}")
    connection.execute(f"PRAGMA max_page_count = {most_pages}")
    connection.execute("BEGIN IMMEDIATE")
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
        _make(connection)
    connection.execute("COMMIT")
    _check(connection)


def _make(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")
    connection.execute(_SCHEMA)


def _check(connection: sqlite3.Connection) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    schema = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    if application != _APPLICATION or schema != [("table", "histories", _SCHEMA)]:
        raise _Damaged("it is no state file of hpad")
    if version != FORMAT:
        raise _Damaged(f"its format is {version}, which this version of hpad does not know; it knows {FORMAT}")
    found = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != ("ok",):
        raise _Damaged(str(found[0]))


def _said(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _IN_USE:
        return "it is locked: another hpad probably uses it"
    return str(error)


def _is_damage(error: Exception) -> bool:
    """Whether it is the content of the file that is wrong, and not the disk, the rights, or another process."""
    if not isinstance(error, sqlite3.DatabaseError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python's own conversions, such as of text that is not UTF-8
        return "decode" in str(error)
    return code & 0xFF in _BROKEN or code == _SHORT_READ or code == sqlite3.SQLITE_ERROR

"""One SQLite file with the care that files of hpad need; the tables belong to its users.

- One thread owns the connection, so that a slow disk never blocks the event loop.
- The file stays locked while it is open, so that a second hpad with the same file gets an error instead of overwriting
  it.
- A file that is damaged, of another format or no database is renamed with the time and replaced; the last few are kept.
  One of an older format is deleted instead, where its layout says so.
- A file that cannot be opened, read or written at the moment is left alone and tried again with each call.
"""

import asyncio
import contextlib
import glob
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import structlog

from hpad.clock import Clock

PAGE: Final = 4096
"""The size of a page in bytes."""
_SIDE_FILES: Final = ("-wal", "-shm", "-journal")  # a log left beside a new file would be replayed into it
_BROKEN: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_IN_USE: Final = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SHORT_READ: Final = 522  # SQLITE_IOERR_SHORT_READ: the file ends within a page

T = TypeVar("T")


class Damaged(Exception):
    """The content of the file is wrong; the message has the reason."""


class Outdated(Damaged):
    """The file has an older format."""


class Layout(NamedTuple):
    """The content of a file and how it is kept.

    `what` names the file in messages. `application` and `format` are the numbers in its header. `schema` has type, name
    and statement of each table and index. `synchronous`: FULL syncs each transaction to disk; NORMAL may lose the last
    ones in a power loss, but never a part of one. `kept_aside`: the number of damaged files that are kept. `shrinks`:
    pages that were freed can be given back to the file system. `drops_older`: a file of an older format is deleted.
    """

    what: str
    application: int
    format: int
    schema: tuple[tuple[str, str, str], ...]
    synchronous: str = "FULL"
    log_bytes: int = 1 << 24
    kept_aside: int = 5
    shrinks: bool = False
    drops_older: bool = False


class Database:
    """A file of at most `most_bytes` bytes; its folder is created if necessary."""

    def __init__(self, path: Path, clock: Clock, layout: Layout, most_bytes: int) -> None:
        self.name = str(path)
        self._path = path
        self._files = (path, path.with_name(f"{path.name}-wal"))
        self._clock = clock
        self._now = clock.now()
        self._layout = layout
        self._most_pages = max(1, most_bytes // PAGE)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=layout.what)
        self._connection: sqlite3.Connection | None = None
        self._opened_files: list[tuple[int, int]] = []
        self._is_new = False
        self._log = structlog.get_logger("hpad.store", store=self.name)

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> tuple[T | None, str | None]:
        """Runs `work` in the thread. Returns its result, or the error as a sentence.

        Work that found the file damaged runs again on a new one.
        """
        return await self._run(lambda: work(self._opened()))

    async def size(self) -> int:
        """Returns the size in bytes, with the write-ahead log."""
        return (await self._run(self._size))[0] or 0

    async def close(self) -> None:
        """Closes the file and ends the thread."""
        await self._run(self._close)
        self._thread.shutdown(wait=False)

    def emptied(self) -> bool:
        """Whether a new file was created since the last call."""
        was, self._is_new = self._is_new, False
        return was

    def aside(self) -> Path:
        """Returns a name for a damaged file, after deleting the oldest such files. For the thread. Raises OSError."""
        others = sorted(self._path.parent.glob(f"{glob.escape(self._path.name)}.damaged-*Z"))
        for old in others[: len(others) - self._layout.kept_aside + 1]:
            for suffix in ("", *_SIDE_FILES):
                old.with_name(old.name + suffix).unlink(missing_ok=True)
        return self._path.with_name(f"{self._path.name}.damaged-{self._now:%Y%m%dT%H%M%S.%fZ}")

    async def _run(self, work: Callable[[], T]) -> tuple[T | None, str | None]:
        self._now = self._clock.now()  # not in the thread: clocks belong to the event loop
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._guarded, work)
        except RuntimeError as error:  # the thread cannot start
            return None, f"{self._path}: {error}"

    def _guarded(self, work: Callable[[], T]) -> tuple[T | None, str | None]:
        """Maps the errors of SQLite. A damaged file is renamed, and `work` runs again on a new one."""
        try:
            try:
                return work(), None
            except (Damaged, sqlite3.DatabaseError, UnicodeDecodeError) as error:
                if isinstance(error, Outdated) and self._layout.drops_older:
                    self._drop(str(error))
                elif _is_damage(error):
                    self._put_aside(str(error))
                else:
                    raise
                return work(), None
        except (Damaged, sqlite3.Error, OSError, UnicodeError) as error:
            with contextlib.suppress(sqlite3.Error):
                self._close()
            return None, f"{self._path}: {_message(error)}"

    def _size(self) -> int:
        return sum(file.stat().st_size for file in self._files if file.exists())

    def _opened(self) -> sqlite3.Connection:
        """Returns the connection; opens, checks and if necessary creates the file first.

        Raises Damaged, sqlite3.Error or OSError.
        """
        # After a deletion SQLite would go on writing to the file without a name, and all would be lost at the end.
        if self._connection is not None and self._identities() != self._opened_files:
            self._log.error(f"the {self._layout.what}, or the log beside it, was removed: opening or creating it again")
            self._close()
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                os.close(os.open(self._path, os.O_CREAT | os.O_WRONLY, 0o600))
                self._is_new = True
            self._connection = sqlite3.connect(self._path, timeout=0, isolation_level=None)
            _prepare(self._connection, self._layout, self._most_pages)
            self._opened_files = self._identities()
        return self._connection

    def _identities(self) -> list[tuple[int, int]]:
        """Returns device and inode of the file and its log that have the names now, (0, 0) where there is none."""
        return [_identity(file) for file in self._files]

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _drop(self, why: str) -> None:
        """Deletes the file and its side files. Raises OSError."""
        with contextlib.suppress(sqlite3.Error):
            self._close()
        for suffix in ("", *_SIDE_FILES):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self._log.info(f"the {self._layout.what} of an earlier version is dropped: creating a new one", reason=why)

    def _put_aside(self, why: str) -> None:
        """Renames the file and its side files. Raises OSError."""
        with contextlib.suppress(sqlite3.Error):
            self._close()
        aside = self.aside()
        for suffix in ("", *_SIDE_FILES):
            file = self._path.with_name(self._path.name + suffix)
            if file.exists():
                file.rename(aside.with_name(aside.name + suffix))
        text = f"the {self._layout.what} cannot be used: renamed, creating a new one"
        self._log.error(text, error=why, kept_as=str(aside))


class MemoryDatabase(Database):
    """A database in memory of at most `most_bytes` bytes. What it holds ends with the connection."""

    def __init__(self, clock: Clock, layout: Layout, most_bytes: int) -> None:
        super().__init__(Path(":memory:"), clock, layout, most_bytes)

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._is_new = True
            self._connection = sqlite3.connect(self._path, isolation_level=None)
            _prepare(self._connection, self._layout, self._most_pages)
        return self._connection

    def _size(self) -> int:
        (pages,) = self._opened().execute("PRAGMA page_count").fetchone()
        return int(pages) * PAGE


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commits what the block has written; undoes it after an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _prepare(connection: sqlite3.Connection, layout: Layout, most_pages: int) -> None:
    """Sets up a new connection, and creates the tables in an empty file. Raises Damaged or sqlite3.Error."""
    if layout.shrinks:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in a file without tables
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {layout.synchronous}")
    connection.execute(f"PRAGMA journal_size_limit = {layout.log_bytes}")
    connection.execute(f"PRAGMA max_page_count = {most_pages}")
    connection.execute("BEGIN IMMEDIATE")  # takes the write lock, so that a second hpad with this file fails here
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone() == (0,):
        connection.execute(f"PRAGMA application_id = {layout.application}")
        connection.execute(f"PRAGMA user_version = {layout.format}")
        for _, _, statement in layout.schema:
            connection.execute(statement)
    connection.execute("COMMIT")
    _check(connection, layout)


def _check(connection: sqlite3.Connection, layout: Layout) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    schema = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    if application != layout.application:
        raise Damaged(f"it is no {layout.what} of hpad")
    if version != layout.format:
        text = f"its format is {version}, which this version of hpad does not know; it knows {layout.format}"
        raise Outdated(text) if version < layout.format else Damaged(text)
    if tuple(schema) != layout.schema:
        raise Damaged(f"it is no {layout.what} of hpad")
    (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if result != "ok":
        raise Damaged(str(result))


def _identity(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_dev, status.st_ino


def _message(error: Exception) -> str:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _IN_USE:
        return "it is locked: another hpad probably uses it"
    return str(error)


def _is_damage(error: Exception) -> bool:
    """Whether the content of the file is wrong, rather than the disk, the permissions, or another process."""
    if not isinstance(error, sqlite3.DatabaseError):
        return True
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:  # raised by Python's own conversions, such as of text that is not UTF-8
        return "decode" in str(error)
    return code & 0xFF in _BROKEN or code == _SHORT_READ or code == sqlite3.SQLITE_ERROR

"""Records in an SQLite file: the storage backend of a service on one machine.

A save is one transaction in the write-ahead log, synced to disk, so that a power loss never leaves half a save. How the
file is opened, locked, checked and replaced: `hpad.store.database`.
"""

import errno
import os
import sqlite3
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Final

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.store.database import Damaged, Database, Layout, transaction
from hpad.store.store import StoreError

FILE: Final = "history.db"
FORMAT: Final = 1
MOST_BYTES: Final = 1 << 29
KEPT_ASIDE: Final = 5
_PERMANENT: Final = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENAMETOOLONG,
}  # fmt: skip
_SCHEMA: Final = "CREATE TABLE histories (namespace TEXT, name TEXT, record BLOB, PRIMARY KEY (namespace, name))"
_LAYOUT: Final = Layout(
    what="state file",
    application=0x68706164,
    format=FORMAT,
    schema=(("table", "histories", _SCHEMA),),
    kept_aside=KEPT_ASIDE,
)
_PUT: Final = "INSERT OR REPLACE INTO histories VALUES (?, ?, ?)"
_DELETE: Final = "DELETE FROM histories WHERE namespace = ? AND name = ?"

Rows = list[tuple[Key, bytes]]


def check(path: Path) -> None:
    """Raises StoreError if the file can never be created there. Blocks.

    A full or failing disk and a file in use raise nothing: they may pass, and the settings are not their cause.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        if not os.access(path.parent, os.W_OK | os.X_OK):  # SQLite creates its log beside the file
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno in _PERMANENT:
            what = "state cannot be kept in this file; hpad must be able to write to it and its folder"
            raise StoreError(f"store: {path}: {error.strerror}: {what}") from None


class Sqlite(Database):
    """A `store.Backend` in a file of at most `most_bytes` bytes; its folder is created if necessary."""

    def __init__(self, path: Path, clock: Clock, *, most_bytes: int = MOST_BYTES) -> None:
        super().__init__(path, clock, _LAYOUT, most_bytes)

    def group(self, key: Key) -> Hashable:
        """All records are written together."""
        return ""

    async def load(self) -> tuple[Rows, str | None]:
        rows, error = await self.run(_load)
        return rows or [], error

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        _, error = await self.run(lambda connection: _save(connection, changes))
        return {} if error is None else dict.fromkeys(changes, error)

    async def quarantine(self, keys: Collection[Key]) -> None:
        """Copies the whole file aside, then removes these records from it, so that no other record is lost."""
        await self.run(lambda connection: self._quarantine(connection, keys))

    def _quarantine(self, connection: sqlite3.Connection, keys: Collection[Key]) -> None:
        """Raises Damaged, sqlite3.Error or OSError if the whole file is damaged, or cannot be written now."""
        if connection.execute("SELECT count(*) FROM histories").fetchone() == (0,):  # the file was replaced meanwhile
            return
        aside = self.aside()
        # Created first for its permissions: VACUUM INTO takes an empty file, and would create one that all can read.
        os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        connection.execute("VACUUM INTO ?", (str(aside),))
        _save(connection, dict.fromkeys(keys))
        self._log.error("damaged records: left out", records=len(keys), kept_as=str(aside))


def _load(connection: sqlite3.Connection) -> Rows:
    rows = connection.execute("SELECT namespace, name, record FROM histories").fetchall()
    for row in rows:
        if [type(field) for field in row] != [str, str, bytes]:
            raise Damaged("a row of it has fields of the wrong type")
    return [(Key.of(namespace, name), record) for namespace, name, record in rows]


def _save(connection: sqlite3.Connection, changes: Mapping[Key, bytes | None]) -> None:
    with transaction(connection):
        connection.executemany(_PUT, [(*key, record) for key, record in changes.items() if record is not None])
        connection.executemany(_DELETE, [tuple(key) for key, record in changes.items() if record is None])

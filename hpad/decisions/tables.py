"""The tables of the decision history in its SQLite file, and the statements on them. All functions block."""

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from hpad.api.metadata import Key
from hpad.decisions.archive import Search
from hpad.decisions.compact import Stored
from hpad.store.database import PAGE, Layout, transaction

FORMAT: Final = 1
"""The format of the file, of its entries and of the dictionary they are compressed with."""
KEPT_ASIDE: Final = 1
"""The number of damaged files that are kept."""
LOG_BYTES: Final = 1 << 22
"""The size that the write-ahead log is cut to."""
_FULL: Final = 0.9
"""The part of the budget from which on the oldest entries are deleted, down to _AFTER of it."""
_AFTER: Final = 0.8
_DELETED: Final = 500
"""The number of entries that one transaction deletes or adds, so that the write-ahead log stays small."""
_SWEPT: Final = 5000
"""The number of entries that one call of `sweep` deletes, in about a tenth of a second."""

LAYOUT: Final = Layout(
    what="decision history",
    application=0x68706465,
    format=FORMAT,
    schema=(
        (
            "table",
            "hpas",
            "CREATE TABLE hpas (id INTEGER PRIMARY KEY, namespace TEXT, name TEXT, UNIQUE (namespace, name))",
        ),
        (
            "table",
            "entries",
            "CREATE TABLE entries (number INTEGER PRIMARY KEY, hpa INTEGER, began INTEGER, ended INTEGER, head BLOB)",
        ),
        ("table", "traces", "CREATE TABLE traces (number INTEGER PRIMARY KEY, trace BLOB)"),
        ("table", "progress", "CREATE TABLE progress (number INTEGER PRIMARY KEY, ended INTEGER, head BLOB)"),
        ("index", "entries_of_hpa", "CREATE INDEX entries_of_hpa ON entries (hpa, number)"),
        ("index", "entries_by_end", "CREATE INDEX entries_by_end ON entries (ended)"),
    ),
    synchronous="NORMAL",
    log_bytes=LOG_BYTES,
    kept_aside=KEPT_ASIDE,
    shrinks=True,
)
"""`progress` has the entries in progress as they were up to five minutes ago; their rows in `entries` are those of
their first turns."""
_HPA: Final = "(SELECT id FROM hpas WHERE namespace = ? AND name = ?)"
_ADD_HPA: Final = "INSERT OR IGNORE INTO hpas (namespace, name) VALUES (?, ?)"
_PUT: Final = (
    f"INSERT INTO entries (hpa, number, began, ended, head) VALUES ({_HPA}, ?, ?, ?, ?)"
    " ON CONFLICT (number) DO UPDATE SET ended = excluded.ended, head = excluded.head WHERE hpa = excluded.hpa"
)
_PUT_TRACE: Final = "INSERT OR REPLACE INTO traces VALUES (?, ?)"
_DELETE: Final = tuple(f"DELETE FROM {table} WHERE number = ?" for table in ("entries", "traces", "progress"))
_NOTE: Final = "INSERT OR REPLACE INTO progress VALUES (?, ?, ?)"
_TAKE_OVER: Final = (
    "UPDATE entries SET (ended, head) = (SELECT ended, head FROM progress WHERE progress.number = entries.number)"
    " WHERE number IN (SELECT number FROM progress)"
)
_FIND: Final = (
    "SELECT number, began, ended, head, {trace} FROM entries {join}"
    f" WHERE hpa = {_HPA} AND number < ? AND ended >= ? AND began <= ? ORDER BY number DESC LIMIT ?"
)
_FIND_HEADS: Final = _FIND.format(trace="x''", join="")
_FIND_ALL: Final = _FIND.format(trace="coalesce(trace, x'')", join="LEFT JOIN traces USING (number)")
_OLDEST: Final = f"SELECT min(began) FROM entries WHERE hpa = {_HPA}"
_OF_HPA: Final = f"SELECT number FROM entries WHERE hpa = {_HPA} ORDER BY number DESC LIMIT -1 OFFSET ?"
_PAST: Final = "SELECT number FROM entries WHERE {where} AND number NOT IN (SELECT number FROM progress)"
_EXPIRED: Final = f"{_PAST.format(where='ended < ?')} LIMIT {_SWEPT}"
_AHEAD: Final = f"{_PAST.format(where='ended > ?')} LIMIT {_SWEPT}"
_FIRST: Final = (
    f"{_PAST.format(where='true')} ORDER BY ended LIMIT ?",
    "SELECT number FROM entries ORDER BY ended LIMIT ?",
)
_UNUSED_HPAS: Final = "DELETE FROM hpas WHERE NOT EXISTS (SELECT 1 FROM entries WHERE hpa = hpas.id)"


def load(connection: sqlite3.Connection) -> int:
    """Takes over the progress that an earlier process has noted. Returns the highest number, 0 if there is none."""
    with transaction(connection):
        connection.execute(_TAKE_OVER)
        connection.execute("DELETE FROM progress")
    return _number(connection, "SELECT coalesce(max(number), 0) FROM entries")


def write(
    connection: sqlite3.Connection,
    entries: Sequence[tuple[Key, Stored]],
    forgotten: Iterable[Key],
    *,
    most_entries: int,
    most_bytes: int,
) -> int:
    """Deletes the entries of forgotten HPAs, then adds or replaces entries.

    Beyond `most_entries` of an HPA, and `most_bytes` of the file, the oldest entries are deleted. Returns how many were
    deleted for the size of the file.
    """
    for key in forgotten:
        _delete(connection, _numbers(connection, _OF_HPA, (*key, 0)))
    deleted = 0
    for part in _parts(entries, most_bytes):
        deleted += make_room(connection, sum(_size(stored) for _, stored in part), most_bytes)
        _put(connection, part)
    for key in {key for key, _ in entries}:
        _delete(connection, _numbers(connection, _OF_HPA, (*key, most_entries)))
    return deleted


def _put(connection: sqlite3.Connection, entries: Sequence[tuple[Key, Stored]]) -> None:
    with transaction(connection):
        connection.executemany(_ADD_HPA, {tuple(key) for key, _ in entries})
        connection.executemany(_PUT, [(*key, each.number, each.began, each.ended, each.head) for key, each in entries])
        connection.executemany(_PUT_TRACE, [(each.number, each.trace) for _, each in entries if each.trace])
        connection.executemany("DELETE FROM progress WHERE number = ?", [(each.number,) for _, each in entries])


def _parts(entries: Sequence[tuple[Key, Stored]], most_bytes: int) -> Iterator[Sequence[tuple[Key, Stored]]]:
    """Yields the entries in parts that are small for the file, and for its write-ahead log."""
    part: list[tuple[Key, Stored]] = []
    size, most = 0, min(most_bytes >> 4, LOG_BYTES)
    for entry in entries:
        part.append(entry)
        size += _size(entry[1])
        if len(part) >= _DELETED or size >= most:
            yield part
            part, size = [], 0
    if part:
        yield part


def _size(stored: Stored) -> int:
    return 100 + len(stored.head) + len(stored.trace)


def make_room(connection: sqlite3.Connection, size: int, most_bytes: int) -> int:
    """Deletes the oldest entries if `size` more bytes could fill the file. Returns how many.

    Entries in progress go last. Pages beyond the budget, after it was lowered, are given back.
    """
    deleted, needed = 0, 2 * size
    if _used(connection) + needed > _FULL * most_bytes:
        some = max(1, min(_DELETED, _number(connection, "SELECT count(*) FROM entries") // 20))
        while _used(connection) + needed > _AFTER * most_bytes:
            found = next(filter(None, (_numbers(connection, query, (some,)) for query in _FIRST)), [])
            if not found:
                break
            _delete(connection, found)
            deleted += len(found)
    surplus = _number(connection, "PRAGMA page_count") - most_bytes // PAGE
    if surplus > 0:
        # `execute` would take one step, which frees one page.
        connection.executescript(f"PRAGMA incremental_vacuum({surplus})")
    return deleted


def _used(connection: sqlite3.Connection) -> int:
    return (_number(connection, "PRAGMA page_count") - _number(connection, "PRAGMA freelist_count")) * PAGE


def note_progress(connection: sqlite3.Connection, entries: Collection[tuple[Key, Stored]]) -> None:
    """Replaces the noted progress."""
    with transaction(connection):
        connection.execute("DELETE FROM progress")
        connection.executemany(_NOTE, [(each.number, each.ended, each.head) for _, each in entries])


def sweep(connection: sqlite3.Connection, earliest: int, latest: int) -> bool:
    """Deletes entries that ended before `earliest` or after `latest` and are not in progress.

    Returns whether there may be more of them.
    """
    expired, ahead = _numbers(connection, _EXPIRED, (earliest,)), _numbers(connection, _AHEAD, (latest,))
    _delete(connection, expired)
    _delete(connection, ahead)
    connection.execute(_UNUSED_HPAS)
    return max(len(expired), len(ahead)) == _SWEPT


def find(connection: sqlite3.Connection, key: Key, search: Search, traceless: Iterable[int]) -> list[Stored]:
    """Returns entries, the newest first, and of the `traceless` numbers as well if traces are asked for."""
    statement = _FIND_ALL if search.traces else _FIND_HEADS
    rows = connection.execute(statement, (*key, search.before, search.since, search.until, search.limit)).fetchall()
    found = [Stored(*row) for row in rows]
    if search.traces:
        for number in set(traceless) - {each.number for each in found}:
            for (trace,) in connection.execute("SELECT trace FROM traces WHERE number = ?", (number,)):
                found.append(Stored(number, 0, 0, b"", trace))
    return found


def oldest(connection: sqlite3.Connection, key: Key) -> int | None:
    """Returns the earliest `began` of the HPA's entries."""
    (found,) = connection.execute(_OLDEST, tuple(key)).fetchone()
    return found if isinstance(found, int) else None


def _numbers(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[int]:
    return [number for (number,) in connection.execute(query, tuple(values))]


def _delete(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    for at in range(0, len(numbers), _DELETED):
        with transaction(connection):
            for statement in _DELETE:
                connection.executemany(statement, [(number,) for number in numbers[at : at + _DELETED]])


def _number(connection: sqlite3.Connection, query: str) -> int:
    (found,) = connection.execute(query).fetchone()
    return int(found)

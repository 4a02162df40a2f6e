"""The tables of the decision history in its database, and the statements on them. All functions block."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.metadata import Key
from hpad.records.entry import Numbers
from hpad.store.database import PAGE, Layout, transaction

FORMAT: Final = 2
"""The format of the tables, of what is stored in them, and of the dictionary it is compressed with."""
KEPT_ASIDE: Final = 1
"""The number of damaged files that are kept."""
LOG_BYTES: Final = 1 << 22
"""The size that the write-ahead log is cut to."""
_FULL: Final = 0.9
"""The part of the budget from which on the oldest entries are deleted, down to _AFTER of it."""
_AFTER: Final = 0.8
_PART: Final = 500
"""The number of entries that one transaction deletes or adds, so that the write-ahead log stays small."""
_ROW_BYTES: Final = 100
_READING_BYTES: Final = 40
FAR: Final = 1 << 62

LAYOUT: Final = Layout(
    what="decision history",
    application=0x68706465,
    format=FORMAT,
    schema=(
        (
            "table",
            "steps",
            "CREATE TABLE steps (number INTEGER PRIMARY KEY, hpa TEXT, began INTEGER, ended INTEGER, turns INTEGER,"
            " said BLOB, step BLOB)",
        ),
        (
            "table",
            "readings",
            "CREATE TABLE readings (number INTEGER, time INTEGER, numbers TEXT, PRIMARY KEY (number, time))"
            " WITHOUT ROWID",
        ),
        ("index", "steps_of_hpa", "CREATE INDEX steps_of_hpa ON steps (hpa, number)"),
        ("index", "steps_by_end", "CREATE INDEX steps_by_end ON steps (ended)"),
    ),
    synchronous="NORMAL",
    log_bytes=LOG_BYTES,
    kept_aside=KEPT_ASIDE,
    shrinks=True,
    drops_older=True,
)
"""A row of `steps` is an entry: what was said of its first reconcile, and the step that leads to it. `readings` has
what its metrics asked for from a time on. Times are microseconds since 1970."""
_ADD: Final = "INSERT OR REPLACE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?)"
_CONTINUE: Final = "UPDATE steps SET ended = ?, turns = ? WHERE number = ?"
_READ: Final = "INSERT OR REPLACE INTO readings SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM steps WHERE number = ?1)"
_DELETE: Final = tuple(f"DELETE FROM {table} WHERE number = ?" for table in ("steps", "readings"))
_FIND: Final = (
    "SELECT number, began, ended, turns, said, {step} FROM steps WHERE hpa = ? AND number < ? AND began <= ?"
    " AND (ended >= ? OR number IN ({numbers})) ORDER BY number DESC LIMIT ?"
)
_READINGS: Final = "SELECT time, numbers FROM readings WHERE number = ? ORDER BY time"
_OLDEST: Final = "SELECT min(began) FROM steps WHERE hpa = ?"
_OF_HPA: Final = "SELECT number FROM steps WHERE hpa = ? ORDER BY number DESC LIMIT -1 OFFSET ?"
_FIRST: Final = "SELECT number FROM steps ORDER BY ended LIMIT ?"
_PAST: Final = f"SELECT number FROM steps WHERE ended < ? OR ended > ? LIMIT {10 * _PART}"
_NUMBERS: Final = msgspec.json.Decoder(Numbers)

Readings = Mapping[int, Numbers]
"""What the metrics of an entry asked for, by the time from which on they did."""


class EntryRow(NamedTuple):
    """An entry in the database, with its readings. Times are microseconds since 1970; `step` may be empty."""

    number: int
    began: int
    ended: int
    turns: int
    said: bytes
    step: bytes
    readings: Readings


class EntryChange(NamedTuple):
    """What a save writes of an entry: all of it if it is `new`, else how far it is, and new readings."""

    key: Key
    row: EntryRow
    new: bool

    @property
    def size(self) -> int:
        """The bytes that are added, roughly."""
        new = _ROW_BYTES + len(self.row.said) + len(self.row.step) if self.new else 0
        return new + _READING_BYTES * len(self.row.readings)


class Search(NamedTuple):
    """Which entries of an HPA to return: those that overlap `since` to `until` and have a number below `before`.

    Times are microseconds since 1970. Of more than `limit`, the newest are returned. Without `steps` the step of each
    is missing.
    """

    since: int = -FAR
    until: int = FAR
    before: int = FAR
    limit: int = 1000
    steps: bool = False

    def finds(self, row: EntryRow) -> bool:
        """Whether the entry is one of these."""
        return row.number < self.before and row.ended >= self.since and row.began <= self.until


def save(connection: sqlite3.Connection, changes: Sequence[EntryChange], *, most_entries: int, most_bytes: int) -> int:
    """Writes changes. Beyond `most_entries` of an HPA, and `most_bytes` in all, the oldest entries are deleted.

    Returns how many were deleted for the size.
    """
    deleted = 0
    for part in _parts(changes, most_bytes):
        deleted += make_room(connection, sum(each.size for each in part), most_bytes)
        _put(connection, part)
    for key in {each.key for each in changes if each.new}:
        _delete(connection, _numbers(connection, _OF_HPA, (str(key), most_entries)))
    return deleted


def _put(connection: sqlite3.Connection, changes: Sequence[EntryChange]) -> None:
    new = [(each.row.number, str(each.key), *each.row[1:-1]) for each in changes if each.new]
    known = [(each.row.ended, each.row.turns, each.row.number) for each in changes if not each.new]
    readings = [
        (each.row.number, time, msgspec.json.encode(numbers).decode())
        for each in changes
        for time, numbers in each.row.readings.items()
    ]
    with transaction(connection):
        connection.executemany(_ADD, new)
        connection.executemany(_CONTINUE, known)
        connection.executemany(_READ, readings)


def _parts(changes: Sequence[EntryChange], most_bytes: int) -> Iterator[Sequence[EntryChange]]:
    """Yields the changes in parts that are small for the database, and for its write-ahead log."""
    part: list[EntryChange] = []
    size, most = 0, min(most_bytes >> 4, LOG_BYTES)
    for change in changes:
        part.append(change)
        size += change.size
        if len(part) >= _PART or size >= most:
            yield part
            part, size = [], 0
    if part:
        yield part


def make_room(connection: sqlite3.Connection, size: int, most_bytes: int) -> int:
    """Deletes the entries that ended first if `size` more bytes could fill the database. Returns how many.

    Pages beyond the budget, after it was lowered, are given back.
    """
    deleted, needed = 0, 2 * size
    if used(connection) + needed > _FULL * most_bytes:
        some = max(1, min(_PART, _number(connection, "SELECT count(*) FROM steps") // 20))
        while used(connection) + needed > _AFTER * most_bytes:
            found = _numbers(connection, _FIRST, (some,))
            if not found:
                break
            _delete(connection, found)
            deleted += len(found)
    surplus = _number(connection, "PRAGMA page_count") - most_bytes // PAGE
    if surplus > 0:
        # `execute` would take one step, which frees one page.
        connection.executescript(f"PRAGMA incremental_vacuum({surplus})")
    return deleted


def used(connection: sqlite3.Connection) -> int:
    """Returns the bytes in use."""
    return (_number(connection, "PRAGMA page_count") - _number(connection, "PRAGMA freelist_count")) * PAGE


def sweep(connection: sqlite3.Connection, earliest: int, latest: int) -> bool:
    """Deletes entries that ended before `earliest`, or after `latest`: a clock that was wrong has left these.

    Returns whether there may be more of them.
    """
    found = _numbers(connection, _PAST, (earliest, latest))
    _delete(connection, found)
    return len(found) == 10 * _PART


def find(connection: sqlite3.Connection, key: Key, search: Search, numbers: Collection[int]) -> list[EntryRow]:
    """Returns entries, the newest first; those with these numbers also if they ended earlier, by the database."""
    statement = _FIND.format(step="step" if search.steps else "x''", numbers=",".join(map(str, numbers)))
    values = str(key), search.before, search.until, search.since, search.limit + len(numbers)
    rows = connection.execute(statement, values).fetchall()
    return [EntryRow._make((*row, _readings(connection, row[0]))) for row in rows]


def _readings(connection: sqlite3.Connection, number: int) -> dict[int, Numbers]:
    """Returns the readings of an entry; those that are damaged are left out."""
    found = {}
    for time, text in connection.execute(_READINGS, (number,)):
        try:
            found[time] = _NUMBERS.decode(text)
        except (msgspec.DecodeError, TypeError):
            continue
    return found


def oldest(connection: sqlite3.Connection, key: Key) -> int | None:
    """Returns the earliest `began` of the HPA's entries."""
    (found,) = connection.execute(_OLDEST, (str(key),)).fetchone()
    return found if isinstance(found, int) else None


def highest(connection: sqlite3.Connection) -> int:
    """Returns the highest number, 0 if there is none."""
    return _number(connection, "SELECT coalesce(max(number), 0) FROM steps")


def _numbers(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[tuple[int]]:
    return connection.execute(query, tuple(values)).fetchall()


def _delete(connection: sqlite3.Connection, numbers: Sequence[tuple[int]]) -> None:
    for at in range(0, len(numbers), _PART):
        with transaction(connection):
            for statement in _DELETE:
                connection.executemany(statement, numbers[at : at + _PART])


def _number(connection: sqlite3.Connection, query: str) -> int:
    (found,) = connection.execute(query).fetchone()
    return int(found)

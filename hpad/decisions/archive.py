"""Where past entries of the decision history are kept: what the log asks of an archive, and its limits."""

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Final, NamedTuple, Protocol

from hpad.api.metadata import Key
from hpad.decisions.compact import Stored

_FAR: Final = 1 << 62


class Limits(NamedTuple):
    """The bounds of the history: age and number of the entries of one HPA, and the bytes of all entries."""

    span: timedelta = timedelta(hours=24)
    entries: int = 1000
    memory: int = 16 << 20
    disk: int = 256 << 20


DEFAULT: Final = Limits()


class Search(NamedTuple):
    """Which entries of an HPA to return: those that overlap `since` to `until` and have a number below `before`.

    Times are microseconds since 1970. Of more than `limit`, the newest are returned. Without `traces` the trace of each
    may be missing.
    """

    since: int = -_FAR
    until: int = _FAR
    before: int = _FAR
    limit: int = 1000
    traces: bool = False

    def finds(self, stored: Stored) -> bool:
        """Whether the entry is one of these."""
        return stored.number < self.before and stored.ended >= self.since and stored.began <= self.until


class Usage(NamedTuple):
    """Bytes in memory and on disk, entries dropped for a budget, and the error of the last save ("": none)."""

    memory: int = 0
    disk: int = 0
    dropped: int = 0
    trouble: str = ""


class Archive(Protocol):
    """Keeps the entries of all HPAs. No method raises, and those that are not async never wait."""

    keeps_progress: bool
    """Whether `refresh` is of use."""

    def usage(self) -> Usage:
        """Returns what the archive takes."""
        ...

    def put(self, key: Key, stored: Stored) -> None:
        """Adds an entry as the newest of its HPA, or replaces the newest if it has the same number."""
        ...

    def forget(self, key: Key) -> None:
        """Drops all entries of an HPA."""
        ...

    async def find(self, key: Key, search: Search) -> list[Stored]:
        """Returns entries of an HPA, the newest first."""
        ...

    async def oldest(self, key: Key) -> int | None:
        """Returns the earliest `began` of the HPA's entries."""
        ...

    async def load(self) -> int:
        """Reads what an earlier process has left. Returns the highest number, 0 if there is no entry."""
        ...

    async def save(self) -> None:
        """Writes what was put and forgotten since the last save."""
        ...

    async def refresh(self, entries: Collection[tuple[Key, Stored]]) -> None:
        """Notes how far the entries in progress are, so that a crash does not lose it."""
        ...

    async def sweep(self, earliest: int, latest: int, is_open: Callable[[Key], bool]) -> None:
        """Drops entries that ended before `earliest`, or after `latest`: a clock that was wrong has left these.

        Of an HPA for which `is_open` the newest entry is in progress: it stays.
        """
        ...

    async def close(self) -> None:
        """Saves, and ends the archive."""
        ...

"""An archive in memory: the decision history of a process whose state is in no file."""

from collections.abc import Callable, Collection
from typing import Final

from hpad.api.metadata import Key
from hpad.decisions.archive import Limits, Search, Usage
from hpad.decisions.compact import Stored, with_trace

_ENTRY_BYTES: Final = 280
"""What an entry takes beside its content: the object, its numbers, two headers of bytes, and its place in a list."""
_HPA_BYTES: Final = 130
"""What an HPA takes beside its entries: its list and its places in two dictionaries."""


class MemoryArchive:
    """Keeps `limits.entries` entries per HPA and `limits.memory` bytes in all.

    Beyond these bytes the HPA with the most entries loses its oldest one. `dropped` counts entries that were lost that
    way; `used` is the bytes in use.
    """

    keeps_progress = False

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._entries: dict[Key, list[Stored]] = {}
        self._levels: list[dict[Key, None]] = [{}]
        """The HPAs by the number of their entries, so that the one with the most is found at once."""
        self.used = 0
        self.dropped = 0

    def __len__(self) -> int:
        """Returns the number of entries."""
        return sum(count * len(level) for count, level in enumerate(self._levels))

    def usage(self) -> Usage:
        return Usage(memory=self.used, dropped=self.dropped)

    def put(self, key: Key, stored: Stored) -> None:
        entries = self._entries.get(key)
        if entries is None:
            entries = self._entries[key] = []
            self.used += _HPA_BYTES
        elif entries[-1].number == stored.number:
            last = entries.pop()
            self._moved(key, len(entries) + 1, len(entries))
            self.used -= _cost(last)
            stored = with_trace(stored, last.trace)
        entries.append(stored)
        self._moved(key, len(entries) - 1, len(entries))
        self.used += _cost(stored)
        if len(entries) > self._limits.entries:
            self._drop_oldest(key)
        while self.used > self._limits.memory:
            self.dropped += 1
            self._drop_oldest(next(iter(self._levels[-1])))

    def forget(self, key: Key) -> None:
        while key in self._entries:
            self._drop_oldest(key)

    def remove(self, key: Key, stored: Stored) -> None:
        """Drops this entry, unless it was replaced or dropped meanwhile."""
        entries = self._entries.get(key, [])
        if any(each is stored for each in entries):
            self._dropped(key, next(index for index, each in enumerate(entries) if each is stored))

    def all(self) -> list[tuple[Key, Stored]]:
        """Returns all entries, those of an HPA in their order."""
        return [(key, stored) for key, entries in self._entries.items() for stored in entries]

    async def find(self, key: Key, search: Search) -> list[Stored]:
        return self.found(key, search)

    def found(self, key: Key, search: Search) -> list[Stored]:
        """Returns entries as `find` does."""
        return [each for each in reversed(self._entries.get(key, ())) if search.finds(each)][: search.limit]

    async def oldest(self, key: Key) -> int | None:
        return self.earliest(key)

    def earliest(self, key: Key) -> int | None:
        """Returns the earliest `began` of the HPA's entries."""
        return min((stored.began for stored in self._entries.get(key, ())), default=None)

    async def load(self) -> int:
        return 0

    async def save(self) -> None:
        pass

    async def refresh(self, entries: Collection[tuple[Key, Stored]]) -> None:
        pass

    async def sweep(self, earliest: int, latest: int, is_open: Callable[[Key], bool]) -> None:
        for key, entries in tuple(self._entries.items()):
            past = entries[:-1] if is_open(key) else tuple(entries)
            for stored in past:
                if stored.ended < earliest or stored.ended > latest:
                    self.remove(key, stored)

    async def close(self) -> None:
        pass

    def _drop_oldest(self, key: Key) -> None:
        self._dropped(key, 0)

    def _dropped(self, key: Key, index: int) -> None:
        entries = self._entries[key]
        self.used -= _cost(entries.pop(index))
        self._moved(key, len(entries) + 1, len(entries))
        if not entries:
            del self._entries[key]
            self.used -= _HPA_BYTES

    def _moved(self, key: Key, before: int, after: int) -> None:
        """Moves an HPA to the level of its new number of entries; level 0 stays empty."""
        if before:
            del self._levels[before][key]
        if after == len(self._levels):
            self._levels.append({})
        if after:
            self._levels[after][key] = None
        while len(self._levels) > 1 and not self._levels[-1]:
            self._levels.pop()


def _cost(stored: Stored) -> int:
    return _ENTRY_BYTES + len(stored.head) + len(stored.trace)

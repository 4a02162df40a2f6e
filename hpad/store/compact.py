"""The memories by HPA: those of existing HPAs as objects, those of deleted HPAs as encoded records.

A memory is about sixty objects of three kilobytes together; its record has a few hundred bytes. This prevents HPAs that
are created and deleted all the time from filling the memory limit. A deleted HPA that comes back is decoded again, with
what a restart would have kept.
"""

from collections.abc import Iterator

from hpad.api.metadata import Key
from hpad.clock import Moment
from hpad.store import record
from hpad.store.memory import Memory, closed, invalidated, loaded


class CompactMap:
    """A mapping, of which `pack` makes single entries small."""

    def __init__(self) -> None:
        self._open: dict[Key, Memory] = {}
        self._packed: dict[Key, bytes] = {}

    def __len__(self) -> int:
        return len(self._open) + len(self._packed)

    def __iter__(self) -> Iterator[Key]:
        yield from self._open
        yield from self._packed

    def __contains__(self, key: Key) -> bool:
        return key in self._open or key in self._packed

    def get(self, key: Key) -> Memory | None:
        """The memory, None if there is none. A packed memory stays packed until a caller puts it again."""
        held = self._open.get(key)
        if held is not None:
            return held
        packed = self._packed.get(key)
        return None if packed is None else record.decode(key, packed)

    def put(self, key: Key, memory: Memory) -> None:
        self._packed.pop(key, None)
        self._open[key] = memory

    def drop(self, key: Key) -> None:
        """Fine if there is none."""
        self._open.pop(key, None)
        self._packed.pop(key, None)

    def mark_loaded(self, key: Key) -> None:
        """From now on the memory is one that was `loaded`; fine if there is none."""
        held = self._open.get(key)
        if held is not None:  # one that was packed is so anyway
            self._open[key] = loaded(held)

    def invalidate(self, key: Key) -> None:
        """Another process may have made turns: the memory is one that is `invalidated` now; fine if there is none."""
        held = self.get(key)
        if held is not None:
            self.put(key, invalidated(held))

    def mark_closed(self, key: Key, now: Moment) -> bool:
        """Note that no further turn is made for the HPA; whether that changed anything."""
        held = self._open.get(key)
        if held is None:
            return False
        self._open[key] = result = closed(held, now)
        return result is not held

    def is_packed(self, key: Key) -> bool:
        return key in self._packed

    def pack(self, key: Key) -> None:
        """Keep nothing but the record, as if the memory had been read from where it survives; fine if there is none."""
        held = self._open.pop(key, None)
        if held is not None:
            self._packed[key] = record.encode(key, held)

    def record(self, key: Key) -> bytes | None:
        """What is to be saved, None if there is none."""
        packed = self._packed.get(key)
        if packed is not None:
            return packed
        held = self._open.get(key)
        return None if held is None else record.encode(key, held)

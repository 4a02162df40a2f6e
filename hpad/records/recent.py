"""The last reconciles of all HPAs in memory, to be saved as a recording on request.

The entries refer to inputs and results that the reconcile has made anyway. They are encoded only when they are saved.
Two bounds hold: the age of a reconcile, and an estimate of the memory of all of them.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote

import msgspec

from hpad.api.metadata import Key
from hpad.clock import Clock
from hpad.engine.turn import Reconcile
from hpad.records.encode import LINE_END, Progress, encode_start
from hpad.records.weight import weight

MEMORY: Final = 4 << 20
"""The most bytes of all reconciles, by the same estimate: ten minutes of 17 HPAs with a period of 15 s. More belongs in
a folder of recordings."""


class _Entry(msgspec.Struct, frozen=True, gc=False):
    """A reconcile, the monotonic time of its end in seconds, and its estimated bytes."""

    at: float
    size: int
    done: Reconcile


class RecentReconciles:
    """Keeps the reconciles of the last `seconds` (0: none), at most `memory` bytes in all."""

    def __init__(self, clock: Clock, *, seconds: float, memory: int = MEMORY) -> None:
        self._clock = clock
        self._seconds = seconds
        self._memory = memory
        self._entries: deque[_Entry] = deque()
        self.size = 0
        """The estimated bytes of all reconciles."""

    @property
    def is_on(self) -> bool:
        """Whether reconciles are kept."""
        return self._seconds > 0

    def retune(self, *, seconds: float) -> None:
        """Changes how long reconciles are kept. Drops older ones."""
        self._seconds = seconds
        if not self.is_on:
            self._entries.clear()
            self.size = 0
        self._drop(self._clock.monotonic())

    def note(self, done: Reconcile) -> None:
        """Adds a reconcile, and drops the oldest ones of all HPAs that are beyond the bounds."""
        if not self.is_on:
            return
        now, size = self._clock.monotonic(), weight(done)
        self._entries.append(_Entry(now, size, done))
        self.size += size
        self._drop(now)

    def all(self) -> list[Reconcile]:
        """Returns the reconciles of all HPAs, the oldest first."""
        self._drop(self._clock.monotonic())
        return [entry.done for entry in self._entries]

    def of(self, key: Key) -> list[Reconcile]:
        """Returns the reconciles of one HPA, the oldest first."""
        return [done for done in self.all() if done.view.key == key]

    def _drop(self, now: float) -> None:
        oldest, entries = now - self._seconds, self._entries
        while entries and (entries[0].at <= oldest or self.size > self._memory):
            self.size -= entries.popleft().size


def lines(reconciles: Sequence[Reconcile]) -> Iterator[bytes]:
    """Yields the scenarios of the reconciles, one HPA after the other, a line each."""
    by_hpa: dict[Key, list[Reconcile]] = {}
    for done in reconciles:
        by_hpa.setdefault(done.view.key, []).append(done)
    for key in sorted(by_hpa):
        yield from _scenarios(f"{quote(key.namespace, safe='')}.{quote(key.name, safe='')}", by_hpa[key])


def _scenarios(name: str, reconciles: Sequence[Reconcile]) -> Iterator[bytes]:
    """Yields the scenarios of one HPA, NAME-0, NAME-1 and so on: most often there is one."""
    last, line, scenarios = Progress(), bytearray(), 0
    for done in reconciles:
        if last.continued_by(done):
            line += b"," + last.step(done)
        else:
            if line:
                yield bytes(line + LINE_END)
            last = Progress()
            line = bytearray(encode_start(done, f"{name}-{scenarios}") + last.step(done))
            scenarios += 1
        last.add(done)
    if line:
        yield bytes(line + LINE_END)

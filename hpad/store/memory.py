"""State per HPA from reconcile to reconcile, and for how long it is complete. `InMemory` does not outlive the process.

A process that is killed may have made a turn that was never saved. The next process then misses that turn's
recommendations, and a stabilization window would end too early. Therefore each memory states when the next turn was
planned. A memory loaded before that time is complete, since no turn can have been made meanwhile. A memory loaded later
may have a gap. Two mechanisms keep this true:

- A turn before the planned one (the HPA was edited, or hpad was just started) is first noted in the store, which
  invalidates the memory there (`invalidated`).
- A process that ends, or hands the HPA off, notes that it makes no further turn (`closed`). Such a memory is complete
  until the planned turn is a period late, on another machine as well.

Time is measured by the monotonic clock if both processes run in one boot of one machine, so a wall clock that is set
does not matter. Across boots only wall times are known, which two machines do not share exactly. There a memory is
complete only if it was closed.
"""

from collections.abc import Collection, Iterator
from datetime import datetime, timedelta
from typing import Final, Protocol

import msgspec

from hpad import clock
from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.clock import Moment
from hpad.engine.history import EMPTY, History, Rescale

SLIGHT: Final = 2e-3
"""Seconds by which a planned turn may come early: timers round to whole milliseconds."""
SKEW: Final = timedelta(minutes=1)
"""The largest expected difference between the wall clocks of two machines."""


class Validity(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Goes with the time at which a turn was made.

    `ticks` is that time by the monotonic clock of `boot`, in seconds. `lasts` is how many seconds later the next turn
    was planned, `grace` how many seconds late that may be. `closed`: no turn was made since, and none will be by the
    process that wrote this.
    """

    boot: str
    ticks: float
    lasts: float = 0.0
    grace: float = 0.0
    closed: bool = False

    def comparable(self, now: Moment) -> bool:
        """Whether the monotonic times are of one clock."""
        return self.boot == clock.boot() and now.monotonic >= self.ticks

    def seconds_left(self, at: datetime, now: Moment) -> float:
        """For how many seconds it is valid yet; 0 or less: not any more. `at` is its time by the wall clock."""
        length = self.lasts + self.grace if self.closed else self.lasts
        if self.comparable(now):
            return length - (now.monotonic - self.ticks)
        return min(length, length - (now.wall - at).total_seconds())

    def is_complete(self, at: datetime, now: Moment) -> bool:
        """Whether what is read now can have no hole."""
        if not self.comparable(now) and not (self.closed and now.wall >= at - SKEW):
            return False
        return self.seconds_left(at, now) > SLIGHT

    def close(self, at: datetime, now: Moment) -> "Validity":
        """The same, closed: the process makes no further turn. Unchanged where a turn was due and may have started."""
        return msgspec.structs.replace(self, closed=True) if self.seconds_left(at, now) > SLIGHT else self

    def prolonged(self, turn: "Validity") -> "Validity":
        """The same up to the turn planned after this one, which left nothing to remember."""
        if self.boot != turn.boot or turn.ticks < self.ticks:
            return self
        return Validity(self.boot, self.ticks, turn.ticks + turn.lasts - self.ticks, turn.grace)

    def invalidated(self) -> "Validity":
        """The same, valid no longer."""
        return Validity(self.boot, self.ticks)


class StoreError(Exception):
    """The store of the settings cannot be used; the message names the place and the reason."""


class Last(msgspec.Struct, frozen=True):
    """The last decision, as a sentence for people, and the cause of what was wrong with the reconcile, if anything was.

    `withheld` is the count that was decided but not written, None where nothing was withheld. `fallbacks` are the
    labels of the metrics that a fallback stood in for.
    """

    at: datetime
    sentence: str
    error: str | None = None
    withheld: int | None = None
    fallbacks: tuple[str, ...] = ()


class PendingRescale(msgspec.Struct, frozen=True):
    """A rescale that is about to be written: the count before and after, and what is to be remembered once it is done.

    `status` is the status that the HPA gets then.
    """

    current: int
    to: int
    scale_ups: tuple[Rescale, ...]
    scale_downs: tuple[Rescale, ...]
    status: HorizontalPodAutoscalerStatus


class Memory(msgspec.Struct, frozen=True):
    """What hpad remembers of one HPA.

    `uid` is that of the HPA: one that is deleted and created again under the same name starts without state.

    `target` is what it scaled (group/kind/name; "": unknown): of another target this says nothing.
    `status` is the status of an HPA that has no API object to keep it in. `at` is when the HPA was last reconciled and
    `last_count` the last written replica count (None: unknown). `pending` is there while a rescale is being
    written, and for good where the process ended in the middle of it. `loaded`: nothing was added since it was read
    from where it survives, or since the HPA was gone or another's; `complete`: no turn can be missing from such a one.
    `validity` says for how long it is the whole story.
    """

    uid: str = ""
    history: History = EMPTY
    status: HorizontalPodAutoscalerStatus | None = None
    last: Last | None = None
    at: datetime | None = None
    last_count: int | None = None
    pending: PendingRescale | None = None
    loaded: bool = False
    target: str = ""
    complete: bool = False
    validity: Validity | None = None

    def validity_remaining(self, now: Moment) -> float:
        """For how many seconds it is valid yet; 0 or less: not any more."""
        return 0.0 if self.validity is None or self.at is None else self.validity.seconds_left(self.at, now)


NOTHING = Memory()


def loaded(memory: Memory) -> Memory:
    """The memory after a time in which nothing was added to it."""
    return msgspec.structs.replace(memory, loaded=True, complete=False)


def invalidated(memory: Memory) -> Memory:
    """The memory after a time in which another process may have made turns."""
    validity = None if memory.validity is None else memory.validity.invalidated()
    return msgspec.structs.replace(loaded(memory), validity=validity)


def assessed(memory: Memory, now: Moment) -> Memory:
    """A memory that is `loaded`, with whether it is `complete` by this moment; it stays so."""
    valid = memory.validity is not None and memory.at is not None and memory.validity.is_complete(memory.at, now)
    return msgspec.structs.replace(memory, complete=True) if valid and memory.loaded else memory


def closed(memory: Memory, now: Moment) -> Memory:
    """The memory of an HPA for which this process makes no further turn; unchanged where that cannot be said of it."""
    if memory.validity is None or memory.at is None or memory.loaded:
        return memory
    validity = memory.validity.close(memory.at, now)
    return memory if validity == memory.validity else msgspec.structs.replace(memory, validity=validity)


class Store(Protocol):
    """Where memories are kept. `get` of an unknown key is NOTHING; `forget` of one is fine."""

    def get(self, key: Key) -> Memory: ...
    def put(self, key: Key, memory: Memory) -> None: ...
    def forget(self, key: Key) -> None: ...
    def keys(self) -> Iterator[Key]: ...

    def refresh(self, keys: Collection[Key] | None = None) -> None:
        """This process owns these HPAs (None: all) again. What is not read again from the backend counts as
        `loaded`."""
        ...

    async def flush(self, keys: Collection[Key]) -> None:
        """Wait until what was put of these HPAs survives the process, or can't be made to; takes seconds at most."""
        ...

    async def get_loaded(self, key: Key) -> Memory:
        """As `get`, but waits until what outlived an earlier process has been read."""
        ...

    async def flush_now(self, key: Key) -> bool:
        """Wait until what was put last survives the process, or can't be made to; takes seconds at most.

        False where it can't; True as well where nothing put in this store ever survives.
        """
        ...

    def mark_closed(self, keys: Collection[Key]) -> None:
        """No further turn is made here for these HPAs: what is remembered of them is whole for the next process."""
        ...


class InMemory:
    """A Store in a dictionary."""

    def __init__(self) -> None:
        self._memories: dict[Key, Memory] = {}

    def get(self, key: Key) -> Memory:
        return self._memories.get(key, NOTHING)

    def put(self, key: Key, memory: Memory) -> None:
        self._memories[key] = memory

    def forget(self, key: Key) -> None:
        self._memories.pop(key, None)

    def keys(self) -> Iterator[Key]:
        return iter(tuple(self._memories))

    def refresh(self, keys: Collection[Key] | None = None) -> None:
        for key in self._memories if keys is None else self._memories.keys() & set(keys):
            self._memories[key] = invalidated(self._memories[key])

    async def flush(self, keys: Collection[Key]) -> None:
        """There is nothing it could survive in."""

    async def get_loaded(self, key: Key) -> Memory:
        return self.get(key)

    async def flush_now(self, key: Key) -> bool:
        """There is nothing it could survive in, and so nothing that could be taken for more than it is."""
        return True

    def mark_closed(self, keys: Collection[Key]) -> None:
        """There is nothing it could survive in."""

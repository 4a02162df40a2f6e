"""What is remembered of each HPA from reconcile to reconcile; this form of it is lost when the process ends."""

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Protocol

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.clock import Moment
from hpad.engine.history import EMPTY, History, Rescale
from hpad.store.validity import Validity


class StoreError(Exception):
    """Nothing can be kept where the settings say; the message names the place and says why."""


class Last(msgspec.Struct, frozen=True):
    """The last decision, as a sentence for people, and the cause of what was wrong with the reconcile, if anything was.

    `withheld` is the count that was decided but not written, None where nothing was withheld. `relieved` are the labels
    of the metrics that a fallback stood in for.
    """

    at: datetime
    sentence: str
    error: str | None = None
    withheld: int | None = None
    relieved: tuple[str, ...] = ()


class Begun(msgspec.Struct, frozen=True):
    """A rescale that is about to be written: the count before and after, and what is to be remembered once it is done.

    `status` is the status that the HPA gets then.
    """

    current: int
    to: int
    scale_ups: tuple[Rescale, ...]
    scale_downs: tuple[Rescale, ...]
    status: HorizontalPodAutoscalerStatus


class Memory(msgspec.Struct, frozen=True):
    """`uid` is that of the HPA it is about: one deleted and made anew under its name starts afresh.

    `target` is what it scaled (group/kind/name; "": unknown): of another target this says nothing.
    `status` is the status of an HPA that has no API object to keep it in. `at` is when the HPA was last reconciled and
    `left` how many replicas its target was set to then (None: unknown). `begun` is there while a rescale is being
    written, and for good where the process ended in the middle of it. `recalled`: nothing was added since it was read
    from where it survives, or since the HPA was gone or another's; `whole`: no turn can be missing from such a one.
    `validity` says for how long it is the whole story.
    """

    uid: str = ""
    history: History = EMPTY
    status: HorizontalPodAutoscalerStatus | None = None
    last: Last | None = None
    at: datetime | None = None
    left: int | None = None
    begun: Begun | None = None
    recalled: bool = False
    target: str = ""
    whole: bool = False
    validity: Validity | None = None

    def validity_left(self, now: Moment) -> float:
        """For how many seconds it is valid yet; 0 or less: not any more."""
        return 0.0 if self.validity is None or self.at is None else self.validity.left(self.at, now)


NOTHING = Memory()


def recalled(memory: Memory) -> Memory:
    """The memory after a time in which nothing was added to it."""
    return msgspec.structs.replace(memory, recalled=True, whole=False)


def doubted(memory: Memory) -> Memory:
    """The memory after a time in which another process may have made turns."""
    spent = None if memory.validity is None else memory.validity.spent()
    return msgspec.structs.replace(recalled(memory), validity=spent)


def judged(memory: Memory, now: Moment) -> Memory:
    """A memory that is `recalled`, with whether it is `whole` by this moment; it stays so."""
    valid = memory.validity is not None and memory.at is not None and memory.validity.is_whole(memory.at, now)
    return msgspec.structs.replace(memory, whole=True) if valid and memory.recalled else memory


def sealed(memory: Memory, now: Moment) -> Memory:
    """The memory of an HPA for which this process makes no further turn; unchanged where that cannot be said of it."""
    if memory.validity is None or memory.at is None or memory.recalled:
        return memory
    closed = memory.validity.sealed(memory.at, now)
    return memory if closed == memory.validity else msgspec.structs.replace(memory, validity=closed)


class Store(Protocol):
    """Where memories are kept. `get` of an unknown key is NOTHING; `forget` of one is fine."""

    def get(self, key: Key) -> Memory: ...
    def put(self, key: Key, memory: Memory) -> None: ...
    def forget(self, key: Key) -> None: ...
    def keys(self) -> Iterator[Key]: ...

    def refresh(self, keys: Collection[Key] | None = None) -> None:
        """These HPAs (None: all) have become ours that were another's for a while: what is not read anew is
        `recalled`."""
        ...

    async def flush(self, keys: Collection[Key]) -> None:
        """Wait until what was put of these HPAs survives the process, or can't be made to; takes seconds at most."""
        ...

    async def recall(self, key: Key) -> Memory:
        """As `get`, but waits until what outlived an earlier process has been read."""
        ...

    async def secure(self, key: Key) -> bool:
        """Wait until what was put last survives the process, or can't be made to; takes seconds at most.

        False where it can't; True as well where nothing put in this store ever survives.
        """
        ...

    def seal(self, keys: Collection[Key]) -> None:
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
            self._memories[key] = doubted(self._memories[key])

    async def flush(self, keys: Collection[Key]) -> None:
        """There is nothing it could survive in."""

    async def recall(self, key: Key) -> Memory:
        return self.get(key)

    async def secure(self, key: Key) -> bool:
        """There is nothing it could survive in, and so nothing that could be taken for more than it is."""
        return True

    def seal(self, keys: Collection[Key]) -> None:
        """There is nothing it could survive in."""

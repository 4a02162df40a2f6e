"""The protocol of a store, which keeps the state of HPAs, and of the backend of a persistent one; a store in memory."""

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Protocol

from hpad.api.metadata import Key
from hpad.clock import Moment
from hpad.engine.history import NOTHING, Memory, invalidated


class StoreError(Exception):
    """The store of the settings cannot be used; the message names the place and the reason."""


class Store(Protocol):
    """Keeps one memory per HPA. `get` returns NOTHING for an unknown key; `forget` ignores it."""

    def get(self, key: Key) -> Memory: ...
    def put(self, key: Key, memory: Memory) -> None: ...
    def forget(self, key: Key) -> None: ...
    def keys(self) -> Iterator[Key]: ...

    def refresh(self) -> None:
        """This process leads now, another one has before. Memories that are not read again count as `loaded`."""
        ...

    async def get_loaded(self, key: Key) -> Memory:
        """Returns the memory as `get` does, but waits until the state of an earlier process has been read."""
        ...

    async def flush_now(self, key: Key) -> bool:
        """Waits until the newest memory is saved, or cannot be; at most some seconds.

        Returns whether it is saved. Always True for a store that ends with the process.
        """
        ...

    async def reopen(self, key: Key, moment: Moment) -> bool:
        """Marks the saved memory of an HPA as incomplete, before a turn that the next process could not know of.

        Returns whether it is saved so, after some seconds at most. The memory of this process then counts as complete
        if it was at `moment`. Otherwise nothing has changed, and the turn must not be made.
        """
        ...


class InMemory:
    """A Store in a dictionary. Nothing outlives the process, so there is nothing to save."""

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

    def refresh(self) -> None:
        for key in self._memories:
            self._memories[key] = invalidated(self._memories[key])

    async def get_loaded(self, key: Key) -> Memory:
        return self.get(key)

    async def flush_now(self, key: Key) -> bool:
        return True

    async def reopen(self, key: Key, moment: Moment) -> bool:
        return True


class Backend(Protocol):
    """The place where records survive the process. No method raises: errors are returned as sentences.

    `group` returns which keys are written together: the records of one group are one write.
    """

    name: str

    def group(self, key: Key) -> Hashable: ...

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        """Returns all records, possibly several of one key, and an error after which a load may be tried again."""
        ...

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        """Writes records (None: delete), all of a group or none. Returns the keys not written, with the errors."""
        ...

    async def quarantine(self, keys: Collection[Key]) -> None:
        """Moves damaged records aside for inspection, so that `load` does not return them again.

        Other records may be moved with them; they are saved again.
        """
        ...

    def emptied(self) -> bool:
        """Whether saved records were found missing since the last call; all records are then saved again."""
        ...

    async def size(self) -> int:
        """Returns the size in bytes."""
        ...

    async def close(self) -> None: ...

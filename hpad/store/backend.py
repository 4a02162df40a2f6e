"""The places where a `hpad.store.persistent.PersistentStore` keeps its records: an SQLite file, or ConfigMaps."""

from collections.abc import Collection, Hashable, Mapping
from typing import Protocol

from hpad.api.metadata import Key


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

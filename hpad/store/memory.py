"""What is remembered of each HPA from reconcile to reconcile; lost when the process ends."""

from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

import msgspec

from hpad.model.history import EMPTY, History
from hpad.model.hpa import HorizontalPodAutoscalerStatus
from hpad.model.key import Key


class Last(msgspec.Struct, frozen=True):
    """The last decision, as a sentence for people, and what was wrong with the reconcile, if anything."""

    at: datetime
    sentence: str
    error: str | None = None


class Memory(msgspec.Struct, frozen=True):
    """`uid` is that of the HPA it is about: one deleted and made anew under its name starts afresh.

    `status` is the status of an HPA that has no API object to keep it in.
    """

    uid: str = ""
    history: History = EMPTY
    status: HorizontalPodAutoscalerStatus | None = None
    last: Last | None = None


NOTHING = Memory()


class Store(Protocol):
    """Where memories are kept. `get` of an unknown key is NOTHING; `forget` of one is fine."""

    def get(self, key: Key) -> Memory: ...
    def put(self, key: Key, memory: Memory) -> None: ...
    def forget(self, key: Key) -> None: ...
    def keys(self) -> Iterator[Key]: ...


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

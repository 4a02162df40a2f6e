"""The store that survives the process: memories in a map that decisions read, copied to a storage backend.

Decisions never wait for a read, and for a write only before a rescale. The order of writes:

1. Before a rescale is sent to the API server, the memory with this reconcile's recommendation and with the rescale as
   `pending` is put and flushed. This prevents a rescale on the API server that the backend does not know of.
2. After it, the memory with the rescale in its history is put, or without it if the rescale was refused. The next
   regular save writes it.

A process killed before 1 has changed nothing. One killed between 1 and 2, or before the save after 2, leaves a pending
rescale. The next start compares it with the target's count and adds it to the history if it was done. A crash can lose
what came since the last regular save and led to no write: one recommendation per HPA, as if the metrics of one turn had
failed.

While the backend fails, decisions go on, and each rescale first tries once to save. A later start then finds records
with a gap after them. `Validity` detects the gap, and recovery only ever holds the target for longer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.store import record
from hpad.store.compact import CompactMap
from hpad.store.memory import NOTHING, Memory, assessed
from hpad.telemetry import Telemetry

GRACE = timedelta(hours=1)
"""How long the state of a deleted HPA is kept, in case the API server or a folder is empty by mistake."""
MOST_GONE = 1 << 14
"""The number of deleted HPAs whose state is kept; the latest ones, if there are more."""
_PATIENCE = 2.0
"""Seconds that a rescale waits for the backend."""
_RETRY = 1.0
_GROUPS = 8
"""The number of groups per save."""
_ENCODED = 100
"""Other tasks run after this number of encoded records, a few milliseconds of work."""
_SWEEP = 60.0


class Backend(Protocol):
    """Where records survive the process. No method raises: errors are returned as sentences.

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
        """Moves damaged records aside, for people to look at, so that `load` does not return them again.

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


class Pace(NamedTuple):
    """In seconds: no two saves begin within a `tick`; what is not urgent waits for up to `rest`.

    `loading`: for how long it is tried to read at the start; then every HPA counts as new.
    """

    tick: float
    rest: float
    loading: float = 10.0


class PersistentStore:
    """A Store on a storage backend. `run` it in the background, then `stop` it, which saves the rest.

    `owns` tells whether this process may save the state of an HPA. Nothing is saved of others, whose owners may have
    newer records.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        telemetry: Telemetry,
        pace: Pace,
        owns: Callable[[Key], bool] = lambda key: True,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._telemetry = telemetry
        self._pace = pace
        self._owns = owns
        self._memories = CompactMap()
        self._changed: set[Key] = set()
        self._saving: set[Key] = set()
        """Taken out of `_changed`, and not known to be saved yet."""
        self._urgent: dict[Key, asyncio.Future[None]] = {}
        self._gone: dict[Key, datetime] = {}
        self._loaded = asyncio.Event()
        self._stale: set[Key] | None = None
        """Until `_loaded`: the HPAs of which the backend may have newer records; None: all HPAs."""
        self._wanted = asyncio.Event()
        self._reread = asyncio.Event()
        self._reread.set()
        self._trouble: str | None = None
        self._log = structlog.get_logger("hpad.store", store=backend.name)

    @property
    def trouble(self) -> str | None:
        """Why the state would not survive a restart now, None if it would."""
        return self._trouble

    def retune(self, pace: Pace) -> None:
        """Uses another pace from the next save on."""
        self._pace = pace

    def get(self, key: Key) -> Memory:
        return self._memories.get(key) or NOTHING

    def put(self, key: Key, memory: Memory) -> None:
        self._gone.pop(key, None)
        self._memories.put(key, memory)
        self._changed.add(key)

    def forget(self, key: Key) -> None:
        """Drops the state after GRACE, unless the HPA comes back with its uid before."""
        if key in self._memories:
            self._gone.setdefault(key, self._clock.now())
            self._memories.mark_loaded(key)

    def keys(self) -> Iterator[Key]:
        return iter(tuple(self._memories))

    async def get_loaded(self, key: Key) -> Memory:
        while not self._loaded.is_set() and (self._stale is None or key in self._stale):
            await self._loaded.wait()
        return self.get(key)

    async def flush_now(self, key: Key) -> bool:
        waiting = self._urgent.setdefault(key, asyncio.get_running_loop().create_future())
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(waiting)
        return waiting.done() and key not in self._changed and self._owns(key)

    def mark_closed(self, keys: Collection[Key]) -> None:
        now = Moment.now(self._clock)
        self._changed.update([key for key in keys if self._memories.mark_closed(key, now)])

    async def flush(self, keys: Collection[Key]) -> None:
        """Waits for a running save as well: saves run one after the other, and the next one answers."""
        loop = asyncio.get_running_loop()
        unsaved = (self._changed | self._saving).intersection(keys)
        waiting = [self._urgent.setdefault(key, loop.create_future()) for key in unsaved]
        if waiting:
            self._wanted.set()
            await asyncio.wait(waiting, timeout=_PATIENCE)

    def refresh(self, keys: Collection[Key] | None = None) -> None:
        """Reads the records again of HPAs that another process owned; `get_loaded` waits for the result."""
        if keys is None:
            self._stale = None
        elif self._loaded.is_set():
            self._stale = set(keys)
        elif self._stale is not None:
            self._stale.update(keys)
        self._loaded.clear()
        self._reread.set()
        self._wanted.set()

    async def run(self, exists: Callable[[Key], bool] = lambda key: True) -> None:
        """Loads, then saves changes until cancelled. HPAs for which `exists` is False are dropped after GRACE."""
        swept = saved = self._clock.monotonic()
        while True:
            if self._reread.is_set():
                self._reread.clear()
                await self._load()
            await self._due(saved + self._pace.rest - self._clock.monotonic())
            if self._reread.is_set():
                continue
            began = self._clock.monotonic()
            if began - swept >= _SWEEP:
                swept = began
                self._sweep(exists)
                await self._pack()
            everything = began - saved >= self._pace.rest
            saved = began if everything else saved
            await self._save(everything=everything)
            await self._clock.sleep(began + self._pace.tick - self._clock.monotonic())

    async def stop(self) -> None:
        """Saves the rest and closes the backend; to be called after `run` and all turns have ended."""
        self.mark_closed(tuple(self._memories))
        await self._save(everything=True)
        await self._backend.close()

    async def _due(self, rest: float) -> None:
        """Waits for an urgent save, at most `rest` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await self._wanted.wait()
        self._wanted.clear()

    async def _load(self) -> None:
        began = self._clock.monotonic()
        while True:
            with self._timed("load"):
                rows, trouble = await self._backend.load()
            self._judge("load", trouble)
            if trouble is None or self._clock.monotonic() - began > self._pace.loading:
                break
            await self._clock.sleep(min(_RETRY, self._pace.loading))
        damaged = self._take(rows)
        if damaged:
            await self._backend.quarantine(damaged)
            self._changed.update(self._memories)
        self._log.info("state loaded", hpas=len(self._memories))
        self._telemetry.store.size(len(self._memories), await self._backend.size())
        if not self._reread.is_set():
            self._loaded.set()

    def _take(self, rows: list[tuple[Key, bytes]]) -> set[Key]:
        """Takes over newer records of stale HPAs; returns the keys of damaged records."""
        for key in tuple(self._memories):
            if self._stale is None or key in self._stale:
                self._memories.invalidate(key)
        found, damaged = self._read(rows)
        for key, memory in found.items():
            held = self._memories.get(key)
            if held is None or held.at is None or (memory.at is not None and memory.at >= held.at):
                self._memories.put(key, memory)
                self._changed.discard(key)
        return damaged

    def _read(self, rows: list[tuple[Key, bytes]]) -> tuple[dict[Key, Memory], set[Key]]:
        """Returns the newest memory of each stale HPA, and the keys of damaged records."""
        now = Moment.now(self._clock)
        found: dict[Key, Memory] = {}
        damaged = set()
        for key, data in rows:
            if self._stale is not None and key not in self._stale:
                continue
            try:
                memory = assessed(record.decode(key, data), now)
            except record.Undecodable as error:
                damaged.add(key)
                self._telemetry.store.failed("decode")
                self._log.error("a record is damaged: its HPA counts as new", hpa=str(key), error=str(error))
                continue
            if key not in found or _newer(memory, found[key]):
                found[key] = memory
        return found, damaged

    async def _save(self, *, everything: bool) -> None:
        """Saves all groups, or those with urgent records, some groups at a time and one write per group.

        Records that become urgent meanwhile go first in the next part.
        """
        groups = list(dict.fromkeys(map(self._backend.group, self._changed))) if everything else []
        waiting: list[tuple[Key, asyncio.Future[None]]] = []
        failed: dict[Key, str] = {}
        tried, first = False, True
        try:
            while first or groups:
                urgent, self._urgent, first = self._urgent, {}, False
                waiting += urgent.items()
                groups = list(dict.fromkeys([*map(self._backend.group, urgent), *groups]))
                chosen, groups = set(groups[:_GROUPS]), groups[_GROUPS:]
                tried = await self._save_groups(chosen, failed) or tried
                _tell([future for key, future in waiting if self._backend.group(key) in chosen])
        finally:
            _tell([future for _, future in waiting])
        if tried:
            self._judge("save", next(iter(failed.values()), None))
            self._telemetry.store.size(len(self._memories), await self._backend.size())

    async def _save_groups(self, groups: Collection[Hashable], failed: dict[Key, str]) -> bool:
        """Returns whether there was anything to save. Adds failed keys to `failed`; they stay changed."""
        changed = {key for key in self._changed if self._backend.group(key) in groups}
        self._changed -= changed
        keys = {key for key in changed if self._owns(key)}
        if not keys:
            return False
        self._saving = keys
        try:
            changes = await self._records(keys)
            with self._timed("save"):
                refused = await self._backend.save(changes)
        except BaseException:
            self._changed |= keys
            raise
        finally:
            self._saving = set()
        failed.update(refused)
        self._changed.update(self._memories if self._backend.emptied() else refused)
        return True

    async def _records(self, keys: Collection[Key]) -> dict[Key, bytes | None]:
        """Returns the records to save (None: delete); other tasks run in between."""
        changes: dict[Key, bytes | None] = {}
        for number, key in enumerate(keys, start=1):
            changes[key] = self._memories.record(key)
            if number % _ENCODED == 0:
                await self._clock.sleep(0)
        return changes

    def _judge(self, doing: str, trouble: str | None) -> None:
        """Logs when an error begins, changes or ends."""
        if trouble is not None:
            self._telemetry.store.failed(doing)
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            self._log.info("state survives a restart again")
        else:
            self._log.error(f"cannot {doing} the state: decisions go on, but a restart would lose it", error=trouble)

    def _sweep(self, exists: Callable[[Key], bool]) -> None:
        now = self._clock.now()
        for key in tuple(self._memories):
            if exists(key):
                self._gone.pop(key, None)
            else:
                self._gone.setdefault(key, now)
        surplus = len(self._gone) - MOST_GONE
        for number, (key, vanished) in enumerate(list(self._gone.items())):  # in the order in which they vanished
            if number < surplus or now - vanished >= GRACE:
                del self._gone[key]
                self._memories.drop(key)
                self._changed.add(key)

    async def _pack(self) -> None:
        """Encodes the memories of deleted HPAs, which then take little room; other tasks run in between."""
        for number, key in enumerate([key for key in self._gone if not self._memories.is_packed(key)], start=1):
            if key in self._gone:  # it may have come back meanwhile
                self._memories.pack(key)
            if number % _ENCODED == 0:
                await self._clock.sleep(0)

    @contextlib.contextmanager
    def _timed(self, doing: str) -> Iterator[None]:
        began = self._clock.monotonic()
        yield
        self._telemetry.store.took(doing, self._clock.monotonic() - began)


def _tell(waiting: Collection[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _newer(found: Memory, other: Memory) -> bool:
    """Whether `found` replaces `other`: the newer one, or of one turn the one that is not complete."""
    if found.at is None or other.at is None:
        return other.at is None
    return found.at > other.at or (found.at == other.at and not found.complete)

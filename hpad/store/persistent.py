"""Memories that outlive the process: a dictionary that decisions read, and a shelf it is copied to.

Decisions never wait for a read, and for a write in one case only. The order of writes, and why:

1. Before a rescale is written to the API server, the memory with the recommendation of this reconcile and with the
   rescale as `pending` is put and flushed. So whatever the API server has seen of us is on the shelf, too.
2. After it, the memory with the rescale in its history (or without, where it was refused) is put. It reaches the shelf
   with the next regular save.

Killed before 1, the reconcile has not happened. Killed between, the target's count tells at the next start whether the
rescale was done: if so, it is in the history with the time it was decided at; if not, it is not. Killed after 2 but
before the save, it is the same as between. What can be lost is what came since the last regular save and led to no
write: one recommendation an HPA, as if one tick's metrics had failed.

Where a shelf can't be written to, decisions go on, each rescale after one attempt to save. A later start then finds
records with a gap behind them: `validity` tells them from others, and `control.resume` takes care that they only ever
hold a target longer.
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
"""How long a vanished HPA is remembered: long enough for an API server or a folder that is empty by mistake."""
MOST_GONE = 1 << 14
"""So many vanished HPAs are remembered at most; of more, those that vanished last."""
_PATIENCE = 2.0
"""Seconds a rescale waits for the shelf."""
_RETRY = 1.0
_GROUPS = 8
"""So many groups are saved at a time."""
_ENCODED = 100
"""After so many records, a few milliseconds of work, it is somebody else's turn."""
_SWEEP = 60.0


class Backend(Protocol):
    """Where records survive. Nothing here raises: what fails is part of the answer, as a sentence.

    `group` says which keys are written together: records of one group go out in one write.
    """

    name: str

    def group(self, key: Key) -> Hashable: ...

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        """All records (of one key there may be several), and what went wrong: then loading may be tried again."""
        ...

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        """Write records (None: delete), all those of a group or none; those that were not written, and why."""
        ...

    async def quarantine(self, keys: Collection[Key]) -> None:
        """The records of these keys are damaged: put them aside for people to look at, out of the way of `load`.

        Others may go with them; they are saved anew.
        """
        ...

    def emptied(self) -> bool:
        """Whether records that had been saved are gone, found out since this was asked last: they are saved anew."""
        ...

    async def size(self) -> int:
        """Bytes taken."""
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
    """A Store on a shelf. `run` it in the background, then `stop` it: that saves what is left.

    `owns` tells which HPAs are ours at this moment: nothing is saved of others, whose records may be newer than ours.
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
        """In flight: taken out of `_changed`, and not known to be saved yet."""
        self._urgent: dict[Key, asyncio.Future[None]] = {}
        self._gone: dict[Key, datetime] = {}
        self._loaded = asyncio.Event()
        self._stale: set[Key] | None = None
        """Until `_loaded`: of whom the shelf may know more than we do; None: of everybody."""
        self._wanted = asyncio.Event()
        self._reread = asyncio.Event()
        self._reread.set()
        self._trouble: str | None = None
        self._log = structlog.get_logger("hpad.store", store=backend.name)

    @property
    def trouble(self) -> str | None:
        """Why histories would not survive a restart now, None if they would."""
        return self._trouble

    def retune(self, pace: Pace) -> None:
        """Another pace from the next save on."""
        self._pace = pace

    def get(self, key: Key) -> Memory:
        return self._memories.get(key) or NOTHING

    def put(self, key: Key, memory: Memory) -> None:
        self._gone.pop(key, None)
        self._memories.put(key, memory)
        self._changed.add(key)

    def forget(self, key: Key) -> None:
        """Forgotten after GRACE, unless it comes back under its uid before."""
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
        """A save in flight is waited for as well: saves come one after the other, and the next one answers."""
        loop = asyncio.get_running_loop()
        unsaved = (self._changed | self._saving).intersection(keys)
        waiting = [self._urgent.setdefault(key, loop.create_future()) for key in unsaved]
        if waiting:
            self._wanted.set()
            await asyncio.wait(waiting, timeout=_PATIENCE)

    def refresh(self, keys: Collection[Key] | None = None) -> None:
        """Have them read again: HPAs have become ours that were another's. `get_loaded` waits for it."""
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
        """Load, then save what changes, for ever. `exists` tells HPAs that are there from those to be forgotten."""
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
        """Save what is left, and close the shelf; call it when `run` and all turns have ended."""
        self.mark_closed(tuple(self._memories))
        await self._save(everything=True)
        await self._backend.close()

    async def _due(self, rest: float) -> None:
        """Wait for something urgent, but not for longer than that."""
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
        self._log.info("histories read", hpas=len(self._memories))
        self._telemetry.store.size(len(self._memories), await self._backend.size())
        if not self._reread.is_set():
            self._loaded.set()

    def _take(self, rows: list[tuple[Key, bytes]]) -> set[Key]:
        """Take over what is newer than what we hold of those who are stale; the keys of the records that can't be
        read."""
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
        """The newest memory of each key of which the shelf may know more than we do, and the keys of the records that
        can't be read."""
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
        """One write a group: of all groups, or of those with something urgent in them. They are saved some at a time;
        who becomes urgent meanwhile goes next.
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
        """Whether there was anything to save, of ours; what failed is added, and has changed as before."""
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
        """What is to be saved (None: deleted); others may go on with their work in between."""
        changes: dict[Key, bytes | None] = {}
        for number, key in enumerate(keys, start=1):
            changes[key] = self._memories.record(key)
            if number % _ENCODED == 0:
                await self._clock.sleep(0)
        return changes

    def _judge(self, doing: str, trouble: str | None) -> None:
        """A log line when something goes wrong, when it goes wrong otherwise, and when it is over."""
        if trouble is not None:
            self._telemetry.store.failed(doing)
        if trouble == self._trouble:
            return
        self._trouble = trouble
        if trouble is None:
            self._log.info("histories survive a restart again")
        else:
            self._log.error(f"cannot {doing} histories: decisions go on, but a restart would forget", error=trouble)

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
        """Who vanished takes little room from now on; others may go on with their work in between."""
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
    """Which of two copies to believe; of one and the same turn the one that promises less."""
    if found.at is None or other.at is None:
        return other.at is None
    return found.at > other.at or (found.at == other.at and not found.complete)

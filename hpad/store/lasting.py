"""Memories that outlive the process: a dictionary that decisions read, and a shelf it is copied to.

Decisions never wait for a read, and for a write in one case only. The order of writes, and why:

1. Before a rescale is written to the API server, the memory with the recommendation of this reconcile and with the
   rescale as `begun` is put and `secure`d. So whatever the API server has seen of us is on the shelf, too.
2. After it, the memory with the rescale in its history (or without, where it was refused) is put. It reaches the shelf
   with the next regular save.

Killed before 1, the reconcile has not happened. Killed between, the target's count tells at the next start whether the
rescale was done: if so, it is in the history with the time it was decided at; if not, it is not. Killed after 2 but
before the save, it is the same as between. What can be lost is what came since the last regular save and led to no
write: one recommendation an HPA, as if one tick's metrics had failed.

Where a shelf can't be written to, decisions go on, each rescale after one attempt to save. A later start then finds
records with a gap behind them; `control.resume` takes care that those only ever hold a target longer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

import structlog

from hpad.clock import Clock
from hpad.model.key import Key
from hpad.store import record
from hpad.store.memory import NOTHING, Memory, recalled
from hpad.telemetry import Telemetry

GRACE = timedelta(hours=1)
"""How long a vanished HPA is remembered: long enough for an API server or a folder that is empty by mistake."""
_PATIENCE = 2.0
"""Seconds a rescale waits for the shelf."""
_RETRY = 1.0
_SWEEP = 60.0


class Shelf(Protocol):
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


class Lasting:
    """A Store on a shelf. `run` it in the background, then `stop` it: that saves what is left.

    `owns` tells which HPAs are ours at this moment: nothing is saved of others, whose records may be newer than ours.
    """

    def __init__(
        self,
        shelf: Shelf,
        clock: Clock,
        telemetry: Telemetry,
        pace: Pace,
        owns: Callable[[Key], bool] = lambda key: True,
    ) -> None:
        self._shelf = shelf
        self._clock = clock
        self._telemetry = telemetry
        self._pace = pace
        self._owns = owns
        self._memories: dict[Key, Memory] = {}
        self._changed: set[Key] = set()
        self._urgent: dict[Key, asyncio.Future[None]] = {}
        self._gone: dict[Key, datetime] = {}
        self._loaded = asyncio.Event()
        self._wanted = asyncio.Event()
        self._reread = asyncio.Event()
        self._reread.set()
        self._trouble: str | None = None
        self._log = structlog.get_logger("hpad.store").bind(store=shelf.name)

    @property
    def trouble(self) -> str | None:
        """Why histories would not survive a restart now, None if they would."""
        return self._trouble

    def get(self, key: Key) -> Memory:
        return self._memories.get(key, NOTHING)

    def put(self, key: Key, memory: Memory) -> None:
        self._gone.pop(key, None)
        self._memories[key] = memory
        self._changed.add(key)

    def forget(self, key: Key) -> None:
        """Forgotten after GRACE, unless it comes back under its uid before."""
        if key in self._memories:
            self._gone.setdefault(key, self._clock.now())
            self._memories[key] = recalled(self._memories[key])

    def keys(self) -> Iterator[Key]:
        return iter(tuple(self._memories))

    async def recall(self, key: Key) -> Memory:
        await self._loaded.wait()
        return self.get(key)

    async def secure(self, key: Key) -> None:
        waiting = self._urgent.setdefault(key, asyncio.get_running_loop().create_future())
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(waiting)

    def refresh(self) -> None:
        """Have everything read again: HPAs have become ours that were another's. `recall` waits for it."""
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
            everything = began - saved >= self._pace.rest
            saved = began if everything else saved
            await self._save(everything=everything)
            await self._clock.sleep(began + self._pace.tick - self._clock.monotonic())

    async def stop(self) -> None:
        """Save what is left, and close the shelf; call it when `run` has ended."""
        await self._save(everything=True)
        await self._shelf.close()

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
                rows, trouble = await self._shelf.load()
            self._judge("load", trouble)
            if trouble is None or self._clock.monotonic() - began > self._pace.loading:
                break
            await self._clock.sleep(min(_RETRY, self._pace.loading))
        damaged = self._take(rows)
        if damaged:
            await self._shelf.quarantine(damaged)
            self._changed.update(self._memories)
        self._log.info("histories read", hpas=len(self._memories))
        self._telemetry.stored(len(self._memories), await self._shelf.size())
        self._loaded.set()

    def _take(self, rows: list[tuple[Key, bytes]]) -> set[Key]:
        """Take over what is newer than what we hold; the keys of the records that can't be read."""
        damaged = set()
        for key, held in self._memories.items():
            self._memories[key] = recalled(held)
        for key, data in rows:
            try:
                found = record.decode(key, data)
            except record.Undecodable as error:
                damaged.add(key)
                self._telemetry.store_failed("decode")
                self._log.error("a record is damaged: its HPA counts as new", hpa=str(key), error=str(error))
                continue
            if _newer(found, self._memories.get(key)):
                self._memories[key] = found
                self._changed.discard(key)
        return damaged

    async def _save(self, *, everything: bool) -> None:
        """One write a group: of all groups, or of those with something urgent in them."""
        urgent, self._urgent = self._urgent, {}
        keys = self._changed
        if not everything:
            groups = {self._shelf.group(key) for key in urgent}
            keys = {key for key in self._changed if self._shelf.group(key) in groups}
        self._changed = self._changed - keys
        keys = {key for key in keys if self._owns(key)}
        try:
            if keys:
                await self._write({key: self._record(key) for key in keys})
        except BaseException:
            self._changed |= keys
            raise
        finally:
            for waiting in urgent.values():
                if not waiting.done():
                    waiting.set_result(None)

    def _record(self, key: Key) -> bytes | None:
        held = self._memories.get(key)
        return None if held is None else record.encode(key, held)

    async def _write(self, changes: Mapping[Key, bytes | None]) -> None:
        with self._timed("save"):
            failed = await self._shelf.save(changes)
        self._changed.update(failed)
        self._judge("save", next(iter(failed.values()), None))
        self._telemetry.stored(len(self._memories), await self._shelf.size())

    def _judge(self, doing: str, trouble: str | None) -> None:
        """A log line when something goes wrong, when it goes wrong otherwise, and when it is over."""
        if trouble is not None:
            self._telemetry.store_failed(doing)
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
            elif now - self._gone.setdefault(key, now) >= GRACE:
                del self._gone[key], self._memories[key]
                self._changed.add(key)

    @contextlib.contextmanager
    def _timed(self, doing: str) -> Iterator[None]:
        began = self._clock.monotonic()
        yield
        self._telemetry.store_took(doing, self._clock.monotonic() - began)


def _newer(found: Memory, held: Memory | None) -> bool:
    if held is None or held.at is None:
        return True
    return found.at is not None and found.at > held.at

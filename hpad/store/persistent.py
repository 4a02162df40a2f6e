"""The store that survives the process: a map of memories for the decisions, copied to a storage backend.

Decisions never wait for a read, and for a write only before a rescale. The order of writes:

1. Before a rescale is sent to the API server, the memory with this reconcile's recommendation and with the rescale as
   `pending` is put and flushed. This prevents a rescale on the API server that the backend does not know of.
2. After it, the memory with the rescale in its history is put, or without it if the rescale was refused. The next
   regular save writes it.

A process killed before 1 has changed nothing. One killed between 1 and 2, or before the save after 2, leaves a pending
rescale. The next start compares it with the target's count and adds it to the history if it was done. A crash can lose
the turns since the last regular save that wrote no rescale: one recommendation per HPA, as if the metrics of one turn
had failed.

While the backend fails, decisions go on, and each rescale first tries once to save. A later start then reads records
with a gap after them. `Validity` detects the gap, and recovery only ever keeps the target's count for longer.

A record that is valid for longer than until the next turn of this process must not be found by the next process, which
would take it as complete. `reopen` saves it as invalid first. The memory here stays valid until that turn, so a process
that ends without the turn closes the record again.

After a clean stop of the process before, every record is closed, and the first turn of each HPA comes while its record
is valid. Therefore the records are reopened together right after they were loaded, with one write per group. A turn
waits only if the write of its own record has not succeeded yet. A crash before the first turn of an HPA then leaves an
invalid record, and its target keeps the count for a whole window.
"""

import asyncio
import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.engine.history import EARLY_SECONDS, NOTHING, Memory, assessed, closed, invalidated, loaded, reopened
from hpad.store import record
from hpad.store.store import Backend
from hpad.telemetry import Telemetry

GRACE = timedelta(hours=1)
"""The time for which the state of a deleted HPA is kept, in case the API server or a folder is empty by mistake."""
MOST_GONE = 1 << 14
"""The number of deleted HPAs whose state is kept; of more, the latest ones."""
MOST_GONE_BYTES: Final = 1 << 26
"""The estimated bytes of their state: it has the names of metrics and, without API objects, statuses."""
_STATE_BYTES: Final = 3000
_SAMPLE_BYTES: Final = 200
_PATIENCE = 2.0
"""Seconds that a rescale waits for the backend, and a turn that needs its record reopened waits for the next write."""
_RETRY = 1.0
_GROUPS = 8
"""The number of groups per call of the backend, so that an urgent record waits for one call, not for all groups."""
_AT_ONCE = 100
"""Other tasks run after this number of encoded or decoded records, a few milliseconds of work."""
_SWEEP = 60.0


class SaveIntervals(NamedTuple):
    """Seconds between saves: at least `shortest`; a change that is not urgent waits for up to `longest`.

    `loading`: the time for which the first load is repeated; after that every HPA counts as new.
    """

    shortest: float
    longest: float
    loading: float = 10.0


class _Reopening(msgspec.Struct):
    """A memory that is still valid here, and saved as invalid. `waiting` ends with the write of its group."""

    waiting: asyncio.Future[None]
    saved: bool = False


class PersistentStore:
    """A Store on a storage backend. `run` it in the background, then `stop` it, which saves the rest.

    `may_save` returns whether this process may save. A standby may not: the leader may have newer records.
    """

    def __init__(
        self,
        backend: Backend,
        clock: Clock,
        telemetry: Telemetry,
        intervals: SaveIntervals,
        may_save: Callable[[], bool] = lambda: True,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._telemetry = telemetry
        self._intervals = intervals
        self._may_save = may_save
        self._memories: dict[Key, Memory] = {}
        self._changed: set[Key] = set()
        self._urgent: dict[Key, asyncio.Future[None]] = {}
        self._reopenings: dict[Key, _Reopening] = {}
        self._parts = 0
        """The number of writes of some groups that have ended."""
        self._gone: dict[Key, datetime] = {}
        self._loaded = asyncio.Event()
        self._save_now = asyncio.Event()
        self._reread = asyncio.Event()
        self._reread.set()
        self.trouble: str | None = None
        """The error because of which a restart would lose the state now; None if it would not."""
        self._log = structlog.get_logger("hpad.store", store=backend.name)

    def retune(self, intervals: SaveIntervals) -> None:
        """Uses other intervals from the next save on."""
        self._intervals = intervals

    def get(self, key: Key) -> Memory:
        return self._memories.get(key, NOTHING)

    def put(self, key: Key, memory: Memory) -> None:
        self._gone.pop(key, None)
        self._reopenings.pop(key, None)
        self._memories[key] = memory
        self._changed.add(key)

    def forget(self, key: Key) -> None:
        """Drops the state after GRACE, unless the HPA with this uid is seen again before."""
        if key in self._memories:
            self._gone.setdefault(key, self._clock.now())
            self._memories[key] = loaded(self._memories[key])

    def keys(self) -> Iterator[Key]:
        return iter(tuple(self._memories))

    async def get_loaded(self, key: Key) -> Memory:
        # A loop, because `refresh` may start another read while this waits.
        while not self._loaded.is_set():
            await self._loaded.wait()
        return self.get(key)

    async def flush_now(self, key: Key) -> bool:
        waiting = self._request(key)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.shield(waiting)  # other callers wait for the same future
        # A key that changed again, or failed, is in `_changed`.
        return waiting.done() and key not in self._changed and self._may_save()

    def _request(self, key: Key) -> asyncio.Future[None]:
        """Requests an urgent save; returns what ends with the write of the group."""
        self._save_now.set()
        return self._urgent.setdefault(key, asyncio.get_running_loop().create_future())

    async def reopen(self, key: Key, moment: Moment) -> bool:
        is_new = key not in self._reopenings
        if is_new:
            self._begin_reopening(key)
        reopening = self._reopenings[key]
        try:
            if not reopening.saved:
                await self._wait_saved(key, reopening)
        finally:
            known = self._reopenings.get(key) is reopening
            if known and is_new and not reopening.saved:  # also after a cancellation: there was no turn
                del self._reopenings[key]
                self._changed.add(key)
        if not known or not reopening.saved or not self._may_save():
            return False
        del self._reopenings[key]
        self._memories[key] = reopened(self._memories[key], moment)  # as it is saved
        return True

    def _begin_reopening(self, key: Key) -> None:
        self._changed.add(key)
        self._reopenings[key] = _Reopening(self._request(key))

    async def _wait_saved(self, key: Key, reopening: _Reopening) -> None:
        """Waits for the write of the record; gives up once `_PATIENCE` has passed without the end of any write."""
        if reopening.waiting.done():  # the write before has failed
            self._changed.add(key)
            reopening.waiting = self._request(key)
        while not reopening.waiting.done():
            parts = self._parts
            await asyncio.wait([reopening.waiting], timeout=_PATIENCE)
            if parts == self._parts:
                return

    def _reopen_closed(self) -> None:
        """Starts to reopen the closed records just loaded that a first turn would find valid, with one save for all."""
        if not self._may_save():
            return
        now = Moment.now(self._clock)
        for key, memory in self._memories.items():
            if not memory.loaded or memory.validity is None or not memory.validity.closed:
                continue
            if key not in self._reopenings and memory.validity_remaining(now) > EARLY_SECONDS:
                self._begin_reopening(key)

    def _close_all(self) -> None:
        """Notes that this process makes no further turn: the memories are complete for the next process."""
        now = Moment.now(self._clock)
        for key, known in self._memories.items():
            if self._reopenings.pop(key, None) is not None:  # no turn was made: the memory is valid as it was loaded
                self._changed.add(key)
            memory = closed(known, now)
            if memory is not known:
                self._memories[key] = memory
                self._changed.add(key)

    def refresh(self) -> None:
        """Reads all records again, since another process has led; `get_loaded` waits for the result."""
        self._reopenings.clear()  # the other process may have written its own records since
        self._loaded.clear()
        self._reread.set()
        self._save_now.set()

    async def run(self, exists: Callable[[Key], bool] = lambda key: True) -> None:
        """Loads, then saves changes until cancelled. HPAs for which `exists` is False are dropped after GRACE."""
        swept = saved = self._clock.monotonic()
        while True:
            if self._reread.is_set():
                self._reread.clear()
                await self._load()
            await self._due(saved + self._intervals.longest - self._clock.monotonic())
            if self._reread.is_set():  # before a save: another process may have written newer records
                continue
            began = self._clock.monotonic()
            if began - swept >= _SWEEP:
                swept = began
                self._sweep(exists)
            everything = began - saved >= self._intervals.longest
            saved = began if everything else saved
            await self._save(everything=everything)
            await self._clock.sleep(began + self._intervals.shortest - self._clock.monotonic())

    async def stop(self) -> None:
        """Saves the rest and closes the backend; to be called after `run` and all turns have ended."""
        self._close_all()
        await self._save(everything=True)
        await self._backend.close()

    async def _due(self, rest: float) -> None:
        """Waits for an urgent save, at most `rest` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest):
                await self._save_now.wait()
        self._save_now.clear()

    async def _load(self) -> None:
        began = self._clock.monotonic()
        while True:
            with self._timed("load"):
                rows, error = await self._backend.load()
            self._report("load", error)
            if error is None or self._clock.monotonic() - began > self._intervals.loading:
                break
            await self._clock.sleep(min(_RETRY, self._intervals.loading))
        newest, damaged = await self._read(rows)
        self._merge(newest)
        if damaged:
            await self._backend.quarantine(damaged)
            self._changed.update(self._memories)  # intact records may have been moved with the damaged ones
        if error is None:
            self._log.info("state loaded", hpas=len(self._memories))
        else:
            self._log.error("the state could not be loaded in time: HPAs count as new", error=error)
        self._telemetry.store.size(len(self._memories), await self._backend.size())
        if not self._reread.is_set():  # unless `refresh` was called during the load, after rows were read
            self._loaded.set()
            self._reopen_closed()

    async def _read(self, rows: list[tuple[Key, bytes]]) -> tuple[dict[Key, Memory], set[Key]]:
        """Returns the newest memory of each HPA, and the keys of damaged records; other tasks run in between."""
        now = Moment.now(self._clock)
        newest: dict[Key, Memory] = {}
        damaged = set()
        for number, (key, data) in enumerate(rows, start=1):
            if number % _AT_ONCE == 0:
                await self._clock.sleep(0)
            try:
                memory = assessed(record.decode(key, data), now)
            except record.Undecodable as error:
                damaged.add(key)
                self._telemetry.store.failed("decode")
                self._log.error("a record is damaged: its HPA counts as new", hpa=str(key), error=str(error))
                continue
            if key not in newest or _is_newer(memory, newest[key]):
                newest[key] = memory
        return newest, damaged

    def _merge(self, newest: Mapping[Key, Memory]) -> None:
        """Replaces memories by newer ones."""
        for key in tuple(self._memories):
            self._memories[key] = invalidated(self._memories[key])
        for key, memory in newest.items():
            own = self._memories.get(key)
            if own is None or own.at is None or (memory.at is not None and memory.at >= own.at):
                self._memories[key] = memory
                self._changed.discard(key)

    async def _save(self, *, everything: bool) -> None:
        """Saves all groups, or those with urgent records, some groups at a time and one write per group.

        Records that become urgent meanwhile go in the next parts, after those that were urgent before and ahead of the
        rest: each is saved after one write of every other group at most.
        """
        changed = self._changed_by_group()
        rest = dict.fromkeys(changed) if everything else {}
        hurried: dict[Hashable, list[asyncio.Future[None]]] = {}
        waiting: list[asyncio.Future[None]] = []
        failed: dict[Key, str] = {}
        tried, first = False, True
        try:
            while first or hurried or rest:
                urgent, self._urgent, first = self._urgent, {}, False
                for key, future in urgent.items():
                    group = self._backend.group(key)
                    hurried.setdefault(group, []).append(future)
                    changed[group].add(key)
                chosen = set(itertools.islice(dict.fromkeys([*hurried, *rest]), _GROUPS))
                waiting = [future for group in chosen for future in hurried.pop(group, ())]
                rest = {group: None for group in rest if group not in chosen}
                keys = {key for group in chosen for key in changed.pop(group, ())}
                tried = await self._save_records(keys & self._changed, failed) or tried
                self._parts += 1
                _resolve(waiting)
        finally:  # also after a cancellation, or the callers would wait for the whole of `_PATIENCE`
            _resolve([*waiting, *itertools.chain.from_iterable(hurried.values())])
        if tried:
            self._report("save", next(iter(failed.values()), None))
            self._telemetry.store.size(len(self._memories), await self._backend.size())

    def _changed_by_group(self) -> defaultdict[Hashable, set[Key]]:
        """Returns the keys of the records that have changed until now, once for all parts of a save."""
        groups: defaultdict[Hashable, set[Key]] = defaultdict(set)
        for key in self._changed:
            groups[self._backend.group(key)].add(key)
        return groups

    async def _save_records(self, changed: set[Key], failed: dict[Key, str]) -> bool:
        """Saves these changed records. Adds failed keys to `failed`; they stay changed.

        Returns whether there were any records to save.
        """
        self._changed -= changed
        if not changed or not self._may_save():
            return False
        try:
            changes = await self._records(changed)
            with self._timed("save"):
                refused = await self._backend.save(changes)
        except BaseException:
            self._changed |= changed
            raise
        failed.update(refused)
        for key in changed - refused.keys() - self._changed:  # a key that changed meanwhile is saved again
            if key in self._reopenings:
                self._reopenings[key].saved = True
        # After the records have vanished from the backend, all of them must be saved again.
        self._changed.update(self._memories if self._backend.emptied() else refused)
        return True

    async def _records(self, keys: Collection[Key]) -> dict[Key, bytes | None]:
        """Returns the records to save (None: delete); other tasks run in between."""
        changes: dict[Key, bytes | None] = {}
        for number, key in enumerate(keys, start=1):
            memory = self._memories.get(key)
            if memory is not None and key in self._reopenings:
                memory = invalidated(memory)
            changes[key] = None if memory is None else record.encode(key, memory)
            if number % _AT_ONCE == 0:
                await self._clock.sleep(0)
        return changes

    def _report(self, operation: str, error: str | None) -> None:
        """Logs when an error begins, changes or ends."""
        if error is not None:
            self._telemetry.store.failed(operation)
        if error == self.trouble:
            return
        self.trouble = error
        if error is None:
            self._log.info("state survives a restart again")
        else:
            self._log.error(f"cannot {operation} the state: decisions go on, but a restart would lose it", error=error)

    def _sweep(self, exists: Callable[[Key], bool]) -> None:
        now = self._clock.now()
        for key in tuple(self._memories):
            if exists(key):
                self._gone.pop(key, None)
            else:
                self._gone.setdefault(key, now)
        kept, size = len(self._gone), self._size_of_gone()
        for key, vanished in list(self._gone.items()):  # in the order in which they vanished
            if kept > MOST_GONE or size > MOST_GONE_BYTES or now - vanished >= GRACE:
                kept, size = kept - 1, size - _size(self._memories.get(key))
                del self._gone[key]
                self._memories.pop(key, None)
                self._reopenings.pop(key, None)
                self._changed.add(key)

    def _size_of_gone(self) -> int:
        """Returns the estimated bytes of the state of deleted HPAs."""
        return sum([_size(self._memories.get(key)) for key in self._gone])

    @contextlib.contextmanager
    def _timed(self, operation: str) -> Iterator[None]:
        began = self._clock.monotonic()
        yield
        self._telemetry.store.took(operation, self._clock.monotonic() - began)


def _size(memory: Memory | None) -> int:
    """Returns the estimated bytes of the state of an HPA."""
    if memory is None:
        return 0
    size = _STATE_BYTES + sum([_SAMPLE_BYTES + len(sample.metric) for sample in memory.history.last_samples])
    if memory.status is not None:
        size += sum([len(condition.message) for condition in memory.status.conditions])
        size += _STATE_BYTES * len(memory.status.current_metrics or ())
    return size


def _resolve(waiting: Collection[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)


def _is_newer(one: Memory, other: Memory) -> bool:
    """Whether `one` is of a later turn than `other`, or of the same turn and not complete.

    Of two records of one turn the incomplete one is later: it was written before a turn outside the plan.
    """
    if one.at is None or other.at is None:
        return other.at is None
    return one.at > other.at or (one.at == other.at and not one.complete)

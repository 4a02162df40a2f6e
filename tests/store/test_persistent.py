"""The persistent store saves in time and in few writes, and a failing backend never stops decisions."""

import asyncio
import itertools
from collections.abc import Collection, Hashable, Mapping
from datetime import timedelta

import msgspec
import pytest
from support import virtual_time
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.engine.history import History, LastSample, Memory, PastRecommendation, Rescale
from hpad.store import persistent, record
from hpad.telemetry import Telemetry

WEB, API = Key("shop", "web"), Key("shop", "api")
LATELY = History((PastRecommendation(virtual_time.START, 3),), (Rescale(virtual_time.START, 1),))
INTERVALS = persistent.SaveIntervals(shortest=1, longest=15)


class Backend:
    """A storage backend in a dictionary, with one group per name. Every save fails with the text `trouble`, if set, and
    every load with `unreadable`."""

    name = "memory"

    def __init__(self) -> None:
        self.records: dict[Key, bytes] = {}
        self.saves: list[tuple[float, set[str]]] = []
        self.trouble: str | None = None
        self.unreadable: str | None = None
        self.lost = False
        self.quarantined: set[Key] = set()

    def group(self, key: Key) -> Hashable:
        return key.name

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        return list(self.records.items()), self.unreadable

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        self.saves.append((virtual_time.now(), {key.name for key in changes}))
        if self.trouble is not None:
            return dict.fromkeys(changes, self.trouble)
        for key, data in changes.items():
            if data is None:
                self.records.pop(key, None)
            else:
                self.records[key] = data
        return {}

    async def quarantine(self, keys: Collection[Key]) -> None:
        self.quarantined.update(keys)
        for key in keys:
            del self.records[key]

    def emptied(self) -> bool:
        was, self.lost = self.lost, False
        return was

    async def size(self) -> int:
        return sum(map(len, self.records.values()))

    async def close(self) -> None:
        pass


class Bench:
    def __init__(self, backend: Backend) -> None:
        self.telemetry = Telemetry()
        self.gone: set[Key] = set()
        self.store = persistent.PersistentStore(backend, virtual_time.VirtualClock(), self.telemetry, INTERVALS)
        self.running = asyncio.create_task(self.store.run(lambda key: key not in self.gone))

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.store.stop()


@in_virtual_time
async def test_changed_intervals_apply_from_the_next_save() -> None:
    backend = Backend()
    bench = Bench(backend)
    bench.store.retune(INTERVALS._replace(longest=5))
    for _ in range(40):
        await asyncio.sleep(1)
        bench.store.put(WEB, Memory(uid="1", history=LATELY))
    await bench.stop()
    times = [at for at, _ in backend.saves]
    assert len(times) >= 6
    assert all(later - earlier <= 5 + INTERVALS.shortest for earlier, later in itertools.pairwise(times))


@in_virtual_time
async def test_a_rescale_is_saved_at_once_and_other_state_once_per_period() -> None:
    backend = Backend()
    bench = Bench(backend)
    await bench.store.get_loaded(WEB)
    for key in (WEB, API):
        bench.store.put(key, Memory(uid="1"))
    await asyncio.sleep(3)
    await bench.store.flush_now(WEB)
    assert WEB in backend.records
    assert API not in backend.records
    await asyncio.sleep(20)
    await bench.stop()
    assert backend.saves == [(pytest.approx(3), {"web"}), (pytest.approx(15), {"api"})]


@in_virtual_time
async def test_a_failed_save_delays_nothing_and_is_retried() -> None:
    backend = Backend()
    bench = Bench(backend)
    backend.trouble = "the disk is full"
    bench.store.put(WEB, Memory(uid="1"))
    await bench.store.flush_now(WEB)
    assert virtual_time.now() < 3
    assert bench.store.trouble == "the disk is full"
    assert bench.store.get(WEB).uid == "1"
    backend.trouble = None
    await asyncio.sleep(16)
    assert record.decode(WEB, backend.records[WEB]).uid == "1"
    assert bench.store.trouble is None
    series = (await bench.telemetry.exposition()).decode()
    assert 'hpad_store_errors_total{operation="save"} 1.0' in series
    await bench.stop()


@in_virtual_time
async def test_state_that_cannot_be_read_is_not_logged_as_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    backend = Backend()
    backend.unreadable = "the file is locked"
    bench = Bench(backend)
    assert await bench.store.get_loaded(WEB) == Memory()
    assert virtual_time.now() == pytest.approx(INTERVALS.loading, abs=2)
    await bench.stop()
    lines = capsys.readouterr().out
    assert "the state could not be loaded in time: HPAs count as new" in lines
    assert "state loaded" not in lines


@in_virtual_time
async def test_a_damaged_record_is_quarantined_and_the_others_are_loaded() -> None:
    backend = Backend()
    backend.records = {WEB: b"garbage", API: record.encode(API, Memory(uid="2"))}
    bench = Bench(backend)
    assert await bench.store.get_loaded(WEB) == Memory()
    assert (await bench.store.get_loaded(API)).uid == "2"
    assert (await bench.store.get_loaded(API)).loaded
    assert backend.quarantined == {WEB}
    await bench.stop()


@in_virtual_time
async def test_other_tasks_run_while_many_records_are_decoded() -> None:
    backend = Backend()
    for number in range(1_000):
        key = Key("shop", f"app-{number}")
        backend.records[key] = record.encode(key, Memory(uid="1", at=virtual_time.START, history=LATELY))
    bench = Bench(backend)
    loading = asyncio.create_task(bench.store.get_loaded(WEB))
    passes = 0
    while not loading.done():
        await asyncio.sleep(0)
        passes += 1
    assert passes >= 10
    assert bench.store.get(Key("shop", "app-999")).history == LATELY
    await bench.stop()


@in_virtual_time
async def test_the_state_of_a_deleted_hpa_is_removed_after_the_grace_period() -> None:
    backend = Backend()
    backend.records = {key: record.encode(key, Memory(uid="2")) for key in (WEB, API)}
    bench = Bench(backend)
    await bench.store.get_loaded(WEB)
    bench.gone = {WEB}
    await asyncio.sleep(persistent.GRACE.total_seconds() / 2)
    assert WEB in backend.records
    await asyncio.sleep(persistent.GRACE.total_seconds())
    assert set(backend.records) == {API}
    assert list(bench.store.keys()) == [API]
    await bench.stop()


@in_virtual_time
async def test_a_recreated_hpa_has_its_state_as_after_a_restart() -> None:
    """Also if all records were saved again in between. An HPA that is back after a second loses nothing."""
    backend = Backend()
    bench = Bench(backend)
    await bench.store.get_loaded(WEB)
    known = Memory(uid="1", history=LATELY, at=virtual_time.START, last_count=3)
    bench.store.put(WEB, known)
    bench.gone = {WEB}
    bench.store.forget(WEB)
    assert bench.store.get(WEB) == msgspec.structs.replace(known, loaded=True)
    await asyncio.sleep(120)
    assert bench.store.get(WEB) == msgspec.structs.replace(known, loaded=True)
    backend.records, backend.lost = {}, True
    bench.store.put(API, Memory(uid="2"))
    await asyncio.sleep(40)
    saved = record.decode(WEB, backend.records[WEB])
    assert bench.store.get(WEB) == saved
    bench.gone = set()
    bench.store.put(WEB, known)
    assert bench.store.get(WEB) == known
    await asyncio.sleep(persistent.GRACE.total_seconds() * 2)
    assert bench.store.get(WEB) == known
    await bench.stop()


@in_virtual_time
async def test_the_state_of_deleted_hpas_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Authors choose the names of metrics, which are part of the state."""
    monkeypatch.setattr(persistent, "MOST_GONE_BYTES", 100_000)
    bench = Bench(Backend())
    keys = [Key("shop", f"job-{number}") for number in range(100)]
    for key in keys:
        await bench.store.get_loaded(key)
        names = tuple(LastSample("m" * 253) for _ in range(100))
        bench.store.put(key, Memory(uid="1", history=History(last_samples=names)))
    bench.gone = {*keys}
    await asyncio.sleep(120)
    assert set(bench.store.keys()) == {*keys[-2:]}
    await bench.stop()


@in_virtual_time
async def test_the_state_of_deleted_hpas_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of existing HPAs has no bound."""
    monkeypatch.setattr(persistent, "MOST_GONE", 1 << 10)
    bench = Bench(Backend())
    await bench.store.get_loaded(WEB)
    keys = [Key("shop", f"job-{number}") for number in range(persistent.MOST_GONE + 50)]
    for key in (WEB, *keys):
        bench.store.put(key, Memory(uid="1"))
    bench.gone = {*keys[:10]}
    await asyncio.sleep(120)
    assert len(list(bench.store.keys())) == len(keys) + 1
    bench.gone = {*keys}
    await asyncio.sleep(120)
    kept = set(bench.store.keys())
    assert len(kept) == persistent.MOST_GONE + 1
    assert WEB in kept
    assert not kept & bench.gone & {*keys[:10]}
    await bench.stop()


@in_virtual_time
async def test_state_written_by_another_replica_is_loaded_on_refresh() -> None:
    backend = Backend()
    bench = Bench(backend)
    await bench.store.get_loaded(WEB)
    bench.store.put(WEB, Memory(uid="1", at=virtual_time.START, last_count=3))
    later = Memory(uid="1", at=virtual_time.START + timedelta(seconds=30), last_count=7)
    backend.records[WEB] = record.encode(WEB, later)
    bench.store.refresh()
    assert (await bench.store.get_loaded(WEB)).last_count == 7
    await bench.stop()
    assert record.decode(WEB, backend.records[WEB]).last_count == 7


@in_virtual_time
async def test_a_load_is_repeated_if_the_lease_is_lost_and_won_again_during_it() -> None:
    """Otherwise a record that the leader in between saved during the load would be missed."""
    backend = Backend()
    bench = Bench(backend)
    await bench.store.get_loaded(WEB)
    load = backend.load

    async def load_slowly() -> tuple[list[tuple[Key, bytes]], str | None]:
        found = await load()
        await asyncio.sleep(1)
        return found

    backend.load = load_slowly  # type: ignore[method-assign]  # a slow backend
    bench.store.refresh()
    await asyncio.sleep(0.5)
    theirs = Memory(uid="1", at=virtual_time.START)
    backend.records[API] = record.encode(API, theirs)
    bench.store.refresh()
    assert (await bench.store.get_loaded(API)).at == theirs.at
    await bench.stop()


@in_virtual_time
async def test_records_lost_by_the_backend_are_saved_again() -> None:
    backend = Backend()
    bench = Bench(backend)
    await bench.store.get_loaded(WEB)
    for key in (WEB, API):
        bench.store.put(key, Memory(uid="1"))
    await asyncio.sleep(16)
    backend.records.clear()
    backend.lost = True
    bench.store.put(WEB, Memory(uid="1"))
    await bench.store.flush_now(WEB)
    assert set(backend.records) == {WEB}
    await asyncio.sleep(INTERVALS.longest)
    assert set(backend.records) == {WEB, API}
    await bench.stop()


@in_virtual_time
async def test_an_urgent_save_goes_before_the_rest_of_a_long_one() -> None:
    class Slow(Backend):
        async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
            await asyncio.sleep(1)
            return await super().save(changes)

    backend = Slow()
    bench = Bench(backend)
    many = [Key("shop", f"web-{number:03}") for number in range(200)]
    await bench.store.get_loaded(WEB)
    for key in many:
        bench.store.put(key, Memory(uid="1"))
    await asyncio.sleep(INTERVALS.longest + 3.5)
    assert 0 < len(backend.records) < 100, "all are being saved"
    began = virtual_time.now()
    bench.store.put(API, Memory(uid="1"))
    await bench.store.flush_now(API)
    assert API in backend.records
    assert virtual_time.now() - began < 2
    assert len(backend.records) < 100
    await asyncio.sleep(30)
    assert set(backend.records) == {*many, API}
    await bench.stop()


@in_virtual_time
async def test_urgent_saves_of_many_groups_come_in_the_order_of_their_requests() -> None:
    """As after a new leader took over: each of many HPAs in turn waits for its record, which 80 groups hold."""

    class Slow(Backend):
        async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
            await asyncio.sleep(0.1)
            return await super().save(changes)

    bench = Bench(Slow())
    await bench.store.get_loaded(WEB)
    saved = []
    for number in range(800):
        key = Key(f"shop-{number}", f"group-{number % 80}")
        bench.store.put(key, Memory(uid="1"))
        saved.append(asyncio.create_task(bench.store.flush_now(key)))
        await asyncio.sleep(0.005)
    assert all(await asyncio.gather(*saved))
    await bench.stop()

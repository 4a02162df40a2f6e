"""What survives is saved in time, in few writes, and whatever the shelf does, decisions go on."""

import asyncio
from collections.abc import Collection, Hashable, Mapping
from datetime import timedelta

import pytest
import virtual

from hpad.model.key import Key
from hpad.store import lasting, record
from hpad.store.memory import Memory
from hpad.telemetry import Telemetry

WEB, API = Key("shop", "web"), Key("shop", "api")
PACE = lasting.Pace(tick=1, rest=15)


class Shelf:
    """Records in a dictionary, a group for each name; `trouble` is what all saves answer."""

    name = "a shelf"

    def __init__(self) -> None:
        self.records: dict[Key, bytes] = {}
        self.saves: list[tuple[float, set[str]]] = []
        self.trouble: str | None = None
        self.quarantined: set[Key] = set()

    def group(self, key: Key) -> Hashable:
        return key.name

    async def load(self) -> tuple[list[tuple[Key, bytes]], str | None]:
        return list(self.records.items()), None

    async def save(self, changes: Mapping[Key, bytes | None]) -> Mapping[Key, str]:
        self.saves.append((asyncio.get_running_loop().time(), {key.name for key in changes}))
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

    async def size(self) -> int:
        return sum(map(len, self.records.values()))

    async def close(self) -> None:
        pass


class Bench:
    def __init__(self, shelf: Shelf) -> None:
        self.telemetry = Telemetry()
        self.gone: set[Key] = set()
        self.store = lasting.Lasting(shelf, virtual.VirtualClock(), self.telemetry, PACE)
        self.running = asyncio.create_task(self.store.run(lambda key: key not in self.gone))

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.store.stop()


def test_a_rescale_is_saved_at_once_and_alone_the_rest_once_a_period() -> None:
    async def main() -> Shelf:
        shelf = Shelf()
        bench = Bench(shelf)
        await bench.store.recall(WEB)
        for key in (WEB, API):
            bench.store.put(key, Memory(uid="1"))
        await asyncio.sleep(3)
        await bench.store.secure(WEB)
        assert WEB in shelf.records
        assert API not in shelf.records
        await asyncio.sleep(20)
        await bench.stop()
        return shelf

    shelf = virtual.run(main())
    assert shelf.saves == [(pytest.approx(3), {"web"}), (pytest.approx(15), {"api"})]


def test_a_save_that_fails_holds_nothing_up_and_is_tried_again() -> None:
    async def main() -> None:
        shelf = Shelf()
        bench = Bench(shelf)
        shelf.trouble = "the disk is full"
        bench.store.put(WEB, Memory(uid="1"))
        await bench.store.secure(WEB)
        assert asyncio.get_running_loop().time() < 3
        assert bench.store.trouble == "the disk is full"
        assert bench.store.get(WEB).uid == "1"
        shelf.trouble = None
        await asyncio.sleep(16)
        assert record.decode(WEB, shelf.records[WEB]).uid == "1"
        assert bench.store.trouble is None
        series = (await bench.telemetry.exposition()).decode()
        assert 'hpad_store_errors_total{operation="save"} 1.0' in series
        await bench.stop()

    virtual.run(main(), io_grace=0.05)


def test_a_damaged_record_is_put_aside_and_the_others_stay() -> None:
    async def main() -> None:
        shelf = Shelf()
        shelf.records = {WEB: b"garbage", API: record.encode(API, Memory(uid="2"))}
        bench = Bench(shelf)
        assert await bench.store.recall(WEB) == Memory()
        assert (await bench.store.recall(API)).uid == "2"
        assert (await bench.store.recall(API)).recalled
        assert shelf.quarantined == {WEB}
        await bench.stop()

    virtual.run(main())


def test_who_vanished_is_forgotten_after_a_grace() -> None:
    async def main() -> None:
        shelf = Shelf()
        shelf.records = {key: record.encode(key, Memory(uid="2")) for key in (WEB, API)}
        bench = Bench(shelf)
        await bench.store.recall(WEB)
        bench.gone = {WEB}
        await asyncio.sleep(lasting.GRACE.total_seconds() / 2)
        assert WEB in shelf.records
        await asyncio.sleep(lasting.GRACE.total_seconds())
        assert set(shelf.records) == {API}
        assert list(bench.store.keys()) == [API]
        await bench.stop()

    virtual.run(main())


def test_what_another_wrote_meanwhile_is_taken_over() -> None:
    async def main() -> None:
        shelf = Shelf()
        bench = Bench(shelf)
        await bench.store.recall(WEB)
        bench.store.put(WEB, Memory(uid="1", at=virtual.START, left=3))
        later = Memory(uid="1", at=virtual.START + timedelta(seconds=30), left=7)
        shelf.records[WEB] = record.encode(WEB, later)
        bench.store.refresh()
        assert (await bench.store.recall(WEB)).left == 7
        await bench.stop()
        assert record.decode(WEB, shelf.records[WEB]).left == 7

    virtual.run(main())

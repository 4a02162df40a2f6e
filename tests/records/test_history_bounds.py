"""The decision log keeps its limits, at 1,000 HPAs as well, and nothing of an HPA that was deleted."""

import asyncio
import gc
import random
import threading
import tracemalloc
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa
from support.decisions import WEB, after, contiguous, named, scaled
from support.engine import START, Workload, external, pod, resource, series, used
from support.references import containers
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.records import history
from hpad.records.archive import HistoryLimits
from hpad.records.history import REFRESH_SECONDS, SAVE_SECONDS, DecisionHistory

MANY = 1000


@in_virtual_time
async def test_a_deleted_hpa_leaves_its_past_decisions_alone() -> None:
    log = DecisionHistory()
    bench = Bench(hpa("web"), decisions=log)
    await bench.advance(20)
    assert await log.entries(WEB)
    bench.controller.start()
    bench.source.drop("web")
    await asyncio.sleep(20)
    await bench.controller.stop(5)
    assert log.last(WEB) is None
    assert len(await log.entries(WEB)) == 1


@pytest.mark.parametrize("in_file", [False, True])
def test_deleted_hpas_leave_no_entries_in_any_container(tmp_path: Path, in_file: bool) -> None:
    done = scaled(50).workload.done
    assert done is not None

    async def main() -> None:
        clock = virtual_time.VirtualClock()
        log = DecisionHistory(file=tmp_path / "decisions.db" if in_file else None, clock=clock)
        running = asyncio.create_task(log.run())
        await asyncio.sleep(SAVE_SECONDS * 2)
        before = containers(log)
        for turn in range(3):
            for number in range(100):
                log.add(named(done, f"app-{number}", timedelta(seconds=-3600 * turn)))  # each turn is an entry
        await asyncio.sleep(SAVE_SECONDS * 2)
        assert sum(size >= 100 for size in containers(log).values()) >= 1
        for number in range(100):
            log.release((Key("default", f"app-{number}"),))
        await asyncio.sleep(REFRESH_SECONDS + SAVE_SECONDS)
        grown = {path: size for path, size in containers(log).items() if size > before.get(path, 0) + 1}
        assert grown == {}
        running.cancel()
        await log.stop()

    virtual_time.run(main())


def test_a_day_of_entries_is_kept_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """An HPA that is scaled in every turn of an hour, and another one that is scaled once an hour."""
    monkeypatch.setattr(history, "SAVE_SECONDS", REFRESH_SECONDS)
    done, other = scaled(70).workload.done, scaled(50).workload.done
    assert done is not None
    assert other is not None

    async def main() -> None:
        clock = virtual_time.VirtualClock()
        log = DecisionHistory(clock=clock)
        running = asyncio.create_task(log.run())
        begin = clock.now() - START
        for _ in range(30):
            now = timedelta(seconds=clock.monotonic()) + begin
            log.add(named(done, "hourly", now))
            log.add(named(other, "steady", now))
            await asyncio.sleep(3600)
        hourly = await log.entries(Key("default", "hourly"))
        assert len(hourly) == 24
        assert hourly[-1].ended >= clock.now() - timedelta(hours=25)
        (steady, *_) = await log.entries(Key("default", "steady"))
        assert steady.ended - steady.began <= timedelta(hours=24)
        running.cancel()

    virtual_time.run(main())


@in_virtual_time
async def test_an_hpa_has_at_most_so_many_entries() -> None:
    done = scaled(70).workload.done
    assert done is not None
    clock = virtual_time.VirtualClock()
    log = DecisionHistory(clock=clock, limits=HistoryLimits(entries=100))
    running = asyncio.create_task(log.run())
    for turn in range(150):
        log.add(named(done, "web", timedelta(seconds=15 * turn)))
    await asyncio.sleep(SAVE_SECONDS + 1)
    found = await log.entries(WEB, limit=500)
    running.cancel()
    assert len(found) == 100
    assert contiguous(reversed(found))
    assert found[0].began - found[-1].began == timedelta(seconds=15 * 99)
    assert HistoryLimits().entries == 1000


@in_virtual_time
async def test_1000_hpas_that_change_all_the_time_stay_within_the_budget() -> None:
    """All statements hold at the same time: bytes, entries, the newest of each HPA, and the order."""
    dice, limits = random.Random(8), HistoryLimits(memory=600 << 10)
    changes = [scaled(count).workload.done for count in (70, 80, 90)]
    log = DecisionHistory(limits=limits, clock=virtual_time.VirtualClock())
    running = asyncio.create_task(log.run())
    for turn in range(2):
        for number in range(MANY):
            done = dice.choice(changes)
            assert done is not None
            log.add(named(done, f"app-{number}", timedelta(seconds=15 * turn)))
        await asyncio.sleep(SAVE_SECONDS + 1)
    assert log.usage().memory <= limits.memory
    assert log.usage().dropped > 0
    for number in range(0, MANY, 19):
        found = await log.entries(Key("default", f"app-{number}"))
        assert found[0].began == after(15 + 15)
        assert contiguous(reversed(found))
    running.cancel()


def test_evidence_and_entry_in_progress_take_less_than_4500_bytes_per_hpa() -> None:
    """For two metrics and four pods. At 5,000 HPAs they take 22 MB, and with the default budget the history 40 MB.

    What others hold as well is not counted: HPAs with their specs, pods, and the state.
    """
    workloads = [
        Workload(resource("cpu", averageUtilization=50), external("orders", averageValue="10"), replicas=4)
        for _ in range(20)
    ]
    for number, web in enumerate(workloads):
        metadata = msgspec.structs.replace(web.hpa.metadata, name=f"web-{number}")
        web.hpa = msgspec.structs.replace(web.hpa, metadata=metadata)
        web.pods = [pod(f"web-7d4b9c6f5b-{n}") for n in range(4)]
        web.reconcile(used([90] * 4), series(40))
    log = DecisionHistory(limits=HistoryLimits(span=timedelta(0)))
    gc.collect()
    tracemalloc.start()
    for turn in range(40):
        for number, web in enumerate(workloads):
            sample = used({each.name: 70 + turn + number % 7 for each in web.pods or ()}, now=web.now)
            web.reconcile(sample, series(35 + (turn * number) % 10), after=15)
            assert web.done is not None
            log.add(web.done)
            web.done = web.settled = None
    gc.collect()
    full, _ = tracemalloc.get_traced_memory()
    for number in range(len(workloads)):
        log.release((Key("default", f"web-{number}"),))
    gc.collect()
    empty, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 1000 < (full - empty) / len(workloads) < 4500


def test_readings_that_cannot_be_saved_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a full disk: the latest ones of each entry in progress stay."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(history, "_MOST_READINGS", 50)

    async def main() -> None:
        log = DecisionHistory(file=tmp_path / "file" / "decisions.db", clock=virtual_time.VirtualClock())
        running = asyncio.create_task(log.run())
        web = Workload(external("orders", averageValue="10"), replicas=5)
        for turn in range(41):
            web.reconcile(series(38 if turn % 2 else 48), after=15)
            assert web.done is not None
            for number in range(10):
                log.add(named(web.done, f"web-{number}"))
            await asyncio.sleep(15)
        for number in range(10):
            (entry,) = await log.entries(Key("default", f"web-{number}"))
            assert entry.turns == 41
            assert [point.recommended for point in entry.points] == [5, 4, 5, 4, 5]
        assert log.usage().trouble
        running.cancel()

    virtual_time.run(main())


def test_a_list_that_is_no_longer_wanted_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    made, goes_on, make = [], threading.Event(), history.make_trace

    async def main() -> None:
        log, began = scaled(50, 70, 90).log, asyncio.Event()
        loop = asyncio.get_running_loop()

        def slow(*given: Any) -> Any:
            made.append(given)
            loop.call_soon_threadsafe(began.set)
            goes_on.wait(10)
            return make(*given)

        monkeypatch.setattr(history, "make_trace", slow)
        listing = asyncio.create_task(log.entries(WEB, traces=True))
        await began.wait()
        listing.cancel()
        await asyncio.gather(listing, return_exceptions=True)
        goes_on.set()
        await loop.shutdown_default_executor()

    asyncio.run(main())
    assert len(made) == 1

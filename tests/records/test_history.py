"""The decision log: what was decided for an HPA, when and why, now and at an earlier moment."""

import asyncio
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support import virtual_time
from support.controller import Bench, Switch, hpa
from support.decisions import WEB, Diary, after, contiguous, named, of_kind, one_queue, scaled
from support.engine import Workload, external, series
from support.virtual_time import in_virtual_time

from hpad.api.hpa import AUTOSCALER, KIND, kind_of
from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.records.archive import HistoryLimits
from hpad.records.history import REFRESH_SECONDS, SAVE_SECONDS, DecisionHistory
from hpad.records.stretch import SETTLED


@in_virtual_time
async def test_unchanged_turns_are_one_entry_and_a_rescale_begins_another() -> None:
    log = DecisionHistory()
    bench = Bench(hpa("web"), decisions=log)
    bench.controller.start()
    await asyncio.sleep(50)
    bench.metrics.values["web"] = 30
    await asyncio.sleep(30)
    await bench.controller.stop(5)
    found = await log.entries(WEB, traces=True)
    assert [(entry.current, entry.desired, entry.action) for entry in reversed(found)] == [
        (1, 1, "none"),
        (1, 3, "scale_up"),
        (3, 3, "none"),
    ]
    assert found[-1].turns > 1
    assert all(entry.trace is not None and entry.trace.time == entry.began for entry in found)
    last = log.last(WEB)
    assert last is not None
    latest = log.trace(last)
    assert latest.replicas.current == 3
    assert latest.timing is not None
    assert [entry.trace for entry in await log.entries(WEB)] == [None] * 3


def test_entries_are_listed_by_time_and_in_pages() -> None:
    diary = scaled(50, 50, 70, 70, 60, 60)  # 5 | 5 -> 7 | 7 | 7 -> 6 | 6, from 15, 45, 60, 75 and 90 s on
    assert [(entry.began, entry.desired) for entry in diary.entries()] == [
        (after(15), 5), (after(45), 7), (after(60), 7), (after(75), 6), (after(90), 6),
    ]  # fmt: skip
    began = [entry.began for entry in diary.entries(since=after(31), until=after(75))]
    assert began == [after(45), after(60), after(75)]
    pages, before = [], None
    while page := diary.entries(before=before, limit=2):
        pages.append([entry.began for entry in page])
        before = page[0].number
    assert pages == [[after(75), after(90)], [after(45), after(60)], [after(15)]]
    assert diary.entries(limit=1)[0].turns == 1
    assert virtual_time.run(diary.log.entries(Key("default", "other"))) == []


@pytest.mark.parametrize(
    ("seconds", "count"), [(14, None), (15, 5), (22, 5), (44, 5), (45, 7), (74, 7), (75, 6), (90, 6), (9999, 6)]
)
def test_the_entry_in_force_at_a_moment(seconds: float, count: int | None) -> None:
    log = scaled(50, 50, 70, 70, 60, 60).log
    found = virtual_time.run(log.at(WEB, after(seconds)))
    assert (found and found.entry.desired) == count
    if found is not None:
        assert found.done is not None
        assert (found.done.view.now, found.done.decision.desired, found.note) == (found.entry.began, count, "")
    assert virtual_time.run(log.reaches(WEB)) == after(15)
    assert virtual_time.run(log.reaches(Key("default", "other"))) is None


def test_a_clock_that_was_set_back_leaves_the_history_in_the_order_of_the_turns() -> None:
    diary = Diary(one_queue())
    for step in (15, 15, 15, -3600, 15, 15):
        diary.turn(series(50), after=step)
    first, second = diary.entries()
    assert (first.began, first.ended) == (after(15), after(45))
    assert (second.began, second.ended) == (after(-3555), after(-3525))
    assert virtual_time.run(diary.log.reaches(WEB)) == after(-3555)

    def at(seconds: float) -> int | None:
        found = virtual_time.run(diary.log.at(WEB, after(seconds)))
        return found and found.entry.number

    assert [at(seconds) for seconds in (-9999, -3540, -100, 30, 60)] == [
        None, second.number, second.number, first.number, second.number,
    ]  # fmt: skip
    assert [entry.number for entry in diary.entries(before=second.number)] == [first.number]


def test_a_listener_is_told_of_the_turns_that_became_an_entry() -> None:
    async def main() -> list[Key]:
        diary = Diary(Workload(*[external(name, averageValue="10") for name in ("a", "b")], replicas=5))
        heard: list[Key] = []
        diary.log.subscribe(heard.append)
        for _ in range(3):
            diary.turn(series(50), series(20))
        for _ in range(SETTLED):
            diary.turn(series(20), series(50))
        diary.turn(series(90), series(90))
        return heard

    assert virtual_time.run(main()) == [WEB] * 3


@in_virtual_time
async def test_a_listener_gets_the_hpa_of_each_new_decision() -> None:
    log = DecisionHistory()
    bench = Bench(hpa("web"), decisions=log)
    heard: list[Key] = []
    log.subscribe(heard.append)
    bench.controller.start()
    await asyncio.sleep(50)
    bench.metrics.values["web"] = 30
    await asyncio.sleep(30)
    log.unsubscribe(heard.append)
    bench.metrics.values["web"] = 60
    await asyncio.sleep(30)
    await bench.controller.stop(5)
    assert heard == [WEB] * 3


def test_a_history_that_is_off_knows_the_last_decision() -> None:
    diary = scaled(50, 70, 70, log=DecisionHistory(limits=HistoryLimits(span=timedelta(0))))
    assert diary.entries() == []
    assert diary.log.last(WEB) is not None
    assert virtual_time.run(diary.log.reaches(WEB)) is None
    virtual_time.run(diary.log.run())  # ends at once
    virtual_time.run(diary.log.stop())


@in_virtual_time
async def test_a_released_hpa_keeps_its_past_and_has_no_latest_decision() -> None:
    log, owner = DecisionHistory(), Switch()
    bench = Bench(hpa("web"), decisions=log, owner=owner, release=log.release)
    bench.controller.start()
    await asyncio.sleep(40)
    released = bench.clock.now()
    owner.on = False
    bench.takeover.changed()
    await asyncio.sleep(40)
    assert log.last(WEB) is None
    (entry,) = await log.entries(WEB)
    assert entry.ended <= released
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(40)
    assert len(await log.entries(WEB)) == 2
    await bench.controller.stop(5)


def test_a_restart_continues_the_history_of_a_file(tmp_path: Path) -> None:
    async def life(*messages: int, after_crash: bool = False) -> list[int]:
        clock = virtual_time.VirtualClock()
        log = DecisionHistory(file=tmp_path / "decisions.db", clock=clock)
        running = asyncio.create_task(log.run())
        await asyncio.sleep(1)
        for each in messages:
            world.log = log
            world.turn(series(each))
        await asyncio.sleep(REFRESH_SECONDS + SAVE_SECONDS)
        found = await log.entries(WEB, traces=True)
        assert contiguous(reversed(found))
        assert all(entry.trace is not None for entry in found)
        latest = await log.at(WEB, after(40))
        assert latest is not None
        assert latest.done is not None
        running.cancel()
        await (crash(log) if after_crash else log.stop())
        return [entry.turns for entry in reversed(found)]

    world = Diary(one_queue())
    assert virtual_time.run(life(50, 50, 50)) == [3]
    assert virtual_time.run(life(50, 50)) == [3, 2]  # the same reason, but nothing is known of the time in between
    assert virtual_time.run(life(80, 80, after_crash=True)) == [3, 2, 1, 1]
    assert virtual_time.run(life(80)) == [3, 2, 1, 1, 1]


def test_after_a_restart_an_hpa_and_an_autoscaler_of_its_name_have_histories_of_their_own(tmp_path: Path) -> None:
    async def life() -> None:
        log, workload = DecisionHistory(file=tmp_path / "decisions.db"), one_queue()
        for kind, messages in ((KIND, 50), (AUTOSCALER, 80)):
            workload.reconcile(series(messages), after=15)
            log.add(of_kind(workload.done, kind))
        await log.stop()
        log = DecisionHistory(file=tmp_path / "decisions.db")
        for key in (WEB, Key(*WEB, AUTOSCALER_KEY)):
            (entry,) = await log.entries(key, traces=True)
            kind = kind_of(key)
            assert (entry.name, entry.kind) == ("web", kind)
            assert entry.trace is not None
            assert (entry.trace.key, entry.trace.sentence) == (key, entry.sentence)
        await log.stop()

    virtual_time.run(life())


def test_a_stop_and_a_crash_keep_how_far_an_entry_was(tmp_path: Path) -> None:
    """At the stop to the end; after a crash up to the last note, five minutes before at most."""

    async def life(*, notes: bool, stops: bool) -> int:
        clock = virtual_time.VirtualClock()
        world.log = DecisionHistory(file=tmp_path / "decisions.db", clock=clock)
        running = asyncio.create_task(world.log.run())
        world.turn(series(50))
        await asyncio.sleep(SAVE_SECONDS + 1)
        for _ in range(4):
            world.turn(series(50))
        await asyncio.sleep(REFRESH_SECONDS if notes else 0)
        world.turn(series(50))
        running.cancel()
        await (world.log.stop() if stops else crash(world.log))
        reader = DecisionHistory(file=tmp_path / "decisions.db", clock=clock)
        (last,) = await reader.entries(WEB, limit=1)
        await reader.stop()
        return last.turns

    world = Diary(one_queue())
    assert virtual_time.run(life(notes=False, stops=True)) == 6
    assert virtual_time.run(life(notes=True, stops=False)) == 5
    assert virtual_time.run(life(notes=False, stops=False)) == 1


def test_a_clock_that_was_set_back_before_a_restart_keeps_the_order(tmp_path: Path) -> None:
    async def life(start: timedelta) -> list[datetime]:
        clock = virtual_time.VirtualClock()
        log = DecisionHistory(file=tmp_path / "decisions.db", clock=clock)
        running = asyncio.create_task(log.run())
        await asyncio.sleep(1)
        log.add(named(done, "web", start))
        running.cancel()
        found = await log.entries(WEB)
        await log.stop()
        assert [entry.number for entry in found] == sorted([entry.number for entry in found], reverse=True)
        return [entry.began - start for entry in found]

    done = scaled(50).workload.done
    assert done is not None
    virtual_time.run(life(timedelta(hours=3)))
    began = virtual_time.run(life(timedelta(0)))
    assert began == [after(15), after(15) + timedelta(hours=3)]


def test_a_file_that_was_removed_has_the_next_turns_of_all_hpas(tmp_path: Path) -> None:
    """Also those of HPAs whose entry, which goes on, was in the file."""

    async def main() -> None:
        clock = virtual_time.VirtualClock()
        diary = Diary(one_queue(), DecisionHistory(file=tmp_path / "decisions.db", clock=clock))
        running = asyncio.create_task(diary.log.run())
        for _ in range(3):
            diary.turn(series(50))
            await asyncio.sleep(SAVE_SECONDS + 1)
        for each in ("decisions.db", "decisions.db-wal"):
            os.unlink(tmp_path / each)
        diary.log.add(named(diary.done[0], "other"))
        await asyncio.sleep(SAVE_SECONDS + 1)
        diary.turn(series(50))
        (entry,) = await diary.log.entries(WEB, traces=True)
        assert (entry.turns, entry.trace is not None) == (1, True)
        running.cancel()
        await diary.log.stop()

    virtual_time.run(main())


async def crash(log: DecisionHistory) -> None:
    """Loses what was not saved."""
    assert log._archive is not None
    await log._archive._database.close()

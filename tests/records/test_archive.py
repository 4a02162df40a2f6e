"""The database of the decision history: what was saved survives a restart or a crash."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support import virtual_time
from support.archives import API, EVERYTHING, WEB, found, numbers, put, stretch, use

from hpad.clock import moment_of
from hpad.records.archive import Archive, HistoryLimits
from hpad.records.tables import Search
from hpad.store.database import Database


def test_saved_entries_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "decisions.db"
    put(path, *map(stretch, range(1, 6)), stretch(10, API))
    assert path.stat().st_mode & 0o077 == 0

    async def work(archive: Archive) -> None:
        assert await archive.load() == 10
        (one,) = await archive.find(WEB, Search(limit=1, steps=True), None)
        assert (one.number, one.began, one.ended, one.said) == (5, 5, 6, b"said-5")
        assert (len(one.step), one.readings) == (300, {5: (5, (5,))})
        assert await archive.oldest(WEB, None) == moment_of(1)

    use(path, work)
    assert (numbers(path), numbers(path, API)) == ([5, 4, 3, 2, 1], [10])


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (Search(), [5, 4, 3, 2, 1]),
        (Search(limit=2), [5, 4]),
        (Search(before=4), [3, 2, 1]),
        (Search(since=40), [5, 4, 3]),
        (Search(until=30), [3, 2, 1]),
        (Search(since=25, until=25), [2]),
    ],
)
def test_entries_are_found_by_time_and_number(
    tmp_path: Path, search: Search, expected: list[int], in_file: bool
) -> None:
    """Whether they are saved or wait for the save."""
    stretches = [stretch(number, ended=10 * number + 10 - (number != 3)) for number in range(1, 6)]
    for each in stretches:
        each.began = moment_of(10 * each.number)

    async def work(archive: Archive) -> None:
        for each in stretches:
            archive.put(each)
            if each.number % 2:
                await archive.save()
        assert await found(archive, search=search) == expected
        await archive.save()
        assert await found(archive, search=search) == expected

    use(tmp_path / "a.db" if in_file else None, work)


def test_a_stretch_that_goes_on_is_found_as_it_is_now_and_saved_when_it_ends(tmp_path: Path) -> None:
    path, one = tmp_path / "decisions.db", stretch(1)

    async def work(archive: Archive) -> None:
        archive.put(one)
        await archive.save()
        one.ended, one.turns = moment_of(90), 7
        one.readings.append((moment_of(80), (6, (6,))))
        assert await found(archive, search=Search(since=50)) == []
        (live,) = await archive.find(WEB, EVERYTHING._replace(since=50), one)
        assert (live.ended, live.turns, len(live.step)) == (90, 7, 300)
        assert live.readings == {1: (5, (1,)), 80: (6, (6,))}
        archive.put(one)
        await archive.save()
        assert one.readings == []
        assert await archive.find(WEB, EVERYTHING, None) == [live]
        (listed,) = await archive.find(WEB, Search(), None)
        assert listed == live._replace(step=b"")

    use(path, work)


def test_readings_of_an_entry_that_was_deleted_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    put(path, stretch(1), stretch(2))

    async def work(archive: Archive) -> None:
        await archive.sweep(3, 1 << 40)
        late = stretch(1)
        late.saved(0)
        await archive.note([late])

    use(path, work)
    assert numbers(path) == [2]
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT number FROM readings ORDER BY number").fetchall() == [(2,)]
    database.close()


def test_noted_progress_survives_a_crash(tmp_path: Path) -> None:
    path, one, other = tmp_path / "decisions.db", stretch(1), stretch(2, API)

    async def crash() -> None:
        archive = Archive(path, virtual_time.VirtualClock(), HistoryLimits())
        for each in (one, other):
            archive.put(each)
        await archive.save()
        for each in (one, other):
            each.ended = moment_of(400)
        await archive.note([one, other])
        archive.put(stretch(470))  # lost: it was never saved
        await archive._database.close()

    virtual_time.run(crash())

    async def read(archive: Archive) -> list[tuple[int, int]]:
        rows = [*await archive.find(WEB, Search(), None), *await archive.find(API, Search(), None)]
        return [(each.number, each.ended) for each in rows]

    assert use(path, read) == [(1, 400), (2, 400)]


def test_a_history_of_the_earlier_format_is_dropped_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    with sqlite3.connect(path) as earlier:
        earlier.execute(f"PRAGMA application_id = {0x68706465}")
        earlier.execute("PRAGMA user_version = 1")
        earlier.execute("CREATE TABLE entries (number INTEGER PRIMARY KEY, hpa INTEGER, head BLOB)")
        earlier.execute("INSERT INTO entries VALUES (1, 1, x'00')")
    earlier.close()
    with capture_logs() as logs:
        assert numbers(path) == []
    assert [each["event"] for each in logs] == [
        "the decision history of an earlier version is dropped: creating a new one"
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["decisions.db"]
    put(path, stretch(200))
    assert numbers(path) == [200]


def test_a_save_that_is_cancelled_is_made_up_for_at_the_stop(tmp_path: Path) -> None:
    """The task that saves is cancelled before the last save."""
    path = tmp_path / "decisions.db"
    put(path, stretch(1, API))

    async def work(archive: Archive) -> None:
        archive.put(stretch(2))
        saving = asyncio.create_task(archive.save())
        await asyncio.sleep(0)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        assert await found(archive) == [2]

    use(path, work)
    assert (numbers(path), numbers(path, API)) == ([2], [1])


def test_an_entry_that_is_saved_during_a_search_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(archive: Archive) -> list[int]:
        run = Database.run

        async def run_then_save(database: Database, work: Callable[[sqlite3.Connection], Any]) -> Any:
            result = await run(database, work)
            monkeypatch.setattr(Database, "run", run)
            await archive.save()
            return result

        archive.put(stretch(1))
        monkeypatch.setattr(Database, "run", run_then_save)
        return await found(archive)

    assert use(tmp_path / "decisions.db", work) == [1]

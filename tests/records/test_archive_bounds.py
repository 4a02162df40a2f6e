"""The archive in a file keeps its limits: entries per HPA, age, and bytes at 1,000 HPAs."""

import sqlite3
from pathlib import Path

import pytest
from support import virtual_time
from support.archives import API, FAR, found, numbers, put, stretch, use
from support.references import containers

from hpad.api.metadata import Key
from hpad.clock import moment_of
from hpad.records import tables
from hpad.records.archive import RETRY, Archive, HistoryLimits


def test_an_hpa_has_at_most_that_many_entries(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", HistoryLimits(entries=10)
    put(path, *map(stretch, range(1, 31)), limits=limits)
    put(path, stretch(40, API), limits=limits)
    put(path, *map(stretch, range(50, 54)), limits=limits)
    assert numbers(path) == [53, 52, 51, 50, 30, 29, 28, 27, 26, 25]
    assert numbers(path, API) == [40]


def test_old_entries_and_those_of_a_wrong_clock_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    put(path, *(stretch(number, ended=ended) for number, ended in ((1, 900), (2, 50), (3, 150), (4, 60))))
    put(path, stretch(5, API, ended=50), stretch(6, API, ended=70))
    use(path, lambda archive: archive.sweep(100, 500))
    assert (numbers(path), numbers(path, API)) == ([3], [])
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT number FROM readings").fetchall() == [(3,)]
    database.close()


def fill(path: Path, limits: HistoryLimits, hpas: int, entries: int, *, size: int) -> int:
    """Puts entries of HPAs in turn, and returns how many were dropped."""

    async def work(archive: Archive) -> int:
        for number in range(1, entries + 1):
            archive.put(stretch(number, Key("shop", f"web-{number % hpas}"), size=size))
            if number % 2000 == 0:
                await archive.save()
                assert archive.usage().memory == 0
        await archive.save()
        assert archive.usage().trouble == ""
        return archive.usage().dropped

    return use(path, work, limits)


def test_a_large_file_is_swept_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a reader does not wait until hundreds of thousands of entries are deleted after a long pause."""
    path = tmp_path / "decisions.db"
    fill(path, HistoryLimits(), 20, 12_000, size=10)
    calls = []

    def sweep(connection: sqlite3.Connection, earliest: int, latest: int) -> bool:
        calls.append(original(connection, earliest, latest))
        return calls[-1]

    original = tables.sweep
    monkeypatch.setattr(tables, "sweep", sweep)
    use(path, lambda archive: archive.sweep(11_990, FAR))
    assert calls == [True, True, False]
    assert sum(len(numbers(path, Key("shop", f"web-{number}"))) for number in range(20)) == 12


def test_the_file_keeps_its_budget_at_1000_hpas_and_the_oldest_entries_go_first(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", HistoryLimits(disk=2 << 20)
    dropped = fill(path, limits, 1000, 10_000, size=400)
    assert path.stat().st_size <= limits.disk
    with sqlite3.connect(path) as database:
        ((count, oldest),) = database.execute("SELECT count(*), min(number) FROM steps").fetchall()
        assert database.execute("SELECT count(*), min(number) FROM readings").fetchall() == [(count, oldest)]
    database.close()
    assert (count + dropped, oldest) == (10_000, 10_000 - count + 1)
    assert count * 500 > limits.disk * 0.6


def test_the_budget_holds_for_large_traces_in_a_small_file(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", HistoryLimits(disk=1 << 20)
    fill(path, limits, 3, 200, size=60_000)
    assert path.stat().st_size <= limits.disk
    kept = sorted(number for hpa in range(3) for number in numbers(path, Key("shop", f"web-{hpa}")))
    assert kept == list(range(201 - len(kept), 201))
    assert len(kept) * 60_000 > limits.disk * 0.6


def test_a_smaller_budget_gives_space_back(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    fill(path, HistoryLimits(disk=8 << 20), 10, 8000, size=400)
    assert path.stat().st_size > 3 << 20
    put(path, stretch(1 << 20), limits=HistoryLimits(disk=1 << 20))
    assert path.stat().st_size <= 1 << 20
    assert numbers(path)[0] == 1 << 20


def test_entries_in_progress_are_the_last_to_go(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", HistoryLimits(disk=1 << 20)
    steady = stretch(1, API)
    put(path, steady, limits=limits)

    async def work(archive: Archive) -> None:
        steady.ended = moment_of(9000)
        await archive.note([steady])
        for number in range(2, 5000):
            archive.put(stretch(number, Key("shop", f"web-{number % 20}")))
            if number % 500 == 0:
                await archive.save()
        assert await found(archive, API) == [1]
        assert archive.usage().dropped > 1000

    use(path, work, limits)


def test_memory_is_bounded_while_the_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    limits = HistoryLimits(memory=100_000)

    async def work(archive: Archive) -> None:
        for number in range(1, 20_000):
            archive.put(stretch(number, Key("shop", f"web-{number % 50}")))
        assert max(containers(archive).values()) <= 20_000
        await virtual_time.VirtualClock().sleep(RETRY)
        await archive.save()
        usage = archive.usage()
        assert usage.memory <= 100_000
        assert usage.dropped > 4000

    use(tmp_path / "file" / "decisions.db", work, limits)

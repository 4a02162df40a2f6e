"""The archive in a file keeps its limits: entries per HPA, age, and bytes at 5,000 HPAs."""

import sqlite3
from pathlib import Path

import pytest
from support.archives import API, EVERYTHING, FAR, WEB, numbers, put, stored, use
from support.references import containers

from hpad.api.metadata import Key
from hpad.decisions import tables
from hpad.decisions.archive import Limits
from hpad.decisions.file import FileArchive


def test_an_hpa_has_at_most_that_many_entries(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", Limits(entries=10)
    put(path, *map(stored, range(1, 31)), limits=limits)
    put(path, stored(40), key=API, limits=limits)
    put(path, *map(stored, range(50, 54)), limits=limits)
    assert numbers(path) == [53, 52, 51, 50, 30, 29, 28, 27, 26, 25]
    assert numbers(path, API) == [40]


def test_old_entries_and_those_of_a_wrong_clock_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    put(path, *(stored(number, ended=ended) for number, ended in ((1, 900), (2, 50), (3, 150), (4, 60))))
    put(path, stored(5, ended=50), key=API)

    async def work(archive: FileArchive) -> None:
        await archive.refresh([(WEB, stored(4, ended=60))])
        archive.put(API, stored(6, ended=70))
        await archive.sweep(100, 500, lambda key: False)

    use(path, work)
    assert numbers(path) == [4, 3]  # 4 is in progress
    assert numbers(path, API) == []
    with sqlite3.connect(path) as found:
        assert found.execute("SELECT name FROM hpas").fetchall() == [("web",)]
        assert found.execute("SELECT number FROM traces ORDER BY number").fetchall() == [(3,), (4,)]
    found.close()


def fill(path: Path, limits: Limits, hpas: int, entries: int, *, size: int) -> int:
    """Puts entries of HPAs in turn, and returns how many were dropped."""

    async def work(archive: FileArchive) -> int:
        for number in range(1, entries + 1):
            archive.put(Key("shop", f"web-{number % hpas}"), stored(number, size=size))
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
    fill(path, Limits(), 100, 12_000, size=10)
    calls = []

    def sweep(connection: sqlite3.Connection, earliest: int, latest: int) -> bool:
        calls.append(original(connection, earliest, latest))
        return calls[-1]

    original = tables.sweep
    monkeypatch.setattr(tables, "sweep", sweep)
    use(path, lambda archive: archive.sweep(11_990, FAR, lambda key: False))
    assert calls == [True, True, False]
    assert sum(len(numbers(path, Key("shop", f"web-{number}"))) for number in range(100)) == 12


def test_the_file_keeps_its_budget_at_5000_hpas_and_the_oldest_entries_go_first(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", Limits(disk=8 << 20)
    dropped = fill(path, limits, 5000, 40_000, size=400)
    assert path.stat().st_size <= limits.disk
    with sqlite3.connect(path) as found:
        ((count, oldest),) = found.execute("SELECT count(*), min(number) FROM entries").fetchall()
        assert found.execute("SELECT count(*), min(number) FROM traces").fetchall() == [(count, oldest)]
    found.close()
    assert (count + dropped, oldest) == (40_000, 40_000 - count + 1)
    assert count * 500 > limits.disk * 0.6


def test_the_budget_holds_for_large_traces_in_a_small_file(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", Limits(disk=1 << 20)
    fill(path, limits, 3, 200, size=60_000)
    assert path.stat().st_size <= limits.disk
    kept = sorted(number for hpa in range(3) for number in numbers(path, Key("shop", f"web-{hpa}")))
    assert kept == list(range(201 - len(kept), 201))
    assert len(kept) * 60_000 > limits.disk * 0.6


def test_a_smaller_budget_gives_space_back(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    fill(path, Limits(disk=8 << 20), 10, 8000, size=400)
    assert path.stat().st_size > 3 << 20
    put(path, stored(1 << 20), limits=Limits(disk=1 << 20))
    assert path.stat().st_size <= 1 << 20
    assert numbers(path)[0] == 1 << 20


def test_entries_in_progress_are_the_last_to_go(tmp_path: Path) -> None:
    path, limits = tmp_path / "decisions.db", Limits(disk=1 << 20)
    put(path, stored(1), key=API, limits=limits)

    async def work(archive: FileArchive) -> None:
        await archive.refresh([(API, stored(1, ended=900))])
        for number in range(2, 5000):
            archive.put(Key("shop", f"web-{number % 20}"), stored(number))
            if number % 500 == 0:
                await archive.save()
        assert [each.number for each in await archive.find(API, EVERYTHING)] == [1]
        assert archive.usage().dropped > 1000

    use(path, work, limits)


def test_memory_is_bounded_while_the_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    limits = Limits(memory=100_000)

    async def work(archive: FileArchive) -> None:
        for number in range(1, 20_000):
            archive.put(Key("shop", f"web-{number % 50}"), stored(number))
            archive.forget(Key("shop", f"gone-{number}"))
        assert max(containers(archive).values()) <= 1 << 14
        await archive.save()
        usage = archive.usage()
        assert usage.memory <= 100_000
        assert usage.dropped > 4000

    use(tmp_path / "file" / "decisions.db", work, limits)

"""A file that is damaged, in use, removed or cannot be written loses no more than itself, and stops nothing."""

import random
import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support import virtual_time
from support.archives import API, EVERYTHING, FAR, WEB, aside, numbers, put, stored, use

from hpad.decisions import file, tables
from hpad.decisions.archive import Limits, Search
from hpad.decisions.compact import Stored
from hpad.decisions.file import FileArchive
from hpad.store import sqlite


@pytest.mark.parametrize("length", [0, 1, 99, 4096, 10_000])
def test_a_truncated_file_is_put_aside_and_replaced(tmp_path: Path, length: int) -> None:
    path = tmp_path / "decisions.db"
    put(path, *map(stored, range(1, 100)))
    path.write_bytes(path.read_bytes()[:length])
    assert numbers(path) == []
    assert bool(aside(path)) == (length > 1)  # SQLite opens a file of one byte as an empty database
    put(path, stored(200))
    assert numbers(path) == [200]


def test_one_damaged_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    for day in (1, 2):
        path.with_name(f"{path.name}.damaged-2020010{day}T000000.000000Z").write_bytes(b"older")
    path.write_bytes(b"garbage" * 1000)
    assert numbers(path) == []
    assert [each.read_bytes() for each in aside(path)] == [b"garbage" * 1000]


def test_a_file_of_another_format_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"
    put(path, stored(1))
    with sqlite3.connect(path) as later:
        later.execute(f"PRAGMA user_version = {tables.FORMAT + 1}")
    later.close()
    assert numbers(path) == []
    assert len(aside(path)) == 1


def test_random_damage_never_stops_the_archive(tmp_path: Path) -> None:
    path, dice = tmp_path / "decisions.db", random.Random(6)
    put(path, *map(stored, range(1, 120)))
    whole = path.read_bytes()
    for turn in range(40):
        garbled = bytearray(whole)
        for _ in range(dice.choice([1, 4, 64])):
            garbled[dice.choice([dice.randrange(200), dice.randrange(len(garbled))])] = dice.randrange(256)
        path.write_bytes(garbled)

        async def work(archive: FileArchive, number: int = 1000 + turn) -> list[Stored]:
            archive.put(WEB, stored(number))
            await archive.save()
            await archive.sweep(0, FAR, lambda key: False)
            return await archive.find(WEB, EVERYTHING)

        assert use(path, work)[0] == stored(1000 + turn)
        for each in tmp_path.iterdir():
            each.unlink()


def test_a_file_in_use_leaves_the_history_in_memory_until_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"

    async def main() -> None:
        one, other = (FileArchive(path, virtual_time.VirtualClock(), Limits()) for _ in range(2))
        await one.load()
        one.put(WEB, stored(1))
        await one.save()
        with capture_logs() as logs:
            await other.load()
            other.put(API, stored(2))
            other.forget(WEB)
            for _ in range(10):
                await other.save()
                await virtual_time.VirtualClock().sleep(5)
        assert [each["event"] for each in logs] == [
            "cannot save the decision history: it is kept in memory, and decisions go on"
        ]
        assert other.usage().trouble == f"{path}: it is locked: another hpad probably uses it"
        assert await other.find(API, EVERYTHING) == [stored(2)]
        await one.close()
        with capture_logs() as logs:
            await virtual_time.VirtualClock().sleep(file.RETRY)
            await other.save()
        assert [each["event"] for each in logs] == ["the decision history is saved again"]
        assert other.usage()._replace(disk=0) == (0, 0, 0, "")
        assert await other.find(WEB, EVERYTHING) == []
        await other.close()

    virtual_time.run(main())
    assert (numbers(path), numbers(path, API)) == ([], [2])


def test_a_disk_that_is_almost_full_is_left_to_the_state(tmp_path: Path) -> None:
    path, free = tmp_path / "decisions.db", [file.RESERVE - 1]

    async def main() -> None:
        archive = FileArchive(path, virtual_time.VirtualClock(), Limits(), free=lambda folder: free[0])
        archive.put(WEB, stored(1))
        await archive.save()
        assert not path.exists()
        assert "less than 64 MiB are free" in archive.usage().trouble
        assert await archive.find(WEB, EVERYTHING) == [stored(1)]
        free[0] += 1
        await virtual_time.VirtualClock().sleep(file.RETRY)
        await archive.save()
        assert not archive.usage().trouble
        await archive.close()

    virtual_time.run(main())
    assert numbers(path) == [1]


def test_a_folder_that_cannot_be_written_leaves_the_history_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def work(archive: FileArchive) -> list[Stored]:
        archive.put(WEB, stored(1))
        await archive.save()
        assert archive.usage().trouble
        return await archive.find(WEB, EVERYTHING)

    assert use(tmp_path / "file" / "decisions.db", work) == [stored(1)]


def test_a_file_removed_while_in_use_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "decisions.db"

    async def work(archive: FileArchive) -> None:
        archive.put(WEB, stored(1))
        await archive.save()
        for each in list(path.parent.iterdir()):
            each.unlink()
        assert await archive.find(WEB, EVERYTHING) == []
        archive.put(WEB, Stored(1, 1, 50, b"its end"))
        archive.put(WEB, stored(2))

    use(path, work)
    assert numbers(path) == [2, 1]


def test_a_row_that_is_no_entry_is_left_out_by_the_log(tmp_path: Path) -> None:
    """Valid SQLite with other values, as after an edit by hand."""
    path = tmp_path / "decisions.db"
    put(path, stored(1), stored(2))
    with sqlite3.connect(path) as edited:
        edited.execute("UPDATE entries SET head = NULL, began = 'soon' WHERE number = 1")
    edited.close()
    assert numbers(path, search=Search(limit=5)) in ([2, 1], [2])


def test_the_file_of_the_state_is_no_decision_history(tmp_path: Path) -> None:
    path = tmp_path / "history.db"

    async def state() -> None:
        backend = sqlite.Sqlite(path, virtual_time.VirtualClock())
        await backend.save({WEB: b"record"})
        await backend.close()

    virtual_time.run(state())
    assert numbers(path) == []
    (kept,) = aside(path)
    assert kept.stat().st_size > 0

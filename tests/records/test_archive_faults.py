"""A file that is damaged, in use, removed or cannot be written loses no more than itself, and stops nothing."""

import random
import sqlite3
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support import virtual_time
from support.archives import API, FAR, WEB, aside, found, numbers, put, stretch, use
from support.decisions import WEB as KEY
from support.decisions import scaled

from hpad.records import archive, tables
from hpad.records.archive import Archive, HistoryLimits
from hpad.records.history import DecisionHistory
from hpad.store import sqlite


@pytest.mark.parametrize("length", [0, 1, 99, 4096, 10_000])
def test_a_truncated_file_is_put_aside_and_replaced(tmp_path: Path, length: int) -> None:
    path = tmp_path / "decisions.db"
    put(path, *map(stretch, range(1, 100)))
    path.write_bytes(path.read_bytes()[:length])
    assert numbers(path) == []
    assert bool(aside(path)) == (length > 1)  # SQLite opens a file of one byte as an empty database
    put(path, stretch(200))
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
    put(path, stretch(1))
    with sqlite3.connect(path) as later:
        later.execute(f"PRAGMA user_version = {tables.FORMAT + 1}")
    later.close()
    assert numbers(path) == []
    assert len(aside(path)) == 1


def test_random_damage_never_stops_the_archive(tmp_path: Path) -> None:
    path, dice = tmp_path / "decisions.db", random.Random(6)
    put(path, *map(stretch, range(1, 120)))
    whole = path.read_bytes()
    missing = 0
    for turn in range(40):
        garbled = bytearray(whole)
        for _ in range(dice.choice([1, 4, 64])):
            garbled[dice.choice([dice.randrange(200), dice.randrange(len(garbled))])] = dice.randrange(256)
        path.write_bytes(garbled)

        async def work(archive: Archive, number: int = 1000 + turn) -> list[int]:
            archive.put(stretch(number))
            await archive.save()
            await archive.sweep(0, FAR)
            assert archive.usage().trouble == ""
            return await found(archive)

        missing += 1000 + turn not in use(path, work)
        for each in tmp_path.iterdir():
            each.unlink()
    assert missing <= 4  # a damaged key in an index hides others


def test_a_file_in_use_leaves_the_history_in_memory_until_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "decisions.db"

    async def main() -> None:
        one, other = (Archive(path, virtual_time.VirtualClock(), HistoryLimits()) for _ in range(2))
        await one.load()
        one.put(stretch(1))
        await one.save()
        with capture_logs() as logs:
            await other.load()
            other.put(stretch(2, API))
            for _ in range(10):
                await other.save()
                await virtual_time.VirtualClock().sleep(5)
        assert [each["event"] for each in logs] == [
            "cannot save the decision history: it is kept in memory, and decisions go on"
        ]
        assert other.usage().trouble == f"{path}: it is locked: another hpad probably uses it"
        assert await found(other, API) == [2]
        await one.close()
        with capture_logs() as logs:
            await virtual_time.VirtualClock().sleep(archive.RETRY)
            await other.save()
        assert [each["event"] for each in logs] == ["the decision history is saved again"]
        assert other.usage()._replace(disk=0) == (0, 0, 0, "")
        assert await found(other) == [1]
        await other.close()

    virtual_time.run(main())
    assert (numbers(path), numbers(path, API)) == ([1], [2])


def test_a_disk_that_is_almost_full_is_left_to_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, free = tmp_path / "decisions.db", [archive.RESERVE - 1]
    monkeypatch.setattr(archive, "_free_bytes", lambda folder: free[0])

    async def main() -> None:
        full = Archive(path, virtual_time.VirtualClock(), HistoryLimits())
        full.put(stretch(1))
        await full.save()
        assert not path.exists()
        assert "less than 64 MiB are free" in full.usage().trouble
        assert await found(full) == [1]
        free[0] += 1
        await virtual_time.VirtualClock().sleep(archive.RETRY)
        await full.save()
        assert not full.usage().trouble
        await full.close()

    virtual_time.run(main())
    assert numbers(path) == [1]


def test_a_folder_that_cannot_be_written_leaves_the_history_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def work(archive: Archive) -> list[int]:
        archive.put(stretch(1))
        await archive.save()
        assert archive.usage().trouble
        return await found(archive)

    assert use(tmp_path / "file" / "decisions.db", work) == [1]


def test_a_file_removed_while_in_use_is_created_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "decisions.db"

    async def work(archive: Archive) -> None:
        archive.put(stretch(1))
        await archive.save()
        for each in list(path.parent.iterdir()):
            each.unlink()
        assert await found(archive) == []
        archive.put(stretch(2))

    use(path, work)
    assert numbers(path) == [2]


def test_a_row_that_is_no_entry_is_left_out(tmp_path: Path) -> None:
    """Valid SQLite with other values, as after an edit by hand."""
    path, diary = tmp_path / "decisions.db", scaled(50, 70)

    async def read(edit: str) -> list[tuple[int, bool, int]]:
        with sqlite3.connect(path) as edited:
            edited.execute(edit)
        edited.close()
        log = DecisionHistory(file=path)
        listed = await log.entries(KEY, traces=True)
        await log.stop()
        return [(each.desired, each.trace is not None, len(each.points)) for each in listed]

    async def main() -> None:
        log = DecisionHistory(file=path)
        for done in diary.done:
            log.add(done)
        await log.stop()
        assert await read("SELECT 1") == [(7, True, 1), (5, True, 1)]
        assert await read("UPDATE steps SET step = x'00' WHERE turns = 1 AND said != x''") == [
            (7, False, 1),
            (5, False, 1),
        ]
        assert await read("UPDATE readings SET numbers = 'soon'") == [(7, False, 0), (5, False, 0)]
        first = "SELECT min(number) FROM steps"
        assert await read(f"UPDATE steps SET step = 'text' WHERE number = ({first})") == [(7, False, 0), (5, False, 0)]
        assert await read(f"UPDATE steps SET said = NULL WHERE number = ({first})") == [(7, False, 0)]
        assert await read(f"UPDATE steps SET began = 'soon' WHERE number = ({first})") == [(7, False, 0)]

    virtual_time.run(main())


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

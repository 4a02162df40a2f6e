"""The file of histories: what survives, what is put aside, and that nothing is made up."""

import random
import sqlite3
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import virtual

from hpad.model.history import History, Recommendation
from hpad.model.key import Key
from hpad.store import record, sqlite
from hpad.store.memory import Memory

START = datetime(2026, 1, 1, tzinfo=UTC)
Rows = dict[Key, bytes]


def rows(count: int, *, salt: int = 0) -> Rows:
    keys = [Key("shop", f"web-{n}") for n in range(count)]
    past = tuple(Recommendation(START + timedelta(seconds=15 * turn), 5 + salt) for turn in range(40))
    return {key: record.encode(key, Memory(uid=f"uid-{key.name}", history=History(past))) for key in keys}


def save(path: Path, changes: Mapping[Key, bytes | None], **limits: int) -> Mapping[Key, str]:
    async def main() -> Mapping[Key, str]:
        shelf = sqlite.Sqlite(path, virtual.VirtualClock(), **limits)
        failed = await shelf.save(changes)
        await shelf.close()
        return failed

    return virtual.run(main())


def load(path: Path) -> tuple[Rows, str | None]:
    async def main() -> tuple[Rows, str | None]:
        shelf = sqlite.Sqlite(path, virtual.VirtualClock())
        found, trouble = await shelf.load()
        await shelf.close()
        return dict(found), trouble

    return virtual.run(main())


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def test_what_was_saved_is_there(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.db"
    first, second = rows(20), rows(10, salt=1)
    assert save(path, first) == {}
    assert save(path, {**second, Key("shop", "web-19"): None}) == {}
    expected = {**first, **second}
    del expected[Key("shop", "web-19")]
    assert load(path) == (expected, None)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("length", [0, 1, 15, 16, 99, 100, 1000, 4095, 4096, 5000, 8192, 20000])
def test_a_file_that_was_cut_short_is_put_aside(tmp_path: Path, length: int) -> None:
    path = tmp_path / "history.db"
    save(path, rows(60))
    whole = path.read_bytes()
    assert len(whole) > 20000
    path.write_bytes(whole[:length])
    assert load(path) == ({}, None)
    kept = aside(path)
    assert [file.read_bytes() for file in kept[:1]] == (
        [whole[:length]] if length > 1 else []
    )  # SQLite takes one byte for nothing
    assert save(path, rows(3)) == {}
    assert load(path) == (rows(3), None)


def test_whatever_was_garbled_nothing_is_made_up(tmp_path: Path) -> None:
    """Every record that is read is one that was written, under its own key."""
    path = tmp_path / "history.db"
    written = rows(60)
    save(path, written)
    whole = path.read_bytes()
    dice = random.Random(7)
    quarantined = 0
    for _ in range(150):
        garbled = bytearray(whole)
        for _ in range(dice.choice([1, 1, 4, 64])):
            garbled[dice.choice([dice.randrange(200), dice.randrange(len(garbled))])] = dice.randrange(256)
        if dice.random() < 0.2:
            del garbled[dice.randrange(len(garbled)) :]
        path.write_bytes(garbled)
        found, trouble = load(path)
        for key, data in found.items():
            try:
                record.decode(key, data)
            except record.Undecodable:
                continue
            assert data == written[key]
        assert trouble is None or "locked" not in trouble
        quarantined += bool(aside(path))
        for file in tmp_path.iterdir():
            file.unlink()
    assert quarantined > 20


def test_a_file_of_a_later_version_is_kept_for_it(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    save(path, rows(3))
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 2")
    later.close()
    assert load(path) == ({}, None)
    (kept,) = aside(path)
    with sqlite3.connect(kept) as found:
        assert found.execute("SELECT count(*) FROM histories").fetchone() == (3,)
    found.close()


def test_a_file_in_use_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.db"

    async def main() -> None:
        one, other = (sqlite.Sqlite(path, virtual.VirtualClock()) for _ in range(2))
        assert await one.save(rows(3)) == {}
        found, trouble = await other.load()
        assert found == []
        assert trouble is not None
        assert "locked" in trouble
        assert set(await other.save(rows(1, salt=9))) == set(rows(1))
        await other.close()
        assert await one.save(rows(4)) == {}
        await one.close()

    virtual.run(main())
    assert load(path) == (rows(4), None)
    assert aside(path) == []


def test_a_full_disk_fails_the_save_and_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    assert save(path, rows(20)) == {}
    full = path.stat().st_size
    failed = save(path, rows(500, salt=1), most_bytes=full + 8192)
    assert set(failed) == set(rows(500))
    assert "full" in next(iter(failed.values()))
    assert load(path) == (rows(20), None)


def test_a_folder_that_cannot_be_written_is_trouble_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found, trouble = load(tmp_path / "file" / "history.db")
    assert found == {}
    assert trouble is not None
    assert "history.db" in trouble


def test_a_damage_found_while_running_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "history.db"

    async def main() -> None:
        shelf = sqlite.Sqlite(path, virtual.VirtualClock())
        await shelf.save(rows(60))
        await shelf.quarantine([Key("shop", "web-1")])
        assert await shelf.load() == ([], None)
        assert await shelf.save(rows(2)) == {}
        assert await shelf.size() > 0
        await shelf.close()

    virtual.run(main())
    assert load(path) == (rows(2), None)
    assert aside(path)

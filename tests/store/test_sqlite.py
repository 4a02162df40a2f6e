"""The SQLite storage backend: saved records survive, damaged files are set aside, no record is invented."""

import asyncio
import contextlib
import os
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support import environment, virtual_time

from hpad.api.metadata import AUTOSCALER_KEY, Key
from hpad.engine.history import History, Memory, PastRecommendation
from hpad.store import record, sqlite
from hpad.store.store import StoreError

START = datetime(2026, 1, 1, tzinfo=UTC)
NOBODY = 65534
Rows = dict[Key, bytes]


def rows(count: int, *, salt: int = 0) -> Rows:
    keys = [Key("shop", f"web-{n}") for n in range(count)]
    past = tuple(PastRecommendation(START + timedelta(seconds=15 * turn), 5 + salt) for turn in range(40))
    return {key: record.encode(key, Memory(uid=f"uid-{key.name}", history=History(past))) for key in keys}


def save(path: Path, changes: Mapping[Key, bytes | None], **limits: int) -> Mapping[Key, str]:
    async def main() -> Mapping[Key, str]:
        backend = sqlite.Sqlite(path, virtual_time.VirtualClock(), **limits)
        failed = await backend.save(changes)
        await backend.close()
        return failed

    return virtual_time.run(main())


def load(path: Path) -> tuple[Rows, str | None]:
    async def main() -> tuple[Rows, str | None]:
        backend = sqlite.Sqlite(path, virtual_time.VirtualClock())
        found, trouble = await backend.load()
        await backend.close()
        return dict(found), trouble

    return virtual_time.run(main())


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*"))


def test_saved_records_are_loaded(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.db"
    first, second = rows(20), rows(10, salt=1)
    beside = Key("shop", "web-19", AUTOSCALER_KEY)  # an Autoscaler of the name of an HPA
    first[beside] = record.encode(beside, Memory(uid="beside"))
    assert save(path, first) == {}
    assert save(path, {**second, Key("shop", "web-19"): None}) == {}
    expected = {**first, **second}
    del expected[Key("shop", "web-19")]
    assert load(path) == (expected, None)
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("length", [0, 1, 15, 16, 99, 100, 1000, 4095, 4096, 5000, 8192, 20000])
def test_a_truncated_file_is_set_aside(tmp_path: Path, length: int) -> None:
    path = tmp_path / "history.db"
    save(path, rows(60))
    whole = path.read_bytes()
    assert len(whole) > 20000
    path.write_bytes(whole[:length])
    assert load(path) == ({}, None)
    kept = [file.read_bytes() for file in aside(path)[:1]]
    assert kept == ([whole[:length]] if length > 1 else [])  # SQLite opens a file of one byte as an empty database
    assert save(path, rows(3)) == {}
    assert load(path) == (rows(3), None)


def test_only_the_latest_damaged_files_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    older = [path.with_name(f"{path.name}.damaged-202{year}0101T000000.000000Z") for year in range(6)]
    for file in older:
        file.write_bytes(b"older")
        file.with_name(f"{file.name}-wal").write_bytes(b"older")
    unrelated = path.with_name(f"{path.name}.damaged-notes.txt")
    unrelated.write_bytes(b"unrelated")
    path.write_bytes(b"garbage" * 1000)
    assert load(path) == ({}, None)
    kept = [file for file in aside(path) if file.name.endswith("Z")]
    assert kept[:-1] == older[-sqlite.KEPT_ASIDE + 1 :]
    assert kept[-1].read_bytes() == b"garbage" * 1000
    assert not older[0].with_name(f"{older[0].name}-wal").exists()
    assert unrelated.exists()


def test_random_damage_never_yields_a_false_record(tmp_path: Path) -> None:
    """Every record that can be decoded was written under its key."""
    path = tmp_path / "history.db"
    written = rows(60)
    save(path, written)
    whole = path.read_bytes()
    dice = random.Random(7)
    quarantined = compared = 0
    rounds = 50 * environment.EFFORT
    for _ in range(rounds):
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
            compared += 1
        assert trouble is None or "locked" not in trouble
        quarantined += bool(aside(path))
        for file in tmp_path.iterdir():
            file.unlink()
    assert quarantined > rounds / 8
    assert compared > 6 * rounds


def test_a_file_of_a_later_version_is_set_aside_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "history.db"
    save(path, rows(3))
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 2")
    later.close()
    assert load(path) == ({}, None)
    logged, (kept,) = capsys.readouterr().out, aside(path)
    assert "the state file cannot be used: renamed, creating a new one" in logged
    assert "its format is 2, which this version of hpad does not know; it knows 1" in logged
    with sqlite3.connect(kept) as found:
        assert found.execute("SELECT count(*) FROM histories").fetchone() == (3,)
    found.close()


def test_a_file_in_use_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "history.db"

    async def main() -> None:
        one, other = (sqlite.Sqlite(path, virtual_time.VirtualClock()) for _ in range(2))
        assert await one.save(rows(3)) == {}
        found, trouble = await other.load()
        assert found == []
        assert trouble == f"{path}: it is locked: another hpad probably uses it"
        await asyncio.to_thread(sqlite.check, path)  # accepted: the process that holds the lock may be about to end
        assert set(await other.save(rows(1, salt=9))) == set(rows(1))
        await other.close()
        assert await one.save(rows(4)) == {}
        await one.close()

    virtual_time.run(main())
    assert load(path) == (rows(4), None)
    assert aside(path) == []


def test_a_full_disk_fails_the_save_and_keeps_the_saved_records(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    assert save(path, rows(20)) == {}
    full = path.stat().st_size
    failed = save(path, rows(500, salt=1), most_bytes=full + 8192)
    assert set(failed) == set(rows(500))
    assert "full" in next(iter(failed.values()))
    assert load(path) == (rows(20), None)


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found, trouble = load(tmp_path / "file" / "history.db")
    assert found == {}
    assert trouble is not None
    assert "history.db" in trouble


def test_a_path_where_no_file_can_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path, why in ((tmp_path / "file" / "history.db", "File exists"), (tmp_path, "Is a directory")):
        with pytest.raises(StoreError, match=f"^store: {re.escape(str(path))}: {why}: "):
            sqlite.check(path)
    good = tmp_path / "made" / "history.db"
    sqlite.check(good)
    assert save(good, rows(3)) == {}
    sqlite.check(good)
    assert load(good) == (rows(3), None)


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A folder of an unprivileged user. Root, which may write everywhere, becomes the user nobody for the test."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, -1)
            os.setresuid(NOBODY, NOBODY, 0)
            stack.callback(os.setresuid, 0, 0, 0)
        yield Path(folder)


def test_a_path_without_write_permission_is_refused(unprivileged: Path) -> None:
    good = unprivileged / "file"
    sqlite.check(good)
    for mode, path in ((0o400, good), (0o500, unprivileged / "folder" / "file")):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        (path if path == good else path.parent).chmod(mode)
        with pytest.raises(StoreError, match="Permission denied"):
            sqlite.check(path)
    (unprivileged / "folder").chmod(0o700)


def test_a_damaged_record_does_not_affect_the_others(tmp_path: Path) -> None:
    """Also if hpad is killed before its next save."""
    path = tmp_path / "history.db"
    written, bad = rows(60), Key("shop", "web-1")

    async def main() -> None:
        backend = sqlite.Sqlite(path, virtual_time.VirtualClock())
        await backend.save({**written, bad: b"garbage"})
        await backend.quarantine([bad])
        assert await backend.size() > 0
        await backend.close()

    virtual_time.run(main())
    del written[bad]
    assert load(path) == (written, None)
    (kept,) = aside(path)
    assert kept.stat().st_mode & 0o077 == 0
    with sqlite3.connect(kept) as found:
        damaged = found.execute("SELECT record FROM histories WHERE name = 'web-1'").fetchall()
    found.close()
    assert damaged == [(b"garbage",)]


def test_a_file_deleted_while_in_use_is_created_again(tmp_path: Path) -> None:
    """Records saved to a deleted file would be lost when the process ends."""
    path = tmp_path / "state" / "history.db"

    async def main() -> None:
        backend = sqlite.Sqlite(path, virtual_time.VirtualClock())
        assert await backend.save(rows(60)) == {}
        for file in list(path.parent.iterdir()):
            file.unlink()
        assert await backend.save(rows(2)) == {}
        path.parent.rename(tmp_path / "elsewhere")
        assert await backend.save(rows(3)) == {}
        await backend.close()

    virtual_time.run(main())
    assert load(path) == (rows(3), None)
    assert aside(path) == []


def test_a_log_deleted_while_in_use_loses_no_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records saved to a deleted log would be lost when the process is killed."""
    path = tmp_path / "history.db"

    async def main() -> None:
        backend = sqlite.Sqlite(path, virtual_time.VirtualClock())
        assert await backend.save(rows(60)) == {}
        path.with_name("history.db-wal").unlink()
        assert await backend.save(rows(2, salt=1)) == {}
        for file in list(path.parent.iterdir()):
            shutil.copy(file, kept)  # as a kill would leave it
        assert await backend.save(rows(3, salt=1)) == {}
        await backend.close()

    kept = tmp_path.with_name("killed")
    kept.mkdir()
    virtual_time.run(main())
    assert load(kept / path.name) == (rows(60) | rows(2, salt=1), None)
    assert load(path) == (rows(60) | rows(3, salt=1), None)
    assert capsys.readouterr().out.count("or the log beside it, was removed") == 1

"""When changed files are read again. The time is virtual, the files are real."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.virtual_time import VirtualClock, in_virtual_time
from support.virtual_time import run as in_virtual_loop

from hpad import settings
from hpad.daemon.process import Notifier, running
from hpad.daemon.reload import LOOK_SECONDS, Reloader
from hpad.files import Stamps, stamps
from hpad.settings import Settings
from hpad.sources.replacement import SourcesRejected
from hpad.telemetry import Telemetry

FIRST, SECOND, THIRD, WRONG = "sync_period: 4s\n", "sync_period: 5000ms\n", "sync_period: 60s\n", "sync_period: five\n"
"""Of different sizes: the system's clock for files has ticks, which a test in virtual time may not wait for."""


async def nothing() -> None:
    """Stands for what happens during a reload."""


class Daemon:
    """What a reload needs of an App. `on_reload` may raise, or change files."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.telemetry = Telemetry()
        self.server = None
        self.settings = Settings()
        self.rejected: tuple[str, ...] = ()
        self.kept: Stamps = {}
        current = SimpleNamespace(kept_files=lambda: self.kept)
        self.components = SimpleNamespace(metrics=SimpleNamespace(current=current))
        self.periods: list[float] = []
        self.on_reload: Callable[[], Awaitable[None]] = nothing

    async def reload(self, new: Settings) -> list[str]:
        await self.on_reload()
        self.settings = new
        self.periods.append(new.sync_period.total_seconds())
        return []

    async def looks(self, count: float) -> None:
        await self.clock.sleep(count * LOOK_SECONDS)


class World:
    """A daemon whose settings are in `file`. `reads` counts how often they were read."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "hpad.yaml"
        self.reads = 0
        self.on_read: Callable[[], object] = lambda: None
        self.reloader: Reloader

    def read(self) -> Settings:
        self.reads += 1
        self.on_read()
        return settings.load(self.file, {}, {})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Daemon]:
        if not self.file.exists():
            self.file.write_text(FIRST)
        daemon, files = Daemon(), await seen(self.file)
        app: Any = daemon
        self.reloader = Reloader(app, self.read, files, applied=lambda settings: None, notifier=Notifier({}))
        async with running(self.reloader.run(), "reload"):
            await daemon.looks(0.5)
            yield daemon


async def seen(file: Path) -> Stamps:
    return await asyncio.to_thread(stamps, [str(file)])


def written(file: Path) -> None:
    file.write_text(SECOND)


def renamed(file: Path) -> None:
    new = file.with_suffix(".new")
    new.write_text(SECOND)
    new.rename(file)


def swapped(file: Path) -> None:
    """As the kubelet replaces a mounted ConfigMap; the new file has the size and the time of the old one."""
    old, folder = file.stat(), file.parent
    (folder / "..2").mkdir()
    (folder / "..2" / file.name).write_text(FIRST.replace("4", "5"))
    os.utime(folder / "..2" / file.name, ns=(old.st_atime_ns, old.st_mtime_ns))
    (folder / "..data_tmp").symlink_to("..2")
    (folder / "..data_tmp").rename(folder / "..data")


def mounted(folder: Path) -> Path:
    """Makes a folder as a ConfigMap is mounted."""
    (folder / "..1").mkdir()
    (folder / "..1" / "hpad.yaml").write_text(FIRST)
    (folder / "..data").symlink_to("..1")
    (folder / "hpad.yaml").symlink_to("..data/hpad.yaml")
    return folder


@pytest.mark.parametrize("change", [written, renamed, swapped])
def test_a_changed_file_is_read_at_the_second_look(tmp_path: Path, change: Callable[[Path], None]) -> None:
    async def main() -> None:
        world = World(mounted(tmp_path) if change is swapped else tmp_path)
        async with world.running() as daemon:
            await daemon.looks(3)
            assert world.reads == 0
            change(world.file)
            await daemon.looks(1)
            assert world.reads == 0
            await daemon.looks(1)
            assert daemon.periods == [5]
            await daemon.looks(5)
            assert world.reads == 1

    in_virtual_loop(main())


@in_virtual_time
async def test_a_file_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running() as daemon:
        for length in range(len(SECOND) + 1):
            world.file.write_text(SECOND[:length])
            await daemon.looks(1)
        assert world.reads == 0
        await daemon.looks(2)
    assert daemon.periods == [5]


@in_virtual_time
async def test_what_is_read_while_a_file_is_written_is_not_used(tmp_path: Path) -> None:
    """A writer empties the file first; empty settings would be valid."""
    world = World(tmp_path)
    async with world.running() as daemon:
        world.on_read = lambda: world.file.write_text("")
        await world.reloader.reload()
        assert (world.reads, daemon.periods, daemon.rejected) == (1, [], ())


@in_virtual_time
async def test_a_file_may_be_missing_for_a_moment(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running() as daemon:
        world.file.unlink()
        await daemon.looks(1)
        world.file.write_text(SECOND)
        await daemon.looks(2)
        assert (daemon.periods, daemon.rejected) == ([5], ())


@pytest.mark.parametrize("wrong", [WRONG, None], ids=["invalid", "missing"])
def test_invalid_settings_are_rejected_once_until_they_are_right(tmp_path: Path, wrong: str | None) -> None:
    async def main() -> None:
        world = World(tmp_path)
        async with world.running() as daemon:
            world.file.unlink()
            if wrong is not None:
                world.file.write_text(wrong)
            await daemon.looks(10)
            assert world.reads == 1
            (problem,) = daemon.rejected
            assert ("sync_period: 'five'" if wrong else "No such file") in problem
            assert b'hpad_settings_reloads_total{result="rejected"} 1.0' in await daemon.telemetry.exposition()
            world.file.write_text(FIRST)  # the settings in force, which count as a change all the same
            await daemon.looks(2)
            assert (daemon.periods, daemon.rejected) == ([4], ())
            assert b'hpad_settings_reloads_total{result="applied"} 1.0' in await daemon.telemetry.exposition()

    in_virtual_loop(main())


@in_virtual_time
async def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    """As with `--config <(…)`: a second time it would be empty, and so valid."""
    world = World(tmp_path)
    os.mkfifo(world.file)
    async with world.running() as daemon:
        os.close(os.open(world.file, os.O_RDWR))
        os.utime(world.file)
        await daemon.looks(5)
    assert world.reads == 0


@in_virtual_time
async def test_files_of_rejected_and_of_running_sources_are_watched(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    world = World(tmp_path)
    async with world.running() as daemon:

        async def check() -> None:
            if not await asyncio.to_thread(rules.exists):
                raise SourcesRejected(["no rules"], await seen(rules))
            daemon.kept = await seen(rules)

        daemon.on_reload = check
        world.file.write_text(SECOND)
        await daemon.looks(5)
        assert (world.reads, daemon.rejected) == (1, ("no rules",))
        rules.write_text("rules: []")
        await daemon.looks(3)
        assert (world.reads, daemon.rejected) == (2, ())
        rules.write_text("rules: [1]")
        await daemon.looks(3)
        assert world.reads == 3


@in_virtual_time
async def test_a_change_during_a_reload_is_applied_after_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running() as daemon:

        async def change_again() -> None:
            daemon.on_reload = nothing
            await asyncio.to_thread(world.file.write_text, THIRD)

        daemon.on_reload = change_again
        world.file.write_text(SECOND)
        await daemon.looks(5)
        assert daemon.periods == [5, 60]


@in_virtual_time
async def test_a_bug_in_a_reload_is_shown_and_ends_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running() as daemon:

        async def fail() -> None:
            daemon.on_reload = nothing
            raise ZeroDivisionError

        daemon.on_reload = fail
        world.file.write_text(SECOND)
        with capture_logs() as log:
            await daemon.looks(5)
        assert [line["log_level"] for line in log] == ["error"]
        assert (world.reads, daemon.rejected) == (1, ("bug: ZeroDivisionError",))
        world.file.write_text(THIRD)
        await daemon.looks(3)
        assert (daemon.periods, daemon.rejected) == ([60], ())

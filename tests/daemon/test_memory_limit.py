"""Memory limits: where they are found, and what is done near them."""

import asyncio
import ctypes
import functools
import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog
import virtual
from hypothesis import strategies

from hpad import settings
from hpad.daemon import memory_limit
from hpad.daemon.memory_limit import Kept, Level, Limit, Remembered, Taken
from hpad.telemetry import Telemetry

MEBI = 1 << 20


def system(root: Path, cgroup: str, **files: str) -> Path:
    """A /proc and a /sys with these files in /sys/fs/cgroup ("/" in a name is written "__")."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, content in files.items():
        file = root / "sys/fs/cgroup" / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return root


def found(root: Path) -> dict[str, int]:
    return {limit.origin: limit.bytes for limit in memory_limit.limits(None, root) if not limit.of_addresses}


def test_the_least_limit_from_the_services_cgroup_up_counts(tmp_path: Path) -> None:
    files = {
        "system.slice__hpad.service__memory.max": "max\n",
        "system.slice__hpad.service__memory.high": "209715200\n",
        "system.slice__memory.max": "524288000\n",
        "system.slice__memory.high": "max\n",
    }
    root = system(tmp_path, "0::/system.slice/hpad.service\n", **files)
    assert found(root) == {"the cgroup's memory.high": 200 * MEBI, "the cgroup's memory.max": 500 * MEBI}


def test_in_a_container_the_cgroup_is_the_top(tmp_path: Path) -> None:
    root = system(tmp_path, "0::/../../kubepods/besteffort/pod1/c1\n", **{"memory.max": "134217728\n"})
    assert found(root) == {"the cgroup's memory.max": 128 * MEBI}


@pytest.mark.parametrize(("says", "limit"), [("134217728", 128 * MEBI), ("9223372036854771712", None), ("", None)])
def test_cgroups_of_version_one(tmp_path: Path, says: str, limit: int | None) -> None:
    lines = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/docker/x\n"
    root = system(tmp_path, lines, **{"memory__memory.limit_in_bytes": says})
    assert found(root) == ({} if limit is None else {"the cgroup's memory.limit_in_bytes": limit})


def test_no_cgroup_no_limit(tmp_path: Path) -> None:
    assert found(tmp_path) == {}


def test_what_is_told_stands_alone(tmp_path: Path) -> None:
    root = system(tmp_path, "0::/\n", **{"memory.max": "134217728\n"})
    assert memory_limit.limits(300 * MEBI, root) == [Limit(300 * MEBI, "memory_limit")]
    assert memory_limit.limits(0, root) == []


def test_this_process_takes_some_memory() -> None:
    taken = memory_limit.taken()
    assert taken is not None
    assert 10 * MEBI < taken.resident < taken.addresses


@pytest.fixture
def squares() -> Remembered:
    @functools.lru_cache(maxsize=8)
    def square(number: int) -> int:
        return number * number

    for number in range(5):
        square(number)
    return Remembered("squares", square)


@pytest.mark.parametrize(
    ("said", "meant"),
    [("auto", None), ("", None), (None, None), ("none", 0), ("256Mi", 256 * MEBI), ("1G", 10**9), (1 << 30, 1 << 30)],
)
def test_a_limit_is_an_amount_as_kubernetes_writes_it(said: object, meant: int | None) -> None:
    assert settings.PARSERS["memory_limit"](said) == meant


@pytest.mark.parametrize("said", ["256", "-1Gi", "lots", True, 0, [], "1e400"])
def test_what_is_no_amount_is_refused(said: object) -> None:
    with pytest.raises(ValueError, match='is not an amount of memory of 1Mi or more such as "256Mi", "auto" or "none"'):
        settings.PARSERS["memory_limit"](said)


class Scene:
    """A guard with a limit of 100 MiB, on a process that takes as much as the test says."""

    def __init__(self, *caches: memory_limit.Cache, telemetry: Telemetry | None = None) -> None:
        self.percent = 10
        self.sheds: list[bool] = []
        self.trimmed = 0
        self.telemetry = telemetry or Telemetry()
        self.guard = memory_limit.Guard(
            100 * MEBI,
            virtual.VirtualClock(),
            self.telemetry,
            caches,
            self.sheds.append,
            measure=self._measure,
            trim=self._trim,
        )

    def _measure(self) -> Taken:
        return Taken(self.percent * MEBI, 10 * self.percent * MEBI)

    def _trim(self) -> None:
        self.trimmed += 1

    async def look(self, percent: int, seconds: float = 60) -> Level:
        self.percent = percent
        await asyncio.sleep(seconds)
        await self.guard.look()
        return self.guard.level


def test_caches_go_first_and_load_is_shed_next(squares: Remembered) -> None:
    async def main() -> None:
        held = ["a", "b"]
        scene = Scene(squares, Kept("held", held.__len__, held.clear))
        await scene.guard.start()
        assert scene.guard.sizes() == {"squares": 5, "held": 2}
        assert await scene.look(79) is Level.EASY
        assert scene.guard.sizes() == {"squares": 5, "held": 2}
        assert scene.guard.trouble is None
        with structlog.testing.capture_logs() as logs:
            assert await scene.look(80) is Level.TIGHT
            assert scene.guard.sizes() == {"squares": 0, "held": 0}
            assert scene.guard.trouble == "memory: 80% of 100 MiB (memory_limit) are taken: caches are emptied"
            assert scene.sheds == []
            assert await scene.look(91) is Level.SHORT
            assert scene.sheds == [True]
        said = [(line["log_level"], line["event"]) for line in logs if line["event"].startswith("memory")]
        assert [level for level, _ in said] == ["warning", "error"]
        assert "HPAs that do not grow are looked at less often" in said[1][1]
        assert await scene.look(70) is Level.EASY
        assert scene.sheds == [True, False]
        text = (await scene.telemetry.exposition()).decode()
        assert 'hpad_memory_limit_bytes{origin="memory_limit"} 1.048576e+08' in text
        assert "hpad_caches_emptied_total 2.0" in text
        assert "hpad_memory_level 0.0" in text

    virtual.run(main())


def test_what_does_not_help_is_tried_again_but_not_all_the_time() -> None:
    async def main() -> int:
        emptied: list[int] = []
        scene = Scene(Kept("held", lambda: 1, lambda: emptied.append(1)))
        await scene.guard.start()
        for _ in range(60):
            await scene.look(85, seconds=memory_limit.LOOK_SECONDS)
        return len(emptied)

    assert virtual.run(main()) == 60 / memory_limit.AGAIN_SECONDS


@pytest.mark.parametrize(("limit", "percent"), [(100 * MEBI, 10), (0, 10), (100 * MEBI, 85)])
def test_what_is_free_goes_back_once_a_minute_and_whenever_caches_are_emptied(limit: int, percent: int) -> None:
    async def main() -> int:
        scene = Scene()
        await scene.guard.retune(limit)
        for _ in range(600):
            await scene.look(percent, seconds=memory_limit.LOOK_SECONDS)
        return scene.trimmed

    often = memory_limit.AGAIN_SECONDS if percent > 80 else memory_limit.TRIM_SECONDS
    assert virtual.run(main()) == 600 / often


def test_holes_in_the_heap_go_back_to_the_system() -> None:
    """In a process of its own, whose heap nobody else uses: 64 MB in small pieces, of which the last one stays."""
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library has no malloc_trim")
    code = """
from hpad.daemon import memory_limit as pressure
held = [bytes(8_000) for _ in range(8_000)]
last, full = held.pop(), pressure.taken().resident
del held
holed = pressure.taken().resident
pressure.trim()
print(full, holed, pressure.taken().resident)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    full, holed, trimmed = map(int, done.stdout.split())
    assert full - holed < 10 * MEBI  # else there was nothing to give back
    assert full - trimmed > 50 * MEBI


def test_where_no_thread_is_left_there_is_a_guard_all_the_same() -> None:
    """Of all times while memory is short: the stack of a thread takes some, too."""

    class Full(ThreadPoolExecutor):
        def submit(self, *_: object) -> Any:
            raise RuntimeError("can't start new thread")

    async def main() -> Level:
        asyncio.get_running_loop().set_default_executor(Full())
        scene = Scene()
        await scene.guard.start()
        return await scene.look(95)

    assert virtual.run(main()) is Level.SHORT


def test_another_limit_counts_at_once() -> None:
    async def main() -> list[Level]:
        scene = Scene()
        await scene.guard.start()
        levels = [await scene.look(95)]
        await scene.guard.retune(0)
        levels.append(await scene.look(95))
        await scene.guard.retune(110 * MEBI)
        levels.append(await scene.look(95))
        assert 'origin="memory_limit"} 1.1534336e+08' in (await scene.telemetry.exposition()).decode()
        return levels

    assert virtual.run(main()) == [Level.SHORT, Level.EASY, Level.TIGHT]


SHARED = Telemetry()


@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(strategies.lists(strategies.integers(50, 120), min_size=1, max_size=8))
def test_levels_follow_the_share_and_do_not_flutter(shares: list[int]) -> None:
    """Whatever comes: from 90 % on it is short, from 80 % on at least tight, below 75 % all is well; load is shed and
    taken on again in turns; and a level is left only by a move of more than the slack."""

    async def main() -> tuple[list[Level], list[bool]]:
        scene = Scene(telemetry=SHARED)
        await scene.guard.start()
        return [await scene.look(share) for share in shares], scene.sheds

    levels, sheds = virtual.run(main())
    for share, level in zip(shares, levels, strict=True):
        assert (share >= 90) <= (level is Level.SHORT) <= (share >= 85)
        assert (share >= 80) <= (level >= Level.TIGHT) <= (share >= 75)
    assert sheds == [bool(number % 2 == 0) for number in range(len(sheds))]
    for (share, level), (later, next_level) in itertools.pairwise(zip(shares, levels, strict=True)):
        assert level is next_level or share != later

"""Signals, systemd's socket, and log lines as bytes."""

import asyncio
import contextlib
import ctypes
import json
import linecache
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from support import virtual_time

from hpad.clock import SystemClock
from hpad.daemon import process


async def test_a_signal_sets_the_event() -> None:
    async with process.stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await stop.wait()


@pytest.mark.parametrize(("seconds", "done"), [(1, True), (3, False)])
async def test_what_is_begun_ends_when_all_is_to_end(seconds: float, done: bool) -> None:
    stop, ends = asyncio.Event(), []

    async def work() -> None:
        try:
            for _ in range(round(seconds * 100)):
                await asyncio.sleep(0)
        finally:
            ends.append(stop.is_set())

    async def end() -> None:
        for _ in range(200):
            await asyncio.sleep(0)
        stop.set()

    ending = asyncio.create_task(end())
    assert await process.run_until(stop, work()) is done
    assert ends == [not done]
    await ending


async def test_what_is_begun_may_fail() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process.run_until(asyncio.Event(), work())


def test_systemd_receives_readiness_and_watchdog_signals(tmp_path: Path) -> None:
    told: list[str] = []

    class Notifier(process.Notifier):
        def notify(self, state: str) -> None:
            told.append(state)

    async def main() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "20000000"})

        async def ready() -> None:
            await asyncio.sleep(25)

        running = asyncio.create_task(notifier.run(virtual_time.VirtualClock(), ready))
        await asyncio.sleep(45)
        running.cancel()

    virtual_time.run(main())
    assert told == ["WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1", "READY=1", "WATCHDOG=1", "WATCHDOG=1"]


@contextlib.contextmanager
def no_file_left() -> Iterator[None]:
    """Inside, the process cannot open one more file."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, limits[0]), limits[1]))
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_file_descriptors_systemd_hears_nothing(tmp_path: Path) -> None:
    """A watchdog that is not fed for good would have a daemon killed that only waits for some files to be closed."""
    notifier = process.Notifier({"NOTIFY_SOCKET": str(tmp_path / "s")})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "s"))
        with no_file_left():
            notifier.notify("WATCHDOG=1")
        notifier.notify("STATUS=of \udcff.yaml")
        assert manager.recv(100) == rb"STATUS=of \udcff.yaml"


async def test_without_systemd_nothing_happens() -> None:
    notifier = process.Notifier({})
    notifier.notify("READY=1")
    assert notifier.watchdog_seconds is None


SAY = (
    "import structlog; from hpad.daemon import logs; logs.configure({level!r}, {form!r}); structlog.get_logger().{say}"
)


def said(say: str, *, level: str = "info", form: str = "json", **environ: str) -> str:
    code = SAY.format(level=level, form=form, say=say)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environ}
    )
    return done.stderr


def test_a_line_is_json_with_the_sentence_in_it() -> None:
    line = json.loads(said("info('keep 3: all is well', hpa='shop/web', scale_to=None)"))
    assert (line["level"], line["event"]) == ("info", "keep 3: all is well")
    assert (line["hpa"], line["scale_to"]) == ("shop/web", None)
    assert line["timestamp"].endswith("Z")


def test_the_journal_gets_priorities() -> None:
    assert said("warning('x')", JOURNAL_STREAM="8:1").startswith("<4>{")


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 1)])
def test_what_is_below_the_level_is_not_said(level: str, lines: int) -> None:
    assert len(said("debug('x')", level=level).splitlines()) == lines


def test_text_for_people() -> None:
    assert "keep 3" in said("info('keep 3')", form="text")


@pytest.mark.parametrize("form", ["json", "text"])
def test_a_text_that_is_none_in_utf_8_is_said_all_the_same(form: str) -> None:
    """The name of a file may be any bytes."""
    assert "of a.yaml" in said("info('of a.yaml', file='\\udcff.yaml')", form=form)
    assert said("error('\\udcff.yaml')", form=form).count("udcff") == 1
    assert "ValueError: " in said("error('x', exc_info=ValueError('\\udcff'))", form=form)


async def test_each_hangup_reloads_once_and_ends_nothing() -> None:
    reloads, go_on = 0, asyncio.Event()

    async def reload() -> None:
        nonlocal reloads
        reloads += 1
        await go_on.wait()

    async with process.reload_on_hangup(reload), asyncio.timeout(60):
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGHUP)
            while reloads < 1:  # noqa: ASYNC110  # the state of the world
                await asyncio.sleep(0.01)
            assert reloads == 1, f"the {count}. must wait for the one under way"
        go_on.set()
        while reloads < 2:  # noqa: ASYNC110  # the state of the world
            await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0.05)
    assert reloads == 2


class Manager:
    """systemd's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.setblocking(False)
        self.environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "100000"}

    def heard(self) -> list[str]:
        """What was said since the last time."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(4096).decode())
        return found

    async def hears(self, *kinds: str) -> list[str]:
        """All that is said until something of each of these kinds (`READY=`) was."""
        found = self.heard()
        async with asyncio.timeout(60):
            while not all(any(each.startswith(kind) for each in found) for kind in kinds):
                await asyncio.sleep(0.01)
                found += self.heard()
        return found


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


async def test_a_loop_that_hangs_feeds_no_watchdog(manager: Manager) -> None:
    async def ready() -> None:
        """At once."""

    notifier = process.Notifier(manager.environ)
    running = asyncio.create_task(notifier.run(SystemClock(), ready, lambda: "all\nis well " + "x" * 500))
    heard = await manager.hears("READY=1", "WATCHDOG=1", "STATUS=")
    (status,) = [line for line in heard if line.startswith("STATUS=")]
    assert status.startswith("STATUS=all is well x")
    assert len(status) < 250
    manager.heard()
    time.sleep(0.3)  # noqa: ASYNC251  # the loop hangs
    assert manager.heard() == []
    await manager.hears("WATCHDOG=1")
    running.cancel()


async def test_systemd_is_told_of_a_reload_once_ready(manager: Manager) -> None:
    notifier = process.Notifier(manager.environ)
    with notifier.reloading():
        pass
    assert manager.heard() == []
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    async def ready() -> None:
        """At once."""

    running = asyncio.create_task(process.Notifier.run(notifier, SystemClock(), ready))
    await manager.hears("READY=1")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    manager.heard()
    with notifier.reloading():
        (said,) = manager.heard()
    kind, _, moment = said.partition("\n")
    assert kind == "RELOADING=1"
    assert began <= int(moment.removeprefix("MONOTONIC_USEC=")) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert manager.heard() == ["READY=1"]
    notifier.stopping()
    with notifier.reloading():
        pass
    assert [line.partition("\n")[0] for line in manager.heard()] == ["STOPPING=1"]


async def test_a_stall_is_logged_once_with_the_stack_and_counted() -> None:
    stalls: list[float] = []
    began, limit = time.monotonic(), 0.1
    with structlog.testing.capture_logs() as logs, process.StallDetector(stalls.append, limit=limit):
        while not any("this very line" in line.get("stack", "") for line in logs) and time.monotonic() < began + 60:
            time.sleep(5 * limit)  # noqa: ASYNC251  # this very line is to be found in the log
        hung = len(stalls)
        async with asyncio.timeout(60):
            while len(stalls) == hung:  # noqa: ASYNC110  # another thread tells
                await asyncio.sleep(0.01)
    events = [line["event"] for line in logs]
    assert events[:2] == ["the event loop has stalled", "the event loop runs again"]
    assert sum("this very line" in line.get("stack", "") for line in logs) == 1
    assert __file__ not in linecache.cache, "the source of a stack is kept"
    assert limit < stalls[0] < time.monotonic() - began


async def test_a_loop_that_turns_has_not_stalled() -> None:
    with structlog.testing.capture_logs() as logs, process.StallDetector(lambda _: None, limit=60) as detector:
        await asyncio.to_thread(detector._check)
    assert logs == []


BURSTS = """
import asyncio, random, sys
from hpad.daemon import process
if sys.argv[1] == "yes":
    process.configure_allocator()
rng = random.Random(1)

def burst(sizes):
    held = [bytes(size) for size in sizes]
    return len(b"".join(held))

async def main():
    for _ in range(6):
        loads = [[rng.randrange(600, 60_000) for _ in range(rng.randrange(50, 700))] for _ in range(12)]
        await asyncio.gather(*(asyncio.to_thread(burst, sizes) for sizes in loads))
        main.kept = getattr(main, "kept", []) + [bytes(rng.randrange(600, 3000)) for _ in range(20)]

def resident():
    return int(open("/proc/self/statm").read().split()[1])

before = resident()
asyncio.run(main())
print(resident() - before)
"""


def test_memory_that_threads_have_freed_is_given_back() -> None:
    """What lists and scrapes need for a moment: freed, it is not kept for each thread of the pool."""

    def grown(said: str) -> int:
        done = subprocess.run([sys.executable, "-c", BURSTS, said], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert grown("yes") < 0.6 * grown("no")


HOLES = """
from hpad.daemon import process

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

held = [bytes(8_000) for _ in range(8_000)]
last, full = held.pop(), resident()
del held
holed = resident()
process.trim()
print(full, holed, resident())
"""


def test_trim_returns_holes_in_the_heap() -> None:
    """In a process of its own: 64 MB are freed in small pieces, of which the last one stays."""
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library has no malloc_trim")
    done = subprocess.run([sys.executable, "-c", HOLES], check=True, capture_output=True, text=True)
    full, holed, trimmed = map(int, done.stdout.split())
    assert full - holed < 10 << 20, "without trim the memory is not returned"
    assert full - trimmed > 50 << 20


def test_memory_is_trimmed_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed: list[None] = []
    monkeypatch.setattr(process, "trim", lambda: trimmed.append(None))

    async def main() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(10.5 * process.TRIM_SECONDS):
                await process.trim_regularly(virtual_time.VirtualClock())

    virtual_time.run(main())
    assert len(trimmed) == 10

"""Signals, systemd's notification socket, log lines as bytes, stalls and memory."""

import asyncio
import contextlib
import ctypes
import json
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
async def test_run_until_cancels_work_that_is_running_when_stop_is_set(seconds: float, done: bool) -> None:
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

    stopper = asyncio.create_task(end())
    assert await process.run_until(stop, work()) is done
    assert ends == [not done]
    await stopper


async def test_run_until_raises_exceptions_of_the_work() -> None:
    async def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await process.run_until(asyncio.Event(), work())


def test_systemd_receives_readiness_and_watchdog_signals(tmp_path: Path) -> None:
    states: list[str] = []

    class Notifier(process.Notifier):
        def notify(self, state: str) -> None:
            states.append(state)

    async def main() -> None:
        notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "20000000"})

        async def ready() -> None:
            await asyncio.sleep(25)

        running = asyncio.create_task(notifier.run(virtual_time.VirtualClock(), ready, lambda: "waiting"))
        await asyncio.sleep(45)
        running.cancel()

    virtual_time.run(main())
    watchdog, status = "WATCHDOG=1", "STATUS=waiting"
    assert states == [watchdog, status, watchdog, watchdog, "READY=1", watchdog, watchdog]


@contextlib.contextmanager
def no_file_left() -> Iterator[None]:
    """Inside, the process cannot open another file."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, limits[0]), limits[1]))
    descriptors: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for each in descriptors:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_free_file_descriptors_notifications_are_skipped(tmp_path: Path) -> None:
    """The watchdog signal continues later. An exception would end its task, and systemd would kill the daemon."""
    notifier = process.Notifier({"NOTIFY_SOCKET": str(tmp_path / "s")})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "s"))
        with no_file_left():
            notifier.notify("WATCHDOG=1")
        notifier.notify("STATUS=of \udcff.yaml")
        assert manager.recv(100) == rb"STATUS=of \udcff.yaml"


async def test_without_systemd_notifications_are_skipped() -> None:
    notifier = process.Notifier({})
    notifier.notify("READY=1")
    assert notifier.watchdog_seconds is None


LOG_CALL = (
    "import structlog; from hpad.daemon import logs; logs.configure({level!r}, {form!r}); structlog.get_logger().{call}"
)


def logged(call: str, *, level: str = "info", form: str = "json", **environ: str) -> str:
    """Returns the log of a process that makes this call of a logger."""
    code = LOG_CALL.format(level=level, form=form, call=call)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environ}
    )
    return done.stderr


def test_a_json_line_has_level_event_and_fields() -> None:
    line = json.loads(logged("info('keep 3: all is well', hpa='shop/web', scale_to=None)"))
    assert (line["level"], line["event"]) == ("info", "keep 3: all is well")
    assert (line["hpa"], line["scale_to"]) == ("shop/web", None)
    assert line["timestamp"].endswith("Z")


def test_lines_for_the_journal_have_priorities() -> None:
    assert logged("warning('x')", JOURNAL_STREAM="8:1").startswith("<4>{")


@pytest.mark.parametrize(("level", "lines"), [("info", 0), ("debug", 1)])
def test_lines_below_the_level_are_dropped(level: str, lines: int) -> None:
    assert len(logged("debug('x')", level=level).splitlines()) == lines


def test_the_text_form() -> None:
    assert "keep 3" in logged("info('keep 3')", form="text")


@pytest.mark.parametrize("form", ["json", "text"])
def test_text_outside_utf_8_is_escaped(form: str) -> None:
    """The name of a file may be arbitrary bytes."""
    assert "of a.yaml" in logged("info('of a.yaml', file='\\udcff.yaml')", form=form)
    assert logged("error('\\udcff.yaml')", form=form).count("udcff") == 1
    assert "ValueError: " in logged("error('x', exc_info=ValueError('\\udcff'))", form=form)


async def test_each_sighup_reloads_once() -> None:
    reloads, go_on = 0, asyncio.Event()

    async def reload() -> None:
        nonlocal reloads
        reloads += 1
        await go_on.wait()

    async with process.call_on_signal(signal.SIGHUP, reload), asyncio.timeout(60):
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGHUP)
            while reloads < 1:  # noqa: ASYNC110  # nothing signals it
                await asyncio.sleep(0.01)
            assert reloads == 1, f"signal {count} must wait for the running reload"
        go_on.set()
        while reloads < 2:  # noqa: ASYNC110  # nothing signals it
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

    def received(self) -> list[str]:
        """Returns the notifications since the previous call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(4096).decode())
        return found

    async def receive(self, *kinds: str) -> list[str]:
        """Waits for a notification of each of these kinds (`READY=`); returns all of them."""
        found = self.received()
        async with asyncio.timeout(60):
            while not all(any(each.startswith(kind) for each in found) for kind in kinds):
                await asyncio.sleep(0.01)
                found += self.received()
        return found


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.socket.close()


async def test_a_blocked_event_loop_sends_no_watchdog_signal(manager: Manager) -> None:
    async def ready() -> None:
        """Returns at once."""

    notifier = process.Notifier(manager.environ)
    running = asyncio.create_task(notifier.run(SystemClock(), ready, lambda: "all\nis well " + "x" * 500))
    received = await manager.receive("READY=1", "WATCHDOG=1", "STATUS=")
    (status,) = [line for line in received if line.startswith("STATUS=")]
    assert status.startswith("STATUS=all is well x")
    assert len(status) < 250
    manager.received()
    time.sleep(0.3)  # noqa: ASYNC251  # the loop hangs
    assert manager.received() == []
    await manager.receive("WATCHDOG=1")
    running.cancel()


async def test_a_reload_is_notified_only_while_ready(manager: Manager) -> None:
    notifier = process.Notifier(manager.environ)
    with notifier.reloading():
        pass
    assert manager.received() == []
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    async def ready() -> None:
        """Returns at once."""

    running = asyncio.create_task(notifier.run(SystemClock(), ready, lambda: "ready"))
    await manager.receive("READY=1")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    manager.received()
    with notifier.reloading():
        (notification,) = manager.received()
    kind, _, moment = notification.partition("\n")
    assert kind == "RELOADING=1"
    assert began <= int(moment.removeprefix("MONOTONIC_USEC=")) <= time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    assert manager.received() == ["READY=1"]
    notifier.stopping()
    with notifier.reloading():
        pass
    assert [line.partition("\n")[0] for line in manager.received()] == ["STOPPING=1"]


def test_a_busy_thread_gives_way_before_a_millisecond_has_passed() -> None:
    before = sys.getswitchinterval()
    try:
        process.switch_threads_quickly()
        assert sys.getswitchinterval() < 0.001
    finally:
        sys.setswitchinterval(before)


async def test_a_stall_is_logged_once_with_the_stack_and_counted() -> None:
    stalls: list[float] = []
    began, limit = time.monotonic(), 0.1
    with structlog.testing.capture_logs() as logs, process.StallDetector(stalls.append, limit=limit):
        while not any("this very line" in line.get("stack", "") for line in logs) and time.monotonic() < began + 60:
            time.sleep(5 * limit)  # noqa: ASYNC251  # this very line is to be found in the log
        hung = len(stalls)
        async with asyncio.timeout(60):
            while len(stalls) == hung:  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.01)
    events = [line["event"] for line in logs]
    assert events[:2] == ["the event loop has stalled", "the event loop runs again"]
    assert sum("this very line" in line.get("stack", "") for line in logs) == 1
    assert limit < stalls[0] < time.monotonic() - began


async def test_a_running_loop_has_not_stalled() -> None:
    """Several checks pass while the loop runs callbacks.

    A busy machine may not run the loop for a moment, which is a stall: such a round says nothing, and is repeated.
    """
    now, limit, rounds = asyncio.get_running_loop().time, 0.2, 0
    async with asyncio.timeout(240):
        while True:
            rounds += 1
            stalls: list[float] = []
            longest, before = 0.0, now()
            with process.StallDetector(stalls.append, limit=limit):
                for _ in range(100):
                    await asyncio.sleep(0.01)
                    longest, before = max(longest, now() - before), now()
            if longest < limit / 2:
                break
    assert stalls == [], f"in round {rounds}, whose longest pause was {longest:.3f} s"


BURSTS = """
import asyncio, random, sys
from hpad.daemon import process
if sys.argv[1] == "yes":
    process.configure_allocator()
rng = random.Random(1)

def burst(sizes):
    blocks = [bytes(size) for size in sizes]
    return len(b"".join(blocks))

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


def test_memory_freed_by_threads_returns_to_the_system() -> None:
    """Memory of lists and scrapes, which the C library would keep per thread of the pool."""

    def grown(configured: str) -> int:
        done = subprocess.run([sys.executable, "-c", BURSTS, configured], capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert grown("yes") < 0.6 * grown("no")


HOLES = """
from hpad.daemon import process

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

blocks = [bytes(8_000) for _ in range(8_000)]
last, full = blocks.pop(), resident()
del blocks
holed = resident()
process.trim()
print(full, holed, resident())
"""


def test_trim_returns_holes_in_the_heap() -> None:
    """In a process of its own: 64 MB are freed in small blocks, except the last one."""
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

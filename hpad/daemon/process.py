"""The process around the daemon: event loop, memory allocator, signals, systemd notifications, stall detection."""

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import structlog

from hpad import clock as clocks
from hpad.clock import Clock

STALL_SECONDS = 0.5
SWITCH_SECONDS = 0.0005
TRIM_SECONDS = 60.0
_STATUS_SECONDS = 5.0
_STATUS_LENGTH = 200
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h of glibc
_ARENAS = 2
_LARGE_BYTES = 1 << 19
"""Blocks from this size on are mapped. More than the 256 KiB that uvloop allocates for each read of a TLS connection:

mapping such a block takes three system calls and a page fault for each answer and each piece of a watch.
"""


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Returns uvloop's factory if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new_loop


def configure_allocator() -> None:
    """Makes the C library return freed memory to the system, where it has mallopt(3).

    By default each thread has a heap of its own, and the size from which blocks are mapped separately grows with the
    largest block freed. Lists, scrapes and pages of thousands of HPAs then leave holes, and the process
    grows for hours.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return
    options = {_M_ARENA_MAX: _ARENAS, _M_MMAP_THRESHOLD: _LARGE_BYTES, _M_TRIM_THRESHOLD: 2 * _LARGE_BYTES}
    for parameter, value in options.items():
        mallopt(parameter, value)


def trim() -> None:
    """Returns free memory to the system, where the C library has malloc_trim(3). Blocks."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


async def trim_regularly(clock: Clock) -> None:
    """Calls `trim` in a thread every TRIM_SECONDS.

    By itself the C library returns only the end of its heap (mallopt(3), M_TRIM_THRESHOLD). Each burst, such as HPAs
    that wait for a source, would leave holes in it.
    """
    while True:
        await clock.sleep(TRIM_SECONDS)
        await asyncio.to_thread(trim)


@asynccontextmanager
async def stop_on_signals() -> AsyncIterator[asyncio.Event]:
    """Yields an event that SIGTERM or SIGINT sets. A second signal ends the process at once."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def on_signal(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)  # back to the default action, for a second signal

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def run_until(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Runs `work`, cancels it when `stop` is set, and returns whether it finished. Raises its exceptions."""
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.wait({working, stopping})
    if working.cancelled():
        return False
    working.result()
    return True


@asynccontextmanager
async def running(work: Coroutine[Any, Any, object], name: str) -> AsyncIterator[None]:
    """Runs `work` as a task, and cancels it at the end."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def call_on_signal(number: signal.Signals, call: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Calls `call` for each such signal, one at a time. Several signals during a call count as one.

    The signal is ignored afterwards.
    """
    loop, requested = asyncio.get_running_loop(), asyncio.Event()

    async def call_when_requested() -> None:
        while True:
            await requested.wait()
            requested.clear()
            await call()

    loop.add_signal_handler(number, requested.set)
    async with running(call_when_requested(), f"on {number.name}"):
        try:
            yield
        finally:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)  # the default action would end the process before it has drained


class Notifier:
    """systemd's notification socket (sd_notify(3)). Does nothing if there is none."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(interval) / 1e6 / 2 if interval.isdigit() and self._address else None
        self._ready = False

    def notify(self, state: str) -> None:
        """Sends a state such as "READY=1". Ignores errors, also the lack of file descriptors."""
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel,
        ):
            channel.sendto(state.encode("utf-8", "backslashreplace"), self._address)

    async def run(self, clock: Clock, ready: Callable[[], Awaitable[object]], status: Callable[[], str]) -> None:
        """Sends READY=1 after `ready`, and the watchdog signal and the sentence of `status` regularly."""
        if not self._address:
            return
        async with asyncio.TaskGroup() as tasks:
            # A task, not a thread: if the loop hangs, the signal stops and systemd restarts the process.
            tasks.create_task(self._send_watchdog(clock))
            tasks.create_task(self._send_status(clock, status))
            await ready()
            self.notify("READY=1")
            self._ready = True

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Reports the service as reloading while inside, unless it is not ready yet."""
        if self._ready:
            self.notify(f"RELOADING=1\nMONOTONIC_USEC={clocks.monotonic_usec()}")
        try:
            yield
        finally:
            if self._ready:
                self.notify("READY=1")

    def stopping(self) -> None:
        """Reports the service as stopping. Later reloads are not reported."""
        self._ready = False
        self.notify("STOPPING=1\nSTATUS=Stopping: running reconciles finish")

    async def _send_watchdog(self, clock: Clock) -> None:
        while self.watchdog_seconds is not None:
            self.notify("WATCHDOG=1")
            await clock.sleep(self.watchdog_seconds)

    async def _send_status(self, clock: Clock, status: Callable[[], str]) -> None:
        sent = ""
        while True:
            try:
                sentence = " ".join(status().split())[:_STATUS_LENGTH]
            except Exception as error:  # noqa: BLE001  # a bug in `status` must not stop the watchdog signal
                sentence = f"No status: {type(error).__name__}"
            if sentence != sent:
                sent = sentence
                self.notify(f"STATUS={sentence}")
            await clock.sleep(_STATUS_SECONDS)


def keep_all() -> None:
    """Collects once, and excludes the objects that exist now from all later searches. Blocks.

    They are still freed when their last reference goes. Called after start-up: modules and caches stay.
    """
    gc.collect()
    gc.freeze()


def switch_threads_quickly() -> None:
    """Lets a thread that runs Python code give way to the event loop after `SWITCH_SECONDS`, instead of 5 ms.

    The loop may have to wait for it each time that it has read or written something: while a thread rendered the series
    of 10,000 HPAs, events waited up to a quarter of a second.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


class StallDetector:
    """Detects an event loop that is blocked, from a thread of its own.

    If the loop does not run a callback within `limit` seconds, the stack of its thread is logged once. When the loop
    runs again, it calls `observe` with the seconds that it was blocked. Use as a context manager inside the running
    loop.
    """

    def __init__(self, observe: Callable[[float], None], *, limit: float = STALL_SECONDS) -> None:
        self._observe = observe
        self._limit = limit
        self._clock = clocks.SystemClock()
        self._ended = threading.Event()
        self._log = structlog.get_logger("hpad.daemon.process")

    def __enter__(self) -> "StallDetector":
        self._loop, self._watched = asyncio.get_running_loop(), threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="stall detector", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def _watch(self) -> None:
        try:
            while not self._ended.wait(self._limit):
                self._check()
        except RuntimeError:
            return  # the loop has been closed

    def _check(self) -> None:
        alive, began = threading.Event(), self._clock.monotonic()
        self._loop.call_soon_threadsafe(alive.set)
        if alive.wait(self._limit):
            return
        # Files, lines and source, without values of variables, which may be secrets.
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        self._log.error("the event loop has stalled", seconds=self._limit, stack=stack)
        while not alive.wait(self._limit):
            if self._ended.is_set():
                return
        seconds = self._clock.monotonic() - began
        self._log.warning("the event loop runs again", seconds=round(seconds, 3))
        self._loop.call_soon_threadsafe(self._observe, seconds)

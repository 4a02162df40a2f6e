"""The process around the daemon: its event loop, its signals, and what it tells systemd."""

import asyncio
import contextlib
import ctypes
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
from hpad.daemon import logs

STALL_SECONDS = 0.5
TRIM_SECONDS = 60.0
_STATUS_SECONDS = 5.0
_STATUS_LENGTH = 200
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_ARENAS = 2
_LARGE_BYTES = 1 << 18


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's loop where it is installed, else asyncio's own."""
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
    options = {_M_ARENA_MAX: _ARENAS, _M_MMAP_THRESHOLD: _LARGE_BYTES, _M_TRIM_THRESHOLD: _LARGE_BYTES}
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
    """An event that SIGTERM or SIGINT sets; a second signal of either kind ends the process the hard way."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()

    def first(number: int) -> None:
        stop.set()
        loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, first, number)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, object]) -> bool:
    """Whether the work was done: it is cancelled as soon as `stop` is set. Raises what it raises."""
    doing, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({doing, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        doing.cancel()
        stopping.cancel()
        await asyncio.wait({doing, stopping})
    if doing.cancelled():
        return False
    doing.result()
    return True


@asynccontextmanager
async def reload_on_hangup(reload: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """Call `reload` for each SIGHUP, one at a time; several that come meanwhile count as one."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()

    async def obey() -> None:
        while True:
            await asked.wait()
            asked.clear()
            await reload()

    loop.add_signal_handler(signal.SIGHUP, asked.set)
    task = asyncio.create_task(obey(), name="reload on hangup")
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the default would end the process before it has drained
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Notifier:
    """systemd's notification socket (sd_notify(3)); silent where there is none."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(interval) / 1e6 / 2 if interval.isdigit() and self._address else None
        self._ready = False
        self._status = ""

    def tell(self, state: str) -> None:
        """Send e.g. "READY=1" or "STOPPING=1"; what systemd does not take is lost, as is what finds no file left."""
        if not self._address:
            return
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel,
        ):
            channel.sendto(state.encode("utf-8", "backslashreplace"), self._address)

    async def run(
        self, clock: Clock, ready: Callable[[], Awaitable[None]], status: Callable[[], str] | None = None
    ) -> None:
        """Say READY once it is so; feed the watchdog, and say the one sentence of `status`, for as long as the loop
        turns: nothing but the loop does either, so that one that hangs is noticed."""
        keeping = [asyncio.create_task(self._feed(clock))]
        if status is not None and self._address:
            keeping.append(asyncio.create_task(self._describe(clock, status)))
        try:
            await ready()
            self.tell("READY=1")
            self._ready = True
            await asyncio.gather(*keeping)
        finally:
            for task in keeping:
                task.cancel()

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """While inside, systemd counts the service as reloading (a service that is not ready yet stays just that)."""
        if self._ready:
            self.tell(f"RELOADING=1\nMONOTONIC_USEC={clocks.monotonic_usec()}")
        try:
            yield
        finally:
            if self._ready:
                self.tell("READY=1")

    def stopping(self) -> None:
        """From now on the service is stopping, whatever else is said."""
        self._ready = False
        self.tell("STOPPING=1\nSTATUS=Stopping: reconciles under way come to their end")

    async def _feed(self, clock: Clock) -> None:
        while self.watchdog_seconds is not None:
            self.tell("WATCHDOG=1")
            await clock.sleep(self.watchdog_seconds)

    async def _describe(self, clock: Clock, status: Callable[[], str]) -> None:
        while True:
            try:
                sentence = " ".join(status().split())[:_STATUS_LENGTH]
            except Exception as error:  # noqa: BLE001  # it must not keep the watchdog from its food
                sentence = f"No status: {type(error).__name__}"
            if sentence != self._status:
                self._status = sentence
                self.tell(f"STATUS={sentence}")
            await clock.sleep(_STATUS_SECONDS)


class StallDetector:
    """A thread that asks the loop, again and again, for a sign of life. When none comes for `limit` seconds, it logs
    once what the loop's thread is doing; when the loop turns again, `observe` is told how many seconds it did not.

    Use as a context manager inside the running loop; `observe` is called on the loop.
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
                self._ask()
        except RuntimeError:
            return  # the loop has been closed

    def _ask(self) -> None:
        alive, asked = threading.Event(), self._clock.monotonic()
        self._loop.call_soon_threadsafe(alive.set)
        if alive.wait(self._limit):
            return
        self._log.error("the event loop has stalled", seconds=self._limit, stack=self._stack())
        while not alive.wait(self._limit):
            if self._ended.is_set():
                return
        seconds = self._clock.monotonic() - asked
        self._log.warning("the event loop turns again", seconds=round(seconds, 3))
        self._loop.call_soon_threadsafe(self._observe, seconds)

    def _stack(self) -> str:
        """Files, lines and their source; no values of variables, which may be secrets."""
        frame = sys._current_frames().get(self._watched)
        with logs.lent():
            return "".join(traceback.format_stack(frame)) if frame is not None else ""

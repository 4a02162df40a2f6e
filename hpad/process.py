"""The process around the daemon: its event loop, its signals, and what it tells systemd."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

from hpad.clock import Clock


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """uvloop's loop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    new_loop: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return new_loop


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


class Notifier:
    """systemd's notification socket (sd_notify(3)); silent where there is none."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        address = environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        interval = environ.get("WATCHDOG_USEC", "")
        self.watchdog_seconds = int(interval) / 1e6 / 2 if interval.isdigit() and self._address else None

    def tell(self, state: str) -> None:
        """Send e.g. "READY=1" or "STOPPING=1"; what systemd does not take is lost."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as channel:
            try:
                channel.sendto(state.encode(), self._address)
            except OSError:
                return

    async def run(self, clock: Clock, ready: Callable[[], Awaitable[None]]) -> None:
        """Say READY once it is so, then feed the watchdog, for as long as the loop turns."""
        feeding = asyncio.create_task(self._feed(clock))
        try:
            await ready()
            self.tell("READY=1")
            await feeding
        finally:
            feeding.cancel()

    async def _feed(self, clock: Clock) -> None:
        while self.watchdog_seconds is not None:
            self.tell("WATCHDOG=1")
            await clock.sleep(self.watchdog_seconds)

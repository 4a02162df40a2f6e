"""The only file that reads a clock or sleeps.

Everything that needs time takes a `Clock`; pure code gets `now` as an argument instead.
"""

import asyncio
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is measured, and waiting."""

    def now(self) -> datetime:
        """The wall clock: an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean something."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for that many seconds (none for zero or less, but other tasks get their turn)."""
        ...


class Moment(NamedTuple):
    """A moment by both clocks: the wall's, and seconds of the monotonic one."""

    wall: datetime
    monotonic: float

    @classmethod
    def now(cls, clock: Clock) -> "Moment":
        return cls(clock.now(), clock.monotonic())


def monotonic_usec() -> int:
    """CLOCK_MONOTONIC in microseconds, as systemd wants to be told; a loop's own time is that of its last waking."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def _read_boot() -> str:
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    except (OSError, ValueError):
        name = ""
    return (name or uuid.uuid4().hex)[:16]


_BOOT = _read_boot()


def boot() -> str:
    """Names this boot of this machine: monotonic times can be compared within it, also those of two processes.

    Where the machine does not tell (only Linux does) each process has a name of its own.
    """
    return _BOOT


class SystemClock:
    """The machine's clock; `monotonic` is the running loop's own, so that virtual-time loops rule both."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))

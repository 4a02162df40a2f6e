"""The only module that reads a clock or sleeps; also times as microseconds.

Objects that need time take a `Clock`; pure functions take `now` as an argument.
"""

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """Returns a time as microseconds since 1970."""
    return (moment - EPOCH) // MICROSECOND  # an integer: a float of seconds has no exact microseconds


def moment_of(micros: int) -> datetime:
    """Returns the time of microseconds since 1970. Raises OverflowError for one that datetime does not have."""
    return EPOCH + timedelta(microseconds=micros)


class Clock(Protocol):
    """Wall time for timestamps, monotonic time for durations, and sleep."""

    def now(self) -> datetime:
        """Returns the wall time as an aware datetime in UTC."""
        ...

    def monotonic(self) -> float:
        """Returns seconds that never decrease; only differences have a meaning."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleeps for that many seconds. Zero or less lets other tasks run."""
        ...


def monotonic_usec() -> int:
    """Returns CLOCK_MONOTONIC in microseconds, as systemd expects (sd_notify(3)); a loop's time may be older."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000


def _read_boot() -> str:
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip().replace("-", "")
    except (OSError, ValueError):
        name = ""
    return (name or uuid.uuid4().hex)[:16]


_BOOT = _read_boot()  # at import: to read a file in the event loop would block it


def boot() -> str:
    """Returns an identifier of this boot, within which monotonic times of different processes can be compared.

    Without Linux's boot_id it identifies only this process.
    """
    return _BOOT


class Moment(msgspec.Struct, frozen=True, gc=False):
    """One moment as wall time and as monotonic seconds, which are comparable within one boot of a machine."""

    wall: datetime
    monotonic: float
    boot: str

    @classmethod
    def now(cls, clock: Clock) -> "Moment":
        return cls(clock.now(), clock.monotonic(), boot())


class SystemClock:
    """The system's clock. `monotonic` is the running loop's time, so that tests with virtual time control it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        import asyncio  # imported late: the engine uses this module, and `hpad check` must start without asyncio

        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio

        await asyncio.sleep(max(0.0, seconds))


class LoopClock(SystemClock):
    """The system's clock for the coroutines of one event loop, which ask it thirty times in each reconcile.

    `monotonic` does not look for the running loop, which takes a system call each time.
    """

    def __init__(self, time_of_loop: Callable[[], float]) -> None:
        self.monotonic = time_of_loop  # type: ignore[method-assign]

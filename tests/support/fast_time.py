"""An event loop whose time runs ten times as fast as real time; sockets work as usual."""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from hpad.clock import SystemClock

TIMES = 10
_START = datetime(2026, 1, 1, tzinfo=UTC)


class _Selector(selectors.DefaultSelector):  # type: ignore[misc,valid-type]  # its base class depends on the system
    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout if timeout is None else timeout / TIMES)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__(_Selector())

    def time(self) -> float:
        return super().time() * TIMES


class Clock(SystemClock):
    """A clock whose wall time is also that of the loop."""

    def now(self) -> datetime:
        return _START + timedelta(seconds=self.monotonic())


def run(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine to its end on such a loop."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(main)

"""Reconciles that took too long, told together: under overload there may be thousands of them in a period."""

import asyncio
from typing import Any, Final

from hpad.api.metadata import Key

NAMED: Final = 5


class Overdue:
    """One line of the log for all that are noted within a period of the first; `log` is whose line it is."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._count = 0
        self._some: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def note(self, key: Key, period: float) -> None:
        """The HPA's reconcile was given up; said within `period` seconds."""
        self._count += 1
        if len(self._some) < NAMED:
            self._some.append(str(key))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(period, self.tell)

    def tell(self) -> None:
        """Say now what has been noted, if anything has."""
        if self._timer is None:
            return
        self._timer.cancel()
        count, some = self._count, self._some
        self._count, self._some, self._timer = 0, [], None
        self._log.error("reconciles took too long and were given up", reconciles=count, some=some)

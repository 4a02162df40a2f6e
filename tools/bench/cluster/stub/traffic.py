"""Counts what the stub server was asked: requests, those of the busiest second, and the written statuses."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any


class Traffic:
    """Requests since the start by verb and resource; all else since `mark`.

    `written` and `measured` are the numbers of the HPAs whose status was written, and written with valid metrics;
    `recount` clears them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.requests: Counter[str] = Counter()
        self.written: set[int] = set()
        self.measured: set[int] = set()
        self._clock = clock
        self._second = int(clock())
        self._current: Counter[str] = Counter()
        self._busiest: Counter[str] = Counter()
        self._wrote: dict[int, float] = {}
        self._longest = 0.0

    def mark(self) -> None:
        """Begins to look for the busiest second and the longest time without a status, and to count HPAs."""
        self.recount()
        self._current, self._busiest, self._longest = Counter(), Counter(), 0.0

    def recount(self) -> None:
        """Begins to count HPAs whose status is written."""
        self.written.clear()
        self.measured.clear()

    def asked(self, name: str) -> None:
        second = int(self._clock())
        if second != self._second:
            self._end_second(second)
        self.requests[name] += 1
        self._current[name] += 1

    def wrote(self, number: int, *, measured: bool) -> None:
        """Notes that the status of an HPA was written; `measured`: with metrics that could be read."""
        now = self._clock()
        self._longest = max(self._longest, now - self._wrote.get(number, now))
        self._wrote[number] = now
        self.written.add(number)
        if measured:
            self.measured.add(number)

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops HPAs that were deleted."""
        for number in numbers:
            self._wrote.pop(number, None)

    def counts(self) -> dict[str, Any]:
        """Returns all counts. `gap`: the longest time that an HPA had the same status, in seconds, also until now."""
        self._end_second(int(self._clock()))
        open_gap = self._clock() - min(self._wrote.values(), default=self._clock())
        return {
            "requests": dict(self.requests),
            "reconciled": len(self.written),
            "measured": len(self.measured),
            "busiest": dict(self._busiest.most_common()),
            "gap": max(self._longest, open_gap),
        }

    def _end_second(self, second: int) -> None:
        """Compares the requests of the current second with the busiest one; begins another if that one is over."""
        if self._current.total() > self._busiest.total():
            self._busiest = self._current.copy()
        if second != self._second:
            self._second, self._current = second, Counter()

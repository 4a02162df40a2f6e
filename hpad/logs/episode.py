"""A trouble that many calls run into while it lasts, such as an outage: said when it begins and when it is over."""

from collections.abc import Hashable
from typing import Any, Final

from hpad.clock import Clock

AGAIN_SECONDS: Final = 600.0
"""One that comes and goes is said once in this time."""


class Episode:
    """One sort of trouble. `log` is whose lines they are; `begins`, of that `level`, and `ends` are the two messages.

    The first line has the fields of the call that met the trouble first; the last one says how often it was met
    (`times`), also while it came and went unsaid. Where the trouble may be of one thing only, such as one HPA, `of`
    names it: the trouble ends when it is over for all of them.
    """

    def __init__(self, log: Any, clock: Clock, begins: str, ends: str, *, level: str = "warning") -> None:
        self._log = log
        self._clock = clock
        self._begins = begins
        self._ends = ends
        self._level = level
        self._met: set[Hashable] = set()
        self._said_at: float | None = None
        self._told = False
        self._times = 0

    def struck(self, *, of: Hashable = None, **fields: Any) -> None:
        """It was met; said where it begins, unless it was said a short while ago."""
        self._times += 1
        known = of in self._met
        self._met.add(of)
        if known and self._told:
            return
        now = self._clock.monotonic()
        if self._said_at is None or now - self._said_at >= AGAIN_SECONDS:
            self._said_at, self._told = now, True
            getattr(self._log, self._level)(self._begins, **fields)

    def over(self, *, of: Hashable = None) -> None:
        """It is not met any more, by this one; said if its begin was."""
        if of not in self._met:
            return
        self._met.remove(of)
        if self._told and not self._met:
            self._log.info(self._ends, times=self._times)
            self._told, self._times = False, 0

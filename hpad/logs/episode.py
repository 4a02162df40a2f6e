"""A trouble that many calls run into while it lasts, such as an outage: said when it begins and when it is over."""

from typing import Any, Final

from hpad.clock import Clock

AGAIN_SECONDS: Final = 600.0
"""One that comes and goes is said once in this time."""


class Episode:
    """One sort of trouble. `log` is whose lines they are; `begins`, of that `level`, and `ends` are the two messages.

    The first line has the fields of the call that met the trouble first; the last one says how often it was met
    (`times`), also while it came and went unsaid.
    """

    def __init__(self, log: Any, clock: Clock, begins: str, ends: str, *, level: str = "warning") -> None:
        self._log = log
        self._clock = clock
        self._begins = begins
        self._ends = ends
        self._level = level
        self._lasts = False
        self._said_at: float | None = None
        self._told = False
        self._times = 0

    def struck(self, **fields: Any) -> None:
        """It was met; said where it begins, unless it was said a short while ago."""
        self._times += 1
        now = self._clock.monotonic()
        if self._lasts and self._told:
            return
        self._lasts = True
        if self._said_at is None or now - self._said_at >= AGAIN_SECONDS:
            self._said_at, self._told = now, True
            getattr(self._log, self._level)(self._begins, **fields)

    def over(self) -> None:
        """It is not met any more; said if its begin was."""
        if self._lasts and self._told:
            self._log.info(self._ends, times=self._times)
            self._told, self._times = False, 0
        self._lasts = False

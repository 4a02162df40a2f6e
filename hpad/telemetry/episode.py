"""Logs a problem that many calls meet, such as an outage: once when it begins and once when it has ended."""

from collections.abc import Hashable
from typing import Any, Final

from hpad.clock import Clock

AGAIN_SECONDS: Final = 600.0
"""A problem that comes and goes is logged once in this time."""
MOST_SUBJECTS: Final = 1 << 14
"""Number of subjects that have a record of their own."""
_MOST_CAUSES: Final = 8
"""Number of causes remembered for one subject."""


class Episode:
    """One kind of problem; `begins`, logged at `level`, and `ends`, logged at info, are the two messages.

    The first line has the fields of the call that met the problem first. The last line says how often the problem
    occurred (`times`), including occurrences that were not logged. A problem that belongs to one thing only, such as
    one HPA, names that thing as `subject`: the problem has ended when it has ended for all subjects.
    """

    def __init__(self, log: Any, clock: Clock, begins: str, ends: str, *, level: str = "warning") -> None:
        self._log = log
        self._clock = clock
        self._begins = begins
        self._ends = ends
        self._level = level
        self._affected: set[Hashable] = set()
        self._logged_at: float | None = None
        self._is_logged = False
        self._times = 0

    def occurred(self, *, subject: Hashable = None, **fields: Any) -> None:
        """Counts an occurrence; logs the begin, unless one was logged less than AGAIN_SECONDS ago."""
        self._times += 1
        known = subject in self._affected
        self._affected.add(subject)
        if known and self._is_logged:
            return
        now = self._clock.monotonic()
        if self._logged_at is None or now - self._logged_at >= AGAIN_SECONDS:
            self._logged_at, self._is_logged = now, True
            getattr(self._log, self._level)(self._begins, **fields)

    def ended(self, *, subject: Hashable = None, **fields: Any) -> None:
        """Ends the problem of `subject`; logs the end of the last one, with `fields`, if the begin was logged."""
        if subject not in self._affected:
            return
        self._affected.remove(subject)
        if self._is_logged and not self._affected:
            self._log.info(self._ends, times=self._times, **fields)
            self._is_logged, self._times = False, 0


class Episodes:
    """One kind of problem that many subjects (HPAs, objects, namespaces) have independently, each for its own causes.

    Each subject gets a line when its problem begins, a line for each further cause, and a line at the end. A cause that
    comes and goes is logged once in AGAIN_SECONDS, and at most _MOST_CAUSES causes of a subject are logged in that
    time. Subjects beyond `most` share one record: each of its causes is logged once in AGAIN_SECONDS, and no end.
    """

    def __init__(
        self, log: Any, clock: Clock, begins: str, ends: str, *, level: str = "warning", most: int = MOST_SUBJECTS
    ) -> None:
        self._log = log
        self._clock = clock
        self._begins = begins
        self._ends = ends
        self._level = level
        self._most = most
        self._records: dict[Hashable, _Record] = {}
        self._shared = _Record()

    def __len__(self) -> int:
        """Returns the number of subjects with a record."""
        return len(self._records)

    def occurred(self, *, subject: Hashable, cause: Hashable, **fields: Any) -> None:
        """Counts an occurrence; logs it, with `fields`, if the subject's problem or the cause is new."""
        now = self._clock.monotonic()
        if self._record(subject, now).is_news(cause, now):
            getattr(self._log, self._level)(self._begins, **fields)

    def ended(self, *, subject: Hashable, **fields: Any) -> None:
        """Ends the subject's problem; logs the number of occurrences (`times`), if the begin was logged."""
        record = self._records.get(subject)
        if record is None or record.began is None:
            return
        times = record.end()
        if times:
            self._log.info(self._ends, times=times, **fields)

    def forget(self, subject: Hashable) -> None:
        """Drops the record of a subject that does not exist any more."""
        self._records.pop(subject, None)

    def _record(self, subject: Hashable, now: float) -> "_Record":
        if subject not in self._records and len(self._records) >= self._most:
            recent = {each: record for each, record in self._records.items() if now - record.at < AGAIN_SECONDS}
            self._records = recent
            if len(recent) >= self._most:
                self._shared.began = now  # a new begin each time: the subject may be another one
                return self._shared
        return self._records.setdefault(subject, _Record())


class _Record:
    """The problem of one subject.

    `began`: when it began (None: it has ended); `at`: the last occurrence; `times`: the number of occurrences;
    `logged`: when each cause was logged last. Times are in seconds of a monotonic clock.
    """

    __slots__ = ("at", "began", "logged", "times")

    def __init__(self) -> None:
        self.began: float | None = None
        self.at = 0.0
        self.times = 0
        self.logged: dict[int, float] = {}

    def is_news(self, cause: Hashable, now: float) -> bool:
        """Counts an occurrence and returns whether to log it."""
        if self.began is None:
            self.began = now
        self.at = now
        self.times += 1
        cause = hash(cause)  # a cause may be a text of any length
        at = self.logged.get(cause)
        # A cause that was logged since the problem began is not news, however long ago that was.
        if at is not None and (now - at < AGAIN_SECONDS or at >= self.began):
            return False
        if at is None and len(self.logged) >= _MOST_CAUSES:
            oldest = min(self.logged, key=self.logged.__getitem__)
            # Without this limit a cause that is different each time, such as a resourceVersion, would fill the log.
            if now - self.logged[oldest] < AGAIN_SECONDS:
                return False
            del self.logged[oldest]
        self.logged[cause] = now
        return True

    def end(self) -> int:
        """Ends the problem; returns how often it occurred, 0 if its begin was not logged."""
        began, times = self.began, self.times
        self.began = None
        if began is None or not any(at >= began for at in self.logged.values()):
            return 0
        self.times = 0
        return times

"""A trouble that many calls run into while it lasts, such as an outage: said when it begins and when it is over."""

from collections.abc import Hashable
from typing import Any, Final

from hpad.clock import Clock

AGAIN_SECONDS: Final = 600.0
"""One that comes and goes is said once in this time."""
MOST_APART: Final = 1 << 14
"""So many things in trouble are told apart."""
_MOST_CAUSES: Final = 8
"""So many causes of a thing's trouble are remembered."""


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


class Episodes:
    """One sort of trouble that many things (HPAs, objects, namespaces) run into, each on its own and for its own cause.

    A line begins the trouble of each thing, one more tells each further cause, and a line ends it. A cause that comes
    and goes is said once in AGAIN_SECONDS, and of a thing no more than _MOST_CAUSES are said in that time. `most`
    things are told apart: others share one record, of which each cause is said once in AGAIN_SECONDS, and no end.
    """

    def __init__(
        self, log: Any, clock: Clock, begins: str, ends: str, *, level: str = "warning", most: int = MOST_APART
    ) -> None:
        self._log = log
        self._clock = clock
        self._begins = begins
        self._ends = ends
        self._level = level
        self._most = most
        self._troubles: dict[Hashable, _Trouble] = {}
        self._others = _Trouble()

    def __len__(self) -> int:
        """How many things are remembered."""
        return len(self._troubles)

    def struck(self, *, of: Hashable, cause: Hashable, **fields: Any) -> None:
        """The thing met the trouble; said where that, or the cause, is new. The line has the `fields`."""
        now = self._clock.monotonic()
        if self._trouble(of, now).met(cause, now):
            getattr(self._log, self._level)(self._begins, **fields)

    def over(self, *, of: Hashable, **fields: Any) -> None:
        """The thing is well; said, with how often (`times`) it was not, if the begin was."""
        trouble = self._troubles.get(of)
        if trouble is None or trouble.began is None:
            return
        times = trouble.over()
        if times:
            self._log.info(self._ends, times=times, **fields)

    def forget(self, of: Hashable) -> None:
        """The thing is gone."""
        self._troubles.pop(of, None)

    def _trouble(self, of: Hashable, now: float) -> "_Trouble":
        if of not in self._troubles and len(self._troubles) >= self._most:
            recent = {thing: each for thing, each in self._troubles.items() if now - each.at < AGAIN_SECONDS}
            self._troubles = recent
            if len(recent) >= self._most:
                self._others.began = now  # it begins each time: it may be another thing's
                return self._others
        return self._troubles.setdefault(of, _Trouble())


class _Trouble:
    """What one thing ran into: since when (None: it is over), when last, how often, and when each cause was last said.

    Times are in seconds of a monotonic clock.
    """

    __slots__ = ("at", "began", "said", "times")

    def __init__(self) -> None:
        self.began: float | None = None
        self.at = 0.0
        self.times = 0
        self.said: dict[Hashable, float] = {}

    def met(self, cause: Hashable, now: float) -> bool:
        """Whether this is to be said."""
        if self.began is None:
            self.began = now
        self.at = now
        self.times += 1
        at = self.said.get(cause)
        if at is not None and (now - at < AGAIN_SECONDS or at >= self.began):
            return False
        if at is None and len(self.said) >= _MOST_CAUSES:
            oldest = min(self.said, key=self.said.__getitem__)
            if now - self.said[oldest] < AGAIN_SECONDS:
                return False
            del self.said[oldest]
        self.said[cause] = now
        return True

    def over(self) -> int:
        """Ends it; how often it was met, 0 where nothing was said of it."""
        began, times = self.began, self.times
        self.began = None
        if began is None or not any(at >= began for at in self.said.values()):
            return 0
        self.times = 0
        return times

"""When the next call may be made: not more than so many a second, and not all at once where calls last."""

_WEIGHT = 0.5


class Pace:
    """A bucket of tokens, one a call, that fills at the `rate`: calls a second, and as many at once after a pause of a
    second. Times are a monotonic clock's."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate)
        self._held = self._most
        self._at = 0.0

    def take(self, now: float) -> float:
        """0 if a call may be made now (and is counted), else the seconds until one may be."""
        self._held = min(self._most, self._held + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._held >= 1.0:
            self._held -= 1.0
            return 0.0
        return (1.0 - self._held) / self._rate


class Stagger:
    """Calls that last go out evenly over the time that one takes, `concurrency` of them.

    HPAs ask all over the period. Were all calls made as soon as somebody asks, whoever comes next would wait for one to
    end, and then for another: longer than the `budget`, which is what anybody has, where a call takes more than half of
    it. Quicker calls are never held back. Seconds, and times of a monotonic clock.
    """

    def __init__(self, concurrency: int, budget: float) -> None:
        self._concurrency = concurrency
        self._quick = budget / 2
        self._lasts = 0.0
        self._departed = 0.0

    def lasted(self, seconds: float) -> None:
        """A call has ended that something came of in time."""
        self._lasts += _WEIGHT * (seconds - self._lasts)

    def departed(self, now: float) -> None:
        """A call was made."""
        self._departed = now

    def wait(self, now: float) -> float:
        """The seconds until the next one, 0 for none, while others are under way."""
        if self._lasts <= self._quick:
            return 0.0
        return max(0.0, self._departed + self._lasts / self._concurrency - now)

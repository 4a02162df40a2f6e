"""How many calls a second: a bucket of tokens, one a call, that fills at the rate."""


class Pace:
    """`rate` calls a second, and as many at once after a pause of a second. Times are a monotonic clock's."""

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

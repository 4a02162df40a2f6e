"""The client's own limit of requests, for those who want one: API servers guard themselves (priority and fairness)."""

from hpad.clock import Clock


class Limiter:
    """A token bucket, as client-go's: `qps` requests a second in the long run, `burst` of them at once.

    Turns come in the order in which they were asked for.
    """

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled = clock.monotonic()

    async def turn(self) -> None:
        """Wait until one more request may be sent."""
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps) - 1.0
        self._filled = now
        if self._tokens < 0.0:
            await self._clock.sleep(-self._tokens / self._qps)

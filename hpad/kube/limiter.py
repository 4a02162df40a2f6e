"""The client's own limit of requests, for those who want one: API servers guard themselves (priority and fairness).

What takes several requests, such as a reconcile, takes its place with the first of them. So what was begun is finished
when there is more to ask for than the limit lets through; were each request to go to the end of the line, everything
under way would end late, and a reconcile that has a deadline not at all.
"""

import asyncio
import heapq
import itertools
from contextvars import ContextVar
from typing import Final

import structlog

from hpad.clock import Clock

_Place = tuple[int, int, asyncio.Future[None]]

_LONG: Final = 1.0
"""Seconds of waiting from which on it is worth saying where they went."""
_SILENCE: Final = 60.0
"""Seconds after that in which it need not be said again."""
_ONE: Final = 1.0 - 1e-9
"""A token, up to what adding fractions loses."""
_NUMBERS = itertools.count()
_BEGUN: ContextVar[int | None] = ContextVar("begun", default=None)


def begin() -> None:
    """From now on what this task, and those that it starts, ask for is one piece, with its place in every line."""
    _BEGUN.set(next(_NUMBERS))


class Limiter:
    """A token bucket, as client-go's: `qps` requests a second in the long run, `burst` of them at once.

    Turns come in the order in which they were asked for, or in which what they belong to was begun (see `begin`).
    """

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled = clock.monotonic()
        self._line: list[_Place] = []
        self._serving: asyncio.Task[None] | None = None
        self._said = -_SILENCE
        self._log = structlog.get_logger("hpad.kube")

    def __len__(self) -> int:
        """How many wait for their turn."""
        return len(self._line)

    async def acquire(self) -> None:
        """Wait until one more request may be sent; who is cancelled meanwhile takes nobody's turn."""
        self._fill()
        if not self._line and self._tokens >= _ONE:
            self._tokens -= 1.0
            return
        number = next(_NUMBERS)
        begun = _BEGUN.get()
        place = (number if begun is None else begun, number, asyncio.get_running_loop().create_future())
        heapq.heappush(self._line, place)
        self._say((len(self) - self._tokens) / self._qps)
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve(), name="limit of requests")
        try:
            await place[-1]
        except asyncio.CancelledError:
            self._leave(place)
            raise

    def _leave(self, place: _Place) -> None:
        if place in self._line:
            self._line.remove(place)
            heapq.heapify(self._line)
        elif not place[-1].cancelled():  # the turn was ours already
            self._tokens += 1.0

    async def _serve(self) -> None:
        """Give turns for as long as somebody waits."""
        try:
            while self._line:
                self._fill()
                if self._tokens < _ONE:
                    await self._clock.sleep((1.0 - self._tokens) / self._qps)
                    continue
                turn = heapq.heappop(self._line)[-1]
                if not turn.done():  # cancelled a moment ago
                    self._tokens -= 1.0
                    turn.set_result(None)
        finally:
            self._serving = None

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._qps)
        self._filled = now

    def _say(self, seconds: float) -> None:
        """Where the time goes, when all who wait now will have had their turns only after so many seconds."""
        now = self._clock.monotonic()
        if seconds >= _LONG and now - self._said >= _SILENCE:
            self._said = now
            self._log.warning(
                "requests to the API server wait for one another: kube_api_qps allows no more",
                kube_api_qps=self._qps,
                seconds=round(seconds, 1),
                waiting=len(self),
            )


def of(qps: float | None, burst: int, clock: Clock) -> Limiter | None:
    """The limit that was asked for, if one was."""
    return None if qps is None else Limiter(clock, qps, burst)

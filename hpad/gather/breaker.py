"""Whether a source is worth asking: one that keeps failing as a whole is left alone but for a call now and then.

closed -> open after `failures` failed calls in a row that span a whole `rest`, so that every HPA had its turn and a
few metrics that fail cannot pass for the whole; open -> trial once `rest` is over; trial -> closed or open by how the
one call ends that is made then. Time is an argument, in seconds of a monotonic clock.

Rests count from one call's begin to the next one's, and end a little early: an HPA that is alone with its source has
its turn a period later, a moment more or less, and a period is the default rest. It must not miss that one as well.
"""

from typing import Final

from hpad.adapter import AdapterError
from hpad.gather.report import OK as CLOSED
from hpad.gather.report import OPEN, TRIAL

_LONGEST_RESTS: Final = 16
_EARLY: Final = 0.1
"""The part of a rest that may be missing."""


class Breaker:
    """The judgement on one source. `name` is the source's, `rest` in seconds."""

    def __init__(self, name: str, failures: int, rest: float) -> None:
        self._name = name
        self._failures = failures
        self._rest = rest
        self._count = 0
        self._since = 0.0
        self._until = 0.0
        self._rests = 1
        self._last: AdapterError | None = None
        self.state = CLOSED

    def refusal(self, now: float) -> AdapterError | None:
        """Why no call is to be made now, None if one may be. The text stays the same until something changes."""
        if self.state == CLOSED or (self.state == OPEN and now >= self._until):
            return None
        last = self._last or AdapterError("")
        again = f"{self._rest * self._rests:g}s"
        return AdapterError(
            f'source "{self._name}" keeps failing and is asked again every {again}; its last failure: {last.message}',
            last.blame,
        )

    def begin(self) -> bool:
        """A call is made; whether it is the trial that decides on all the others."""
        if self.state == OPEN:
            self.state = TRIAL
        return self.state == TRIAL

    def succeeded(self) -> None:
        """The source gave a sign of life: a sample, or a reason why one metric has none."""
        self.state, self._count, self._rests = CLOSED, 0, 1

    def failed(self, began: float, error: AdapterError) -> None:
        """A call that was made then gave nothing at all."""
        self._since = self._since if self._count else began
        self._count += 1
        self._last = error
        worn = self._count >= self._failures and began - self._since >= self._rest * (1 - _EARLY)
        if self.state == TRIAL or worn:
            self._open(began - self._rest * _EARLY)

    def trip(self, now: float, error: AdapterError) -> None:
        """A call did harm to others: no more for a rest, for twice as long when it happens again."""
        self._rests = min(self._rests * 2, _LONGEST_RESTS) if self._count else 1
        self._count += 1
        self._last = error
        self._open(now)

    def _open(self, since: float) -> None:
        self.state, self._until = OPEN, since + self._rest * self._rests

"""How a source is asked: how long, how often, how many at a time. Right without configuration; all in seconds.

When the next call may be made: not more than so many a second, and not all at once where calls last.

Whether a source is worth asking: one that keeps failing as a whole is left alone but for a call now and then.

closed -> open after `failures` failed calls in a row that span a whole `rest`, so that every HPA had its turn and a
few metrics that fail cannot pass for the whole; open -> trial once `rest` is over; trial -> closed or open by how the
one call ends that is made then. Time is an argument, in seconds of a monotonic clock.

Rests count from one call's begin to the next one's, and end a little early: an HPA that is alone with its source has
its turn a period later, a moment more or less, and a period is the default rest. It must not miss that one as well.
"""

from typing import Final

import msgspec

from hpad import settings
from hpad.adapter import AdapterError
from hpad.sources.report import OK as CLOSED
from hpad.sources.report import OPEN, TRIAL

TIMEOUT = 10.0
CONCURRENCY = 4
RATE = 20.0
RETRIES = 1
FAILURES = 5
PERIOD = 15.0
PATIENCE = 0.6
"""The part of a period that a reconcile waits for its metrics."""
_WITHIN = 0.9
"""The part of that patience in which a call ends, whatever happens: its answer has to reach who waits for it."""
_FRESH = 1 / 3


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """`budget` is the time of a call with its retries, `timeout` that of one attempt, `rate` calls a second.

    An answer is given again while it is not older than `fresh` (0: never); a sample whose own timestamp is older than
    `max_age` is an error (None: any age will do). After `failures` calls that failed in a row, none in between having
    succeeded for a whole `rest`, the source is left alone but for one call a `rest`. `period` is that of HPAs.
    """

    timeout: float = TIMEOUT
    budget: float = PERIOD * PATIENCE * _WITHIN
    concurrency: int = CONCURRENCY
    rate: float = RATE
    retries: int = RETRIES
    fresh: float = PERIOD * _FRESH
    max_age: float | None = None
    failures: int = FAILURES
    rest: float = PERIOD
    period: float = PERIOD


def of(source: settings.SourceSettings, period: float) -> Limits:
    """The limits of a source whose HPAs are reconciled once a `period`; a call never outlasts their patience."""
    told, budget = source.limits, period * PATIENCE * _WITHIN
    timeout = TIMEOUT if source.timeout is None else source.timeout.total_seconds()
    return Limits(
        timeout=min(timeout, budget),
        budget=budget,
        concurrency=told.concurrency,
        rate=told.rate,
        retries=told.retries,
        fresh=period * _FRESH if told.fresh is None else told.fresh.total_seconds(),
        max_age=None if told.max_age is None else told.max_age.total_seconds(),
        failures=told.failures,
        rest=period if told.rest is None else told.rest.total_seconds(),
        period=period,
    )


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

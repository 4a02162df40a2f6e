"""Protects a metric source from its callers, and the queries of a source from each other.

`Limits` holds the settings: timeouts, concurrency, rate, retries, cache and circuit breaker. `RateLimit`, `SlowQueries`
and `Breaker` decide which call may be made next. None of them reads a clock: times are arguments, in seconds of a
monotonic clock.
"""

import random
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from hpad import settings
from hpad.adapter import AdapterError, Query

TIMEOUT = 10.0
PERIOD = 15.0
PATIENCE = 0.6
"""Part of a period that a reconcile waits for its metrics."""
_BUDGET = 0.9
"""Part of that wait in which a call ends in any case, so that its answer still arrives in time."""
_FRESH = 1 / 3
_DEFAULTS = settings.SourceLimits()
SOURCE_STATES: Final = ("ok", "failing", "open", "trial", "idle", "broken")
OK, FAILING, OPEN, TRIAL, IDLE, BROKEN = SOURCE_STATES
"""failing: the last call returned nothing; open, trial: states of the circuit breaker; idle: never asked; broken: the
source could not be set up."""
_WEIGHT: Final = 0.2
"""Weight of the last call in the moving average of durations."""


class SourceReport(msgspec.Struct, kw_only=True, rename="camel"):
    """State and counts of one metric source, for its series and for `hpad sources`. The source updates them.

    `latency` is the moving average of the duration of calls, in seconds. `asked` counts queries, and `hits` those that
    were answered without a call. `errors` has the number of errors by who is to blame: spec, source, cluster or bug.
    """

    name: str
    adapter: str
    state: str = IDLE
    last_error: str | None = None
    last_error_at: datetime | None = None
    latency: float | None = None
    calls: int = 0
    retries: int = 0
    asked: int = 0
    hits: int = 0
    errors: dict[str, int] = {}

    def called(self, seconds: float, *, alive: bool) -> None:
        """Counts a call; `alive`: it returned a sample, or a reason why one metric has none."""
        self.calls += 1
        self.state = OK if alive else FAILING
        self.latency = seconds if self.latency is None else self.latency + _WEIGHT * (seconds - self.latency)

    def erred(self, error: AdapterError, at: datetime) -> None:
        """Counts a query that was answered with an error."""
        self.errors[error.blame] = self.errors.get(error.blame, 0) + 1
        self.last_error, self.last_error_at = error.message, at


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one source; durations are in seconds. The defaults are right without configuration.

    `timeout` bounds one attempt, `budget` a call with its retries; `rate` is in calls per second. A cached answer is
    used until it is `fresh` seconds old (0: never); `fresh_is_default`: this is a part of the period, and an HPA with a
    shorter period of its own uses the same part of that. A sample whose own timestamp is older than `max_age` is an
    error (None: any age is accepted). The circuit breaker opens after `failures` failed calls in a row that span
    `rest`, and then lets one call through per `rest`. `period` is the time between two reconciles of an HPA.
    """

    timeout: float = TIMEOUT
    budget: float = PERIOD * PATIENCE * _BUDGET
    concurrency: int = _DEFAULTS.concurrency
    rate: float = _DEFAULTS.rate
    retries: int = _DEFAULTS.retries
    fresh: float = PERIOD * _FRESH
    fresh_is_default: bool = True
    max_age: float | None = None
    failures: int = _DEFAULTS.failures
    rest: float = PERIOD
    period: float = PERIOD

    def fresh_for(self, period: float | None) -> float:
        """Returns how old an answer may be, in seconds, for an HPA with this period of its own (None: it has none)."""
        if period is None or not self.fresh_is_default:
            return self.fresh
        return min(self.fresh, period * _FRESH)


def of(source: settings.SourceSettings, period: float) -> CallLimits:
    """Returns the limits of a source for HPAs with this sync period: calls end before their reconciles give up."""
    configured, budget = source.limits, period * PATIENCE * _BUDGET
    timeout = TIMEOUT if source.timeout is None else source.timeout.total_seconds()
    return CallLimits(
        timeout=min(timeout, budget),
        budget=budget,
        concurrency=configured.concurrency,
        rate=configured.rate,
        retries=configured.retries,
        fresh=period * _FRESH if configured.fresh is None else configured.fresh.total_seconds(),
        fresh_is_default=configured.fresh is None,
        max_age=None if configured.max_age is None else configured.max_age.total_seconds(),
        failures=configured.failures,
        rest=period if configured.rest is None else configured.rest.total_seconds(),
        period=period,
    )


_ROUNDING: Final = 1e-9
"""A token may lack this much: a timer cannot wait for a rounding error."""


class RateLimit:
    """A token bucket: `rate` calls per second, with bursts of up to one second's worth of calls."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._capacity = max(1.0, rate)
        self._tokens = self._capacity
        self._at = 0.0

    def take(self, now: float) -> float:
        """Takes a token and returns 0, or returns the seconds until there is one."""
        self._tokens = min(self._capacity, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1.0 - _ROUNDING:
            self._tokens = max(0.0, self._tokens - 1.0)
            return 0.0
        return (1.0 - self._tokens) / self._rate


BATCHES: Final = 16
"""Number of calls that all slow queries are spread over."""
MOST_SLOW: Final = 1 << 14
"""Number of slow queries that are remembered, those that timed out last."""
_FORGOTTEN_PERIODS: Final = 40.0
_SEED: Final = 0


class Lane(Enum):
    """Queries of one lane share calls."""

    PROMPT = "prompt"
    LATE = "late"
    TIMED_OUT = "timed out"


class _Timeout(NamedTuple):
    """The last timeout of a query, and whether the query was alone in the call."""

    at: float
    alone: bool


class SlowQueries:
    """The queries of one source for which others would wait. They are asked apart from all others.

    Of some the last error says that they are late (AdapterError): these share calls with each other.

    Of the others the last call timed out. It returns all of its answers or none, so one query that hangs makes its
    whole batch time out. The queries of such a batch are slow from then on: they share calls with each other only, in
    BATCHES batches of random composition. A query whose call returns is not slow any more. So the batches shrink until
    a query that hangs is alone. `group` returns the group of a query (None: no group); a group counts as one query,
    since it shares calls anyway. A query is forgotten when it has not timed out for 40 periods of `period` seconds: its
    HPA may be gone.
    """

    def __init__(self, group: Callable[[Query], Hashable | None], period: float) -> None:
        self._group = group
        self._forgotten_after = _FORGOTTEN_PERIODS * period
        self._timeouts: dict[Hashable, _Timeout] = {}
        self._late: dict[Hashable, _Timeout] = {}
        self._dice = random.Random(_SEED)

    def __contains__(self, query: Query) -> bool:
        return self.lane(query) is not Lane.PROMPT

    def __len__(self) -> int:
        return len(self._timeouts)

    def lane(self, query: Query) -> Lane:
        """Returns which queries it shares calls with."""
        if self._timeouts and self._key(query) in self._timeouts:
            return Lane.TIMED_OUT
        return Lane.LATE if self._late and hash(query) in self._late else Lane.PROMPT

    def must_be_tried_alone(self, query: Query) -> bool:
        """Returns whether the query has timed out together with others only, and its next call contains only it."""
        timeout = self._timeouts.get(self._key(query)) if self._timeouts else None
        return timeout is not None and not timeout.alone and self._batch_size() == 1

    def next_batch(self, waiting: Iterable[Query]) -> list[Query]:
        """Returns the queries for the next call: all prompt ones; if there are none, all late ones, or some others.

        Queries that Autoscalers bring along do not share a call with others, which would wait for them.
        """
        lanes: dict[Lane, list[Query]] = {}
        for query in waiting:
            lanes.setdefault(self.lane(query), []).append(query)
        if together := lanes.get(Lane.PROMPT) or lanes.get(Lane.LATE):
            return [query for query in together if query.definition is None] or together
        keys = {query: self._key(query) for query in lanes[Lane.TIMED_OUT]}
        slow = list(dict.fromkeys(keys.values()))
        chosen = set(self._dice.sample(slow, min(self._batch_size(), len(slow))))
        return [query for query, key in keys.items() if key in chosen]

    def learn(self, timed_out: Mapping[Query, bool], now: float) -> None:
        """Notes how a call has ended: for each of its queries, whether it timed out."""
        slow = {self._key(query) for query, late in timed_out.items() if late}
        if not slow and not self._timeouts:
            return
        keys = set(map(self._key, timed_out))
        for key in keys:
            self._timeouts.pop(key, None)  # added again below, if at all: the last to time out shall be at the end
        if slow:
            self._timeouts |= dict.fromkeys(slow, _Timeout(now, alone=len(keys) == 1))
            self._timeouts = self._recent(self._timeouts, now)

    def learn_late(self, late: Mapping[Query, bool], now: float) -> None:
        """Notes how a call has ended: for each of its queries, whether it was late."""
        if not self._late and not any(late.values()):
            return
        for query, is_late in late.items():
            self._late.pop(hash(query), None)
            if is_late:
                self._late[hash(query)] = _Timeout(now, alone=False)
        self._late = self._recent(self._late, now)

    def _recent(self, timeouts: Mapping[Hashable, _Timeout], now: float) -> dict[Hashable, _Timeout]:
        recent = [item for item in timeouts.items() if now - item[1].at < self._forgotten_after]
        return dict(recent[-MOST_SLOW:])

    def _batch_size(self) -> int:
        return max(1, len(self._timeouts) // BATCHES)

    def _key(self, query: Query) -> int:
        # Not the query itself: its author chooses how long its name and its selector are.
        group = self._group(query)
        return hash(query) if group is None else hash((group,))


_LONGEST_FACTOR: Final = 16
_EARLY: Final = 0.1
"""The fraction of `rest` that may be missing."""


class Breaker:
    """The circuit breaker of the source `name`. `rest` is the time in seconds that it stays open.

    closed -> open after `failures` failed calls in a row that span a whole `rest`, so that every HPA was reconciled and
    a few metrics that fail do not count as the whole source; open -> trial for one call once `rest` is over; trial ->
    closed or open, depending on that call.

    `rest` counts from the start of one call to the start of the next, and ends a tenth early. It is a period by
    default, and the only HPA of a source may come a little before its period is over: it must not miss the trial.
    """

    def __init__(self, name: str, failures: int, rest: float) -> None:
        self._name = name
        self._failures = failures
        self._rest = rest
        self._count = 0
        self._since = 0.0
        self._until = 0.0
        self._rest_factor = 1
        self._last: AdapterError | None = None
        self.state = OK

    def refusal(self, now: float) -> AdapterError | None:
        """Returns why no call may be made now; None if one may. The text stays the same until the state changes."""
        if self.state == OK or (self.state == OPEN and now >= self._until):
            return None
        last = self._last or AdapterError("")
        again = f"{self._rest * self._rest_factor:g}s"
        return AdapterError(
            f'{last.message}; source "{self._name}" keeps failing and is asked again every {again}',
            last.blame,
        )

    def begin(self) -> bool:
        """Notes that a call begins; returns whether it is the trial."""
        if self.state == OPEN:
            self.state = TRIAL
        return self.state == TRIAL

    def succeeded(self) -> None:
        """Closes the breaker: the source returned a sample, or a reason why one metric has none."""
        self.state, self._count, self._rest_factor = OK, 0, 1

    def failed(self, began: float, error: AdapterError) -> None:
        """Counts a call that began at `began` and returned nothing."""
        self._since = self._since if self._count else began
        self._count += 1
        self._last = error
        is_failing = self._count >= self._failures and began - self._since >= self._rest * (1 - _EARLY)
        if self.state == TRIAL or is_failing:
            self._open(began - self._rest * _EARLY)

    def trip(self, now: float, error: AdapterError) -> None:
        """Opens the breaker after a call that blocked the event loop, for twice as long as the time before."""
        self._rest_factor = min(self._rest_factor * 2, _LONGEST_FACTOR) if self._count else 1
        self._count += 1
        self._last = error
        self._open(now)

    def _open(self, since: float) -> None:
        self.state, self._until = OPEN, since + self._rest * self._rest_factor

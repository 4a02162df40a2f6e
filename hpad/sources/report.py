"""State and counts of a source, for its series and for `hpad sources`."""

from datetime import datetime

import msgspec

from hpad import telemetry
from hpad.adapter import AdapterError

OK, FAILING, OPEN, TRIAL, IDLE, BROKEN = telemetry.SOURCE_STATES
"""failing: the last call returned nothing; open, trial: states of the circuit breaker; idle: never asked; broken: the
source could not be set up."""

_WEIGHT = 0.2


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State and counts of one source.

    `latency` is the moving average of the duration of calls, in seconds; `hits` counts answers given without a call.
    """

    name: str
    adapter: str
    state: str
    last_error: str | None = None
    last_error_at: datetime | None = None
    latency: float | None = None
    calls: int = 0
    retries: int = 0
    asked: int = 0
    hits: int = 0
    errors: dict[str, int] = {}

    @property
    def hit_rate(self) -> float | None:
        """Part of the queries that were answered without a call, from 0 to 1; None before the first query."""
        return self.hits / self.asked if self.asked else None


class Tally:
    """The counts of a source at work."""

    def __init__(self) -> None:
        self.calls = self.retries = self.asked = self.hits = 0
        self.errors: dict[str, int] = {}
        self.latency: float | None = None
        self.failing = False
        self.last_error: AdapterError | None = None
        self.last_error_at: datetime | None = None

    def called(self, seconds: float, *, alive: bool) -> None:
        """Counts a call; `alive`: it returned a sample, or a reason why one metric has none."""
        self.calls += 1
        self.failing = not alive
        self.latency = seconds if self.latency is None else self.latency + _WEIGHT * (seconds - self.latency)

    def erred(self, error: AdapterError, at: datetime) -> None:
        """Counts a query that was answered with an error."""
        self.errors[error.blame] = self.errors.get(error.blame, 0) + 1
        self.last_error, self.last_error_at = error, at

    def report(self, name: str, adapter: str, state: str) -> Report:
        """Returns a copy; `state` is the circuit breaker's."""
        shown = IDLE if not self.calls else FAILING if self.failing and state == OK else state
        return Report(
            name=name,
            adapter=adapter,
            state=shown,
            last_error=None if self.last_error is None else self.last_error.message,
            last_error_at=self.last_error_at,
            latency=self.latency,
            calls=self.calls,
            retries=self.retries,
            asked=self.asked,
            hits=self.hits,
            errors=dict(self.errors),
        )

"""What is known of a source: for series, for `hpad sources`, for whoever asks why."""

from datetime import datetime

import msgspec

from hpad import telemetry
from hpad.adapter import AdapterError

OK, FAILING, OPEN, TRIAL, IDLE, BROKEN = telemetry.SOURCE_STATES
"""ok; failing: the last call gave nothing; open: left alone for a while; trial: being tried again; idle: never asked;
broken: cannot be built."""

_WEIGHT = 0.2


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One source. `latency` is the mean of the last calls in seconds; `hits` are answers given without a call."""

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
        """The part of the questions that took no call, from 0 to 1; None before the first."""
        return self.hits / self.asked if self.asked else None


class Tally:
    """What a source counts as it works."""

    def __init__(self) -> None:
        self.calls = self.retries = self.asked = self.hits = 0
        self.errors: dict[str, int] = {}
        self.latency: float | None = None
        self.failing = False
        self.last_error: AdapterError | None = None
        self.last_error_at: datetime | None = None

    def called(self, seconds: float) -> None:
        self.calls += 1
        self.latency = seconds if self.latency is None else self.latency + _WEIGHT * (seconds - self.latency)

    def erred(self, error: AdapterError, at: datetime) -> None:
        """One question had no sample."""
        self.errors[error.blame] = self.errors.get(error.blame, 0) + 1
        self.last_error, self.last_error_at = error, at

    def report(self, name: str, adapter: str, state: str) -> Report:
        """As it stands; `state` is that of the breaker."""
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

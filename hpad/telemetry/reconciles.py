"""What reconciles do, how late they are, and what they ask of the API server."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import registry
from prometheus_client.core import Metric, SummaryMetricFamily

from hpad.api.sample import SOURCE_TYPES
from hpad.telemetry.series import ORIGINAL, Series

ACTIONS: Final = ("scale_down", "scale_up", "none")
ERRORS: Final = ("spec", "internal", "none")
_LATENESS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class _Cost(registry.Collector):
    """What reconciles cost the API server: of a summary without quantiles the rate of `_sum` over that of `_count`."""

    def __init__(self) -> None:
        self.requests = 0
        self.reconciles = 0

    def collect(self) -> Iterator[Metric]:
        help_ = "Requests to the API server for each reconcile, all but those for the lead among several hpads"
        yield SummaryMetricFamily("hpad_requests_per_reconcile", help_, self.reconciles, self.requests)


class Reconciles(Series):
    """Fed by the heartbeat, and by whoever sends requests to the API server."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._cost = _Cost()
        to.register(self._cost)
        self._make_originals()
        self._lateness = self._histogram(
            "hpad_reconcile_lateness_seconds",
            "How long after it was due a periodic reconcile began",
            buckets=_LATENESS_BUCKETS,
        )
        self._put_off = self._counter("hpad_reconciles_put_off", "Periods left out by HPAs to shed load")
        self._rest_requests = self._counter(
            "rest_client_requests", "Requests to the API server", ["code", "host", "method"]
        )
        self._requests = self._histogram("hpad_api_request_seconds", "Requests to the API server", ["method", "code"])

    def _make_originals(self) -> None:
        outcome, metric = ["action", "error"], ["action", "error", "metric_type"]
        self._reconciliations = self._counter(f"{ORIGINAL}reconciliations", "Reconciles of HPAs", outcome)
        self._reconciled = self._histogram(
            f"{ORIGINAL}reconciliation_duration_seconds", "Duration of a reconcile", outcome
        )
        self._computations = self._counter(f"{ORIGINAL}metric_computation", "Metrics computed", metric)
        self._computed = self._histogram(
            f"{ORIGINAL}metric_computation_duration_seconds", "From asking for a metric to having it", metric
        )
        for action in ACTIONS:
            for error in ERRORS:
                self._reconciliations.labels(action, error)
                self._reconciled.labels(action, error)
                for kind in SOURCE_TYPES:
                    self._computations.labels(action, error, kind)
                    self._computed.labels(action, error, kind)

    def reconciled(self, action: str, error: str, seconds: float) -> None:
        self._cost.reconciles += 1
        self._reconciliations.labels(action, error).inc()
        self._reconciled.labels(action, error).observe(seconds)

    def computed(self, kind: str, action: str, error: str, seconds: float) -> None:
        """One metric of one HPA: its type, and the labels of its proposal."""
        self._computations.labels(action, error, kind).inc()
        self._computed.labels(action, error, kind).observe(seconds)

    def late(self, seconds: float) -> None:
        self._lateness.observe(seconds)

    def put_off(self, periods: int) -> None:
        """An HPA's next turn is so many periods later than usual."""
        self._put_off.inc(periods)

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """A request to the API server ended; `code` is the HTTP status, "<error>" where there was none."""
        self._cost.requests += 1
        self.requested_aside(method, host, code, seconds)

    def requested_aside(self, method: str, host: str, code: str, seconds: float) -> None:
        """The same for a request that is made however many HPAs there are: no reconcile costs it."""
        self._requests.labels(method, code).observe(seconds)
        self._rest_requests.labels(code, host, method).inc()

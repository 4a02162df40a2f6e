"""What reconciles do, how late they are, and what they ask of the API server.

What there is to tell of each HPA, for as long as it exists.

The series of the workqueue, with the names and buckets that client-go gives them.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import prometheus_client
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from hpad.api.metadata import Key
from hpad.api.sample import SOURCE_TYPES
from hpad.engine.conditions import ABLE_TO_SCALE, FALSE, SCALING_ACTIVE, SCALING_LIMITED, TRUE, Condition
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


class _PerHpa(registry.Collector):
    """What there is of each HPA: plain dicts, read when somebody looks, so that a deleted HPA leaves nothing behind.

    `at_max`: seconds spent at maxReplicas so far. `held_since`: when an HPA that is there was last seen there.
    `held_back`: (condition, reason) of all that keeps an HPA from the size it wants. `competing`: kind and name of all
    other writers of its target or status.
    """

    def __init__(self) -> None:
        self.desired: dict[Key, int] = {}
        self.at_max: dict[Key, float] = {}
        self.held_since: dict[Key, float] = {}
        self.held_back: dict[Key, list[tuple[str, str]]] = {}
        self.competing: dict[Key, list[tuple[str, str]]] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["namespace", "hpa_name"]
        family = GaugeMetricFamily(f"{ORIGINAL}desired_replicas", "Replicas the HPA last wanted", labels=labels)
        for key, replicas in self.desired.copy().items():
            family.add_metric([key.namespace, key.name], replicas)
        yield family
        help_ = "Seconds an HPA has wanted maxReplicas"
        counts = CounterMetricFamily("hpad_hpa_at_max_seconds", help_, labels=labels)
        for key, seconds in self.at_max.copy().items():
            counts.add_metric([key.namespace, key.name], seconds)
        yield counts
        help_ = "1 for each condition that keeps an HPA from the size it wants"
        troubles = GaugeMetricFamily("hpad_hpa_held_back", help_, labels=[*labels, "condition", "reason"])
        for key, conditions in self.held_back.copy().items():
            for condition, reason in conditions:
                troubles.add_metric([key.namespace, key.name, condition, reason], 1)
        yield troubles
        help_ = "1 for each other writer of the target of an HPA (kind hpa or scale) or of its status (kind status)"
        writers = GaugeMetricFamily("hpad_hpa_competing_writer", help_, labels=[*labels, "kind", "writer"])
        for key, found in self.competing.copy().items():
            for kind, writer in found:
                writers.add_metric([key.namespace, key.name, kind, writer], 1)
        yield writers

    def forget(self, key: Key) -> None:
        for held in (self.desired, self.at_max, self.held_since, self.held_back, self.competing):
            held.pop(key, None)


class Hpas(Series):
    """Fed by whoever has decided on an HPA, and by whoever sees it go."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._per_hpa = _PerHpa()
        to.register(self._per_hpa)
        self._hpas = self._gauge(f"{ORIGINAL}num_horizontal_pod_autoscalers", "HPAs under control")

    def desired(self, key: Key, replicas: int, maximum: int, now: float) -> None:
        """What an HPA wants, and its maxReplicas; `now` is monotonic. Time counts as at max between two such sights."""
        held = self._per_hpa
        held.desired[key] = replicas
        since = held.held_since.pop(key, now)
        held.at_max[key] = held.at_max.get(key, 0.0) + now - since
        if replicas >= maximum:
            held.held_since[key] = now

    def conditions(self, key: Key, held: Iterable[Condition]) -> None:
        """The conditions an HPA has now; counted are those that say that it cannot scale, or not as far as it wants."""
        good = {ABLE_TO_SCALE: TRUE, SCALING_ACTIVE: TRUE, SCALING_LIMITED: FALSE}
        self._per_hpa.held_back[key] = [(c.type, c.reason) for c in held if c.status != good.get(c.type, c.status)]

    def competing(self, key: Key, writers: list[tuple[str, str]]) -> None:
        """The other writers of an HPA's target and status now, as kind and name."""
        if writers:
            self._per_hpa.competing[key] = writers
        else:
            self._per_hpa.competing.pop(key, None)

    def forget(self, key: Key) -> None:
        """The HPA is gone, and its series with it."""
        self._per_hpa.forget(key)

    def hpas(self, count: int) -> None:
        self._hpas.set(count)


_NAME: Final = "horizontalpodautoscaler"
_BUCKETS: Final = tuple(1e-8 * 10**k for k in range(12))


class QueueSeries:
    """Fed by the queue as it works."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> prometheus_client.Gauge:
            return prometheus_client.Gauge(f"workqueue_{name}", text, ["name"], registry=to).labels(_NAME)

        def histogram(name: str, text: str) -> prometheus_client.Histogram:
            made = prometheus_client.Histogram(f"workqueue_{name}", text, ["name"], registry=to, buckets=_BUCKETS)
            return made.labels(_NAME)

        adds = prometheus_client.Counter("workqueue_adds", "Keys added to the queue", ["name"], registry=to)
        self._adds = adds.labels(_NAME)
        retries = prometheus_client.Counter("workqueue_retries", "Keys put back for a failure", ["name"], registry=to)
        retries.labels(_NAME)  # stays at zero: the next turn is the retry
        self._depth = gauge("depth", "Keys that wait for a worker")
        self._waited = histogram("queue_duration_seconds", "How long a key waited for a worker")
        self._worked = histogram("work_duration_seconds", "How long a key was worked on")
        self.unfinished = gauge("unfinished_work_seconds", "Time spent so far on keys in work, summed")
        self.longest = gauge("longest_running_processor_seconds", "Time spent so far on the key longest in work")

    def added(self) -> None:
        self._adds.inc()

    def depth(self, keys: int) -> None:
        self._depth.set(keys)

    def waited(self, seconds: float) -> None:
        self._waited.observe(seconds)

    def worked(self, seconds: float) -> None:
        self._worked.observe(seconds)

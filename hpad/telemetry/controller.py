"""Series of the controller: reconciles, API requests, each HPA, and the workqueue.

The workqueue series have the names and buckets of client-go (component-base, metrics/prometheus/workqueue/metrics.go).
"""

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

import prometheus_client
import structlog
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from hpad.api.metadata import Key
from hpad.api.sample import SOURCE_TYPES
from hpad.engine.conditions import ABLE_TO_SCALE, FALSE, SCALING_ACTIVE, SCALING_LIMITED, TRUE, Condition
from hpad.telemetry.series import KUBERNETES, Observations, SeriesFactory

ACTIONS: Final = ("scale_down", "scale_up", "none")
ERRORS: Final = ("spec", "internal", "none")
_GOOD: Final = {ABLE_TO_SCALE: TRUE, SCALING_ACTIVE: TRUE, SCALING_LIMITED: FALSE}
_LATENESS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class MetricFigures(NamedTuple):
    """One metric of an HPA; None where there is no figure. `target` and `value` are in base units.

    `address` is the canonical address of the metric (`hpad.engine.addresses`), unique within the HPA.
    """

    address: str
    target: float | None
    value: float | None
    proposal: int | None


class HpaFigures(NamedTuple):
    """The last decision about an HPA, in replicas; None where there is no figure. `held_by` has distinct reasons."""

    minimum: int
    maximum: int
    current: int | None
    recommendation: int | None
    decision: int | None
    held_by: tuple[str, ...]
    metrics: tuple[MetricFigures, ...]
    shadow: int | None = None


_OF_HPAS: Final[tuple[tuple[str, str, Callable[[HpaFigures], int | None]], ...]] = (
    ("min_replicas", "The fewest replicas that the metrics may ask for", attrgetter("minimum")),
    ("max_replicas", "maxReplicas of the HPA", attrgetter("maximum")),
    ("current_replicas", "Replicas that the target had when the HPA was last decided", attrgetter("current")),
    ("recommendation", "Replicas before spec.behavior and limits; none where the metrics did not decide",
     attrgetter("recommendation")),
    ("decision", "Replicas after them, written or not; none where nothing was decided", attrgetter("decision")),
    ("shadow_replicas", "Replicas that the target would have; in shadow mode and in a dry run only",
     attrgetter("shadow")),
)  # fmt: skip
_OF_METRICS: Final[tuple[tuple[str, str, Callable[[MetricFigures], float | None]], ...]] = (
    ("target", "Metric target: cores, bytes, a count, or a ratio to the request", attrgetter("target")),
    ("value", "Usage that is compared with the target, in its unit; none while the metric fails", attrgetter("value")),
    ("proposal", "Replicas that the metric proposes; none while it fails without a fallback", attrgetter("proposal")),
)
_LABELS: Final = ("namespace", "hpa_name")


class DecisionSeries(registry.Collector):
    """The last decision about each HPA; its figures are worked out in a scrape, and become series.

    An HPA has five or six of them, three for each metric, and one for each reason that holds it.
    """

    def __init__(self, make: SeriesFactory) -> None:
        self._decided: dict[Key, Callable[[], HpaFigures]] = {}
        self._log = structlog.get_logger("hpad.telemetry")
        self._failed: set[Key] = set()
        make.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yields one family after the other, all of the same moment."""
        figures = dict(self._worked_out())
        for name, text, of_hpa in _OF_HPAS:
            family = GaugeMetricFamily(f"hpad_hpa_{name}", text, labels=_LABELS)
            for key, each in figures.items():
                count = of_hpa(each)
                if count is not None:
                    family.add_metric(tuple(key), count)
            yield family
        for name, text, of_metric in _OF_METRICS:
            family = GaugeMetricFamily(f"hpad_hpa_metric_{name}", text, labels=[*_LABELS, "metric"])
            for (namespace, hpa), each in figures.items():
                for metric in each.metrics:
                    value = of_metric(metric)
                    if value is not None:
                        family.add_metric((namespace, hpa, metric.address), value)
            yield family
        text = "1 for each reason that holds the replicas from what the metrics ask for"
        family = GaugeMetricFamily("hpad_hpa_held_by", text, labels=[*_LABELS, "reason"])
        for (namespace, hpa), each in figures.items():
            for reason in each.held_by:
                family.add_metric((namespace, hpa, reason), 1)
        yield family

    def decided(self, key: Key, figures: Callable[[], HpaFigures]) -> None:
        """Replaces the decision about an HPA. `figures` works out its figures, and is called in a thread."""
        self._decided[key] = figures

    def forget(self, key: Key) -> None:
        """Removes the series of an HPA."""
        self._decided.pop(key, None)

    def _worked_out(self) -> Iterator[tuple[Key, HpaFigures]]:
        """Yields the figures of each HPA. One that fails has no series, and is logged once."""
        for key, figures in self._decided.copy().items():  # the event loop goes on while a thread renders the series
            try:
                yield key, figures()
            except Exception:  # noqa: BLE001  # a bug of one HPA must not take the series of all
                if key not in self._failed:
                    self._failed.add(key)
                    self._log.exception("bug: the series of an HPA could not be worked out", hpa=str(key))


class ControllerSeries(registry.Collector):
    """Reconciles, requests to the API server, and the series of each HPA; those of its decision are `decisions`.

    The series of an HPA are kept in plain dictionaries, so that a deleted HPA leaves nothing behind.
    """

    def __init__(self, make: SeriesFactory) -> None:
        self._desired: dict[Key, int] = {}
        self._at_max: dict[Key, float] = {}  # total seconds at maxReplicas
        self._at_max_since: dict[Key, float] = {}  # time of the last observation, if that was at maxReplicas
        self._held_back: dict[Key, list[tuple[str, str]]] = {}  # conditions and reasons
        self._competing: dict[Key, list[tuple[str, str]]] = {}  # kinds and names of other writers
        self._request_count = 0
        self._reconcile_count = 0
        make.registry.register(self)
        self.decisions = DecisionSeries(make)
        self._make_kubernetes_series(make)
        text = "Delay of a periodic reconcile after its planned time"
        self.lateness = make.histograms("hpad_reconcile_lateness_seconds", text, bounds=_LATENESS_BUCKETS).of()
        text = "Shortest time between two planned reconciles of an HPA"
        self.shortest_period = make.gauge("hpad_shortest_sync_period_seconds", text)
        labels = ["code", "host", "method"]
        self._rest_requests = make.counts("rest_client_requests", "Requests to the API server", labels)
        text = "Duration of requests to the API server"
        self._requests = make.histograms("hpad_api_request_seconds", text, ["method", "code"])

    def collect(self) -> Iterator[Metric]:
        """Yields the series of each HPA, and a summary of requests (`_sum`) and reconciles (`_count`)."""
        labels = ["namespace", "hpa_name"]
        # Copies, because a thread renders the series while the event loop goes on.
        desired = GaugeMetricFamily(f"{KUBERNETES}desired_replicas", "Last desired replicas of the HPA", labels=labels)
        for key, replicas in self._desired.copy().items():
            desired.add_metric([*key], replicas)
        yield desired
        at_max = CounterMetricFamily("hpad_hpa_at_max_seconds", "Time that an HPA wanted maxReplicas", labels=labels)
        for key, seconds in self._at_max.copy().items():
            at_max.add_metric([*key], seconds)
        yield at_max
        text = "1 for each condition that keeps an HPA from its desired size"
        held_back = GaugeMetricFamily("hpad_hpa_held_back", text, labels=[*labels, "condition", "reason"])
        yield _add_pairs(held_back, self._held_back)
        text = "1 for each other writer of the target of an HPA (kind hpa or scale) or of its status (kind status)"
        competing = GaugeMetricFamily("hpad_hpa_competing_writer", text, labels=[*labels, "kind", "writer"])
        yield _add_pairs(competing, self._competing)
        text = "Requests to the API server for each reconcile, without those of leader election"
        yield SummaryMetricFamily("hpad_requests_per_reconcile", text, self._reconcile_count, self._request_count)

    def _make_kubernetes_series(self, make: SeriesFactory) -> None:
        """Makes the series of the Kubernetes controller (pkg/controller/podautoscaler/monitor/metrics.go)."""
        outcome, metric = ["action", "error"], ["action", "error", "metric_type"]
        self.hpas = make.gauge(f"{KUBERNETES}num_horizontal_pod_autoscalers", "HPAs under control")
        self._reconciliations = make.counts(f"{KUBERNETES}reconciliations", "Reconciles of HPAs", outcome)
        name = f"{KUBERNETES}reconciliation_duration_seconds"
        self._reconciled = make.histograms(name, "Duration of a reconcile", outcome)
        self._computations = make.counts(f"{KUBERNETES}metric_computation", "Metrics computed", metric)
        name = f"{KUBERNETES}metric_computation_duration_seconds"
        self._computed = make.histograms(name, "Time from the query for a metric to its value", metric)
        for action in ACTIONS:
            for error in ERRORS:
                self._reconciliations.create(action, error)
                self._reconciled.of(action, error)
                for kind in SOURCE_TYPES:
                    self._computations.create(action, error, kind)
                    self._computed.of(action, error, kind)

    def reconciled(self, action: str, error: str, seconds: float) -> None:
        """Counts a reconcile with the labels of its settlement."""
        self._reconcile_count += 1
        self._reconciliations.count(action, error)
        self._reconciled.of(action, error).observe(seconds)

    def computed(self, kind: str, action: str, error: str, seconds: float) -> None:
        """Counts one metric of one HPA: its type, and the labels of its proposal."""
        self._computations.count(action, error, kind)
        self._computed.of(action, error, kind).observe(seconds)

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """Counts a request to the API server; `code` is the HTTP status, or "<error>" without a response."""
        self._request_count += 1
        self.requested_by_election(method, host, code, seconds)

    def requested_by_election(self, method: str, host: str, code: str, seconds: float) -> None:
        """Counts a request of leader election, which does not depend on the number of reconciles."""
        self._requests.of(method, code).observe(seconds)
        self._rest_requests.count(code, host, method)

    def desired(self, key: Key, replicas: int, maximum: int, now: float) -> None:
        """Sets the desired replicas of an HPA; `now` is monotonic.

        Time counts as spent at maxReplicas from an observation at maxReplicas to the next observation.
        """
        self._desired[key] = replicas
        since, spent = self._at_max_since.pop(key, None), self._at_max.get(key, 0.0)
        self._at_max[key] = spent if since is None else spent + now - since
        if replicas >= maximum:
            self._at_max_since[key] = now

    def conditions(self, key: Key, conditions: Iterable[Condition]) -> None:
        """Replaces the conditions of an HPA; exports those that keep it from its desired size."""
        bad = [(each.type, each.reason) for each in conditions if each.status != _GOOD.get(each.type, each.status)]
        if bad:
            self._held_back[key] = bad
        else:
            self._held_back.pop(key, None)

    def competing(self, key: Key, writers: list[tuple[str, str]]) -> None:
        """Replaces the other writers of an HPA's target and status, as kind and name."""
        if writers:
            self._competing[key] = writers
        else:
            self._competing.pop(key, None)

    def forget(self, key: Key) -> None:
        """Removes the series of a deleted HPA."""
        for by_key in (self._desired, self._at_max, self._at_max_since, self._held_back, self._competing):
            by_key.pop(key, None)
        self.decisions.forget(key)


def _add_pairs(family: GaugeMetricFamily, pairs: dict[Key, list[tuple[str, str]]]) -> GaugeMetricFamily:
    for key, found in pairs.copy().items():
        for one, other in found:
            family.add_metric([*key, one, other], 1)
    return family


_QUEUE_NAME: Final = "horizontalpodautoscaler"
_QUEUE_BUCKETS: Final = tuple(1e-8 * 10**k for k in range(10))


class QueueSeries:
    """The workqueue."""

    def __init__(self, make: SeriesFactory) -> None:
        def gauge(name: str, text: str) -> prometheus_client.Gauge:
            return make.gauge(f"workqueue_{name}", text, ["name"]).labels(_QUEUE_NAME)

        def histogram(name: str, text: str) -> Observations:
            return make.histograms(f"workqueue_{name}", text, ["name"], _QUEUE_BUCKETS).of(_QUEUE_NAME)

        self._adds = make.counts("workqueue_adds", "Keys added to the queue", ["name"])
        self._adds.create(_QUEUE_NAME)
        # Stays at zero, because a failed HPA is retried in its next period; dashboards for client-go expect the series.
        make.counter("workqueue_retries", "Keys added again after a failure", ["name"]).labels(_QUEUE_NAME)
        self._keys = 0
        gauge("depth", "Keys that wait for a worker").set_function(lambda: self._keys)
        self._waited = histogram("queue_duration_seconds", "How long a key waited for a worker")
        self._worked = histogram("work_duration_seconds", "How long a worker held a key")
        self.unfinished = gauge("unfinished_work_seconds", "Total time spent so far on unfinished keys")
        self.longest = gauge("longest_running_processor_seconds", "Time spent so far on the oldest unfinished key")

    def added(self) -> None:
        self._adds.count(_QUEUE_NAME)

    def depth(self, keys: int) -> None:
        self._keys = keys

    def waited(self, seconds: float) -> None:
        self._waited.observe(seconds)

    def worked(self, seconds: float) -> None:
        self._worked.observe(seconds)

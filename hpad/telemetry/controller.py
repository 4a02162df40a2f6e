"""Series of the controller: reconciles, API requests, each HPA and its last decision, and the workqueue.

The workqueue series have the names and buckets of client-go (component-base, metrics/prometheus/workqueue/metrics.go).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import prometheus_client
import structlog
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from hpad.api.metadata import Key
from hpad.api.sample import SOURCE_TYPES
from hpad.engine import shadow
from hpad.engine.addresses import addresses
from hpad.engine.conditions import ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED, Condition, is_trouble
from hpad.engine.examine import Clamp
from hpad.engine.holds import held_by
from hpad.engine.propose import Proposal
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.turn import Reconcile
from hpad.telemetry.series import KUBERNETES, Observations, SeriesFactory

ACTIONS: Final = ("scale_down", "scale_up", "none")
ERRORS: Final = ("spec", "internal", "none")
_HOLDING: Final = frozenset({ABLE_TO_SCALE, SCALING_ACTIVE, SCALING_LIMITED})
_LATENESS_BUCKETS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)
_LABELS: Final = ("namespace", "hpa_name")


_Sample = tuple[str, tuple[str, ...], float | None]
"""The name of a series of an HPA, the labels beside those of the HPA, and the value; None: no sample.

Counts are in replicas; targets and values of metrics are in base units.
"""
_FAMILIES: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "min_replicas": ("The fewest replicas that the metrics may ask for", ()),
    "max_replicas": ("The most replicas that the metrics may ask for", ()),
    "current_replicas": ("Replicas that the target had when the HPA was last decided", ()),
    "recommendation": ("Replicas before spec.behavior and limits; none where the metrics did not decide", ()),
    "decision": ("Replicas after them, written or not; none where nothing was decided", ()),
    "shadow_replicas": ("Replicas that the target would have; in shadow mode and in a dry run only", ()),
    "metric_target": ("Metric target: cores, bytes, a count, or a ratio to the request", ("metric",)),
    "metric_value": ("Usage that is compared with the target, in its unit; none while the metric fails", ("metric",)),
    "metric_proposal": ("Replicas that the metric proposes; none while it fails without a fallback", ("metric",)),
    "held_by": ("1 for each reason that holds the replicas from what the metrics ask for", ("reason",)),
    "competing_writer": (
        "1 for each other writer of the target of an HPA (kind hpa or scale) or of its status (kind status)",
        ("kind", "writer"),
    ),
}
"""The text and the further labels of each series, by its name without `hpad_hpa_`."""


class DecisionSeries(registry.Collector):
    """The last decision about each HPA; its samples are worked out in a scrape.

    An HPA has five or six of them, three for each metric, and one for each reason that holds it and for each competing
    writer.
    """

    def __init__(self, make: SeriesFactory) -> None:
        self._decided: dict[Key, Reconcile] = {}
        self._log = structlog.get_logger("hpad.telemetry")
        self._failed: set[Key] = set()
        make.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yields one family after the other, all of the same moment."""
        found: defaultdict[str, list[tuple[tuple[str, ...], float]]] = defaultdict(list)
        for key, done in self._decided.copy().items():  # the event loop goes on while a thread renders the series
            for name, labels, value in self._worked_out(key, done):
                if value is not None:
                    found[name].append(((*key, *labels), value))
        for name, (text, labels) in _FAMILIES.items():
            family = GaugeMetricFamily(f"hpad_hpa_{name}", text, labels=(*_LABELS, *labels))
            for sample in found.pop(name, ()):
                family.add_metric(*sample)
            yield family

    def decided(self, done: Reconcile) -> None:
        """Replaces the decision about an HPA."""
        self._decided[done.view.key] = done

    def forget(self, key: Key) -> None:
        """Removes the series of an HPA."""
        self._decided.pop(key, None)

    def _worked_out(self, key: Key, done: Reconcile) -> list[_Sample]:
        """Returns the samples of an HPA. One that fails has none, and is logged once."""
        try:
            return list(_samples(done))
        except Exception:  # noqa: BLE001  # a bug of one HPA must not take the series of all
            if key not in self._failed:
                self._failed.add(key)
                self._log.exception("bug: the series of an HPA could not be worked out", hpa=str(key))
            return []


def _samples(done: Reconcile) -> Iterator[_Sample]:
    view, decision, metrics = done.view, done.decision, done.view.spec.metrics
    recommendation = decision.recommendation
    leads = recommendation is not None and recommendation.leader is not None
    yield ("min_replicas", (), view.min_replicas)
    yield ("max_replicas", (), view.max_replicas)
    yield ("current_replicas", (), None if view.scale is None else view.target_replicas)
    if recommendation is not None and leads:
        yield ("recommendation", (), max(0, recommendation.replicas))
    if leads or isinstance(decision.verdict, Clamp):
        yield ("decision", (), decision.desired)
    yield ("shadow_replicas", (), shadow.count_after(view, decision))
    proposals = decision.proposals or (None,) * len(metrics)
    for address, metric, proposal in zip(addresses(metrics), metrics, proposals, strict=True):
        yield from _of_metric((address,), metric, proposal)
    for reason in held_by(view, decision, done.outcome):
        yield ("held_by", (reason,), 1)
    for writer in view.competitors:
        yield ("competing_writer", (writer.what, writer.name), 1)


def _of_metric(labels: tuple[str, ...], metric: CompiledMetric, proposal: Proposal | None) -> Iterator[_Sample]:
    """Yields the samples of one metric; `proposal` is None where the metrics were not queried."""
    yield ("metric_target", labels, metric.amount / _per_unit(metric) if metric.kind else None)
    if proposal is not None and proposal.proposed is not None:
        yield ("metric_value", labels, _value(proposal))
        yield ("metric_proposal", labels, proposal.replicas)


def _value(proposal: Proposal) -> float | None:
    """Returns the usage that is compared with the metric target; that of all replicas together where there are none."""
    usage, metric = proposal.usage, proposal.metric
    if usage is None:
        return None
    if metric.kind == UTILIZATION:
        value: float | None = usage.percent
    else:
        value = usage.value if usage.total is None else usage.total / max(1, usage.pods or 0)
    return None if value is None else value / _per_unit(metric)


def _per_unit(metric: CompiledMetric) -> int:
    """Returns how much of the metric target is one base unit: 100 percent, or 1000 milli-units."""
    return 100 if metric.kind == UTILIZATION else 1000


class ControllerSeries(registry.Collector):
    """Reconciles, requests to the API server, and the series of each HPA; those of its decision are `decisions`.

    The series of an HPA are kept in plain dictionaries, so that a deleted HPA leaves nothing behind.
    """

    def __init__(self, make: SeriesFactory) -> None:
        self._desired: dict[Key, int] = {}
        self._at_max: dict[Key, float] = {}  # total seconds at maxReplicas
        self._at_max_since: dict[Key, float] = {}  # time of the last observation, if that was at maxReplicas
        self._held_back: dict[Key, list[tuple[str, str]]] = {}  # conditions and reasons
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
        # Copies, because a thread renders the series while the event loop goes on.
        desired = GaugeMetricFamily(f"{KUBERNETES}desired_replicas", "Last desired replicas of the HPA", labels=_LABELS)
        for key, replicas in self._desired.copy().items():
            desired.add_metric([*key], replicas)
        yield desired
        at_max = CounterMetricFamily("hpad_hpa_at_max_seconds", "Time that an HPA wanted maxReplicas", labels=_LABELS)
        for key, seconds in self._at_max.copy().items():
            at_max.add_metric([*key], seconds)
        yield at_max
        text = "1 for each condition that keeps an HPA from its desired size"
        held_back = GaugeMetricFamily("hpad_hpa_held_back", text, labels=[*_LABELS, "condition", "reason"])
        for key, found in self._held_back.copy().items():
            for each in found:
                held_back.add_metric([*key, *each], 1)
        yield held_back
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
        bad = [(each.type, each.reason) for each in conditions if each.type in _HOLDING and is_trouble(each)]
        if bad:
            self._held_back[key] = bad
        else:
            self._held_back.pop(key, None)

    def forget(self, key: Key) -> None:
        """Removes the series of a deleted HPA."""
        for by_key in (self._desired, self._at_max, self._at_max_since, self._held_back):
            by_key.pop(key, None)
        self.decisions.forget(key)


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
        make.counts("workqueue_retries", "Keys added again after a failure", ["name"]).create(_QUEUE_NAME)
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

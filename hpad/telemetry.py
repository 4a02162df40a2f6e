"""Every series hpad exports, in one private registry.

Those of the original bear its names, labels and buckets, so that dashboards keep working. Series with fixed labels
exist from the start, at zero; those of one HPA vanish with it.
"""

import asyncio
from collections.abc import Callable, Iterator

import prometheus_client
from prometheus_client import registry
from prometheus_client.core import GaugeMetricFamily, Metric

from hpad import __version__
from hpad.model.key import Key
from hpad.model.sample import SOURCE_TYPES

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_1_0_0
ACTIONS = ("scale_down", "scale_up", "none")
ERRORS = ("spec", "internal", "none")
BLAMES = ("spec", "source", "cluster", "bug")

_ORIGINAL = "horizontal_pod_autoscaler_controller_"
_QUEUE = "horizontalpodautoscaler"
_BUCKETS = tuple(0.001 * 2**k for k in range(15))
_QUEUE_BUCKETS = tuple(1e-8 * 10**k for k in range(12))
_LATENESS_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0)


class QueueSeries:
    """The series client-go gives a workqueue; fed by the queue as it works."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> prometheus_client.Gauge:
            return prometheus_client.Gauge(f"workqueue_{name}", text, ["name"], registry=to).labels(_QUEUE)

        def histogram(name: str, text: str) -> prometheus_client.Histogram:
            made = prometheus_client.Histogram(f"workqueue_{name}", text, ["name"], registry=to, buckets=_QUEUE_BUCKETS)
            return made.labels(_QUEUE)

        adds = prometheus_client.Counter("workqueue_adds", "Keys added to the queue", ["name"], registry=to)
        self._adds = adds.labels(_QUEUE)
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


class _PerHpa(registry.Collector):
    """One gauge per HPA: a plain dict, read when somebody looks, so that a deleted HPA leaves nothing behind."""

    def __init__(self) -> None:
        self.desired: dict[Key, int] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["namespace", "hpa_name"]
        family = GaugeMetricFamily(f"{_ORIGINAL}desired_replicas", "Replicas the HPA last wanted", labels=labels)
        for key, replicas in self.desired.copy().items():
            family.add_metric([key.namespace, key.name], replicas)
        yield family


class Telemetry:
    """Built once; every room reports to it through a method that says what happened. Seconds throughout."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no hint there
        self._registry = registry.CollectorRegistry()
        self._before_scrape: list[Callable[[], None]] = []
        self._per_hpa = _PerHpa()
        self._registry.register(self._per_hpa)
        self.queue = QueueSeries(self._registry)
        self._make_originals()
        self._make_own()
        self._start_at_zero()

    def _make_originals(self) -> None:
        outcome, metric = ["action", "error"], ["action", "error", "metric_type"]
        self._reconciliations = self._counter(f"{_ORIGINAL}reconciliations", "Reconciles of HPAs", outcome)
        self._reconciled = self._histogram(
            f"{_ORIGINAL}reconciliation_duration_seconds", "Duration of a reconcile", outcome
        )
        self._computations = self._counter(f"{_ORIGINAL}metric_computation", "Metrics computed", metric)
        self._computed = self._histogram(
            f"{_ORIGINAL}metric_computation_duration_seconds", "From asking for a metric to having it", metric
        )
        self._hpas = prometheus_client.Gauge(
            f"{_ORIGINAL}num_horizontal_pod_autoscalers", "HPAs under control", registry=self._registry
        )

        self._leader = prometheus_client.Gauge(
            "leader_election_master_status",
            "1 while this process leads, 0 while it stands by",
            ["name"],
            registry=self._registry,
        )
        self._slow_renewals = self._counter(
            "leader_election_slowpath", "Renewals that had to read the Lease first", ["name"]
        )

    def _make_own(self) -> None:
        self._lateness = prometheus_client.Histogram(
            "hpad_reconcile_lateness_seconds",
            "How long after it was due a periodic reconcile began",
            buckets=_LATENESS_BUCKETS,
            registry=self._registry,
        )
        self._bugs = self._counter("hpad_bugs", "Exceptions nobody expected", [])
        self._answers = self._histogram("hpad_source_answer_seconds", "Time a metric source took to answer", ["source"])
        self._source_errors = self._counter("hpad_source_errors", "Questions without a sample", ["source", "blame"])
        self._requests = self._histogram("hpad_api_request_seconds", "Requests to the API server", ["method", "code"])
        self._staleness = prometheus_client.Gauge(
            "hpad_cache_staleness_seconds",
            "Time since a watch last gave a sign of life",
            ["resource"],
            registry=self._registry,
        )
        build = prometheus_client.Gauge("hpad_build_info", "The running version", ["version"], registry=self._registry)
        build.labels(__version__).set(1)

    def _counter(self, name: str, text: str, labels: list[str]) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, labels: list[str]) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(name, text, labels, registry=self._registry, buckets=_BUCKETS)

    def _start_at_zero(self) -> None:
        for action in ACTIONS:
            for error in ERRORS:
                self._reconciliations.labels(action, error)
                self._reconciled.labels(action, error)
                for kind in SOURCE_TYPES:
                    self._computations.labels(action, error, kind)
                    self._computed.labels(action, error, kind)

    def source(self, name: str) -> None:
        """A metric source is configured: its series start at zero."""
        self._answers.labels(name)
        for blame in BLAMES:
            self._source_errors.labels(name, blame)

    def before_scrape(self, callback: Callable[[], None]) -> None:
        """Have a function called, on the loop, before the series are read; it sets gauges that only then matter."""
        self._before_scrape.append(callback)

    def reconciled(self, action: str, error: str, seconds: float) -> None:
        self._reconciliations.labels(action, error).inc()
        self._reconciled.labels(action, error).observe(seconds)

    def computed(self, kind: str, action: str, error: str, seconds: float) -> None:
        """One metric of one HPA: its type, and the labels of its proposal."""
        self._computations.labels(action, error, kind).inc()
        self._computed.labels(action, error, kind).observe(seconds)

    def desired(self, key: Key, replicas: int) -> None:
        self._per_hpa.desired[key] = replicas

    def forget(self, key: Key) -> None:
        """The HPA is gone, and its series with it."""
        self._per_hpa.desired.pop(key, None)

    def hpas(self, count: int) -> None:
        self._hpas.set(count)

    def late(self, seconds: float) -> None:
        self._lateness.observe(seconds)

    def bug(self) -> None:
        self._bugs.inc()

    def answered(self, source: str, seconds: float, blame: str | None = None) -> None:
        """A metric source answered one question, or failed to (`blame` says through whose fault)."""
        self._answers.labels(source).observe(seconds)
        if blame is not None:
            self._source_errors.labels(source, blame).inc()

    def requested(self, method: str, code: str, seconds: float) -> None:
        """A request to the API server ended; `code` is the HTTP status, "<error>" where there was none."""
        self._requests.labels(method, code).observe(seconds)

    def leads(self, name: str, leading: bool) -> None:
        """Whether this process leads, by the name of the Lease."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        self._slow_renewals.labels(name).inc(times)

    def stale(self, resource: str, seconds: float) -> None:
        self._staleness.labels(resource).set(seconds)

    async def exposition(self) -> bytes:
        """The text for a scrape. Rendered in a thread: many HPAs must not hold up the loop."""
        for callback in self._before_scrape:
            callback()
        return await asyncio.to_thread(prometheus_client.generate_latest, self._registry)

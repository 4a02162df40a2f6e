"""Every series hpad exports, in one private registry.

Those of the original bear its names, labels and buckets, so that dashboards keep working. Series with fixed labels
exist from the start, at zero; those of one HPA vanish with it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import prometheus_client
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hpad import __version__
from hpad.model.conditions import ABLE_TO_SCALE, FALSE, SCALING_ACTIVE, SCALING_LIMITED, TRUE, Condition
from hpad.model.key import Key
from hpad.model.sample import SOURCE_TYPES

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_1_0_0
ACTIONS = ("scale_down", "scale_up", "none")
ERRORS = ("spec", "internal", "none")
STORE_OPERATIONS = ("load", "save", "decode")
SOURCE_STATES = ("ok", "failing", "open", "trial", "idle", "broken")
BLAMES = ("spec", "source", "cluster", "bug")

_ORIGINAL = "horizontal_pod_autoscaler_controller_"
_QUEUE = "horizontalpodautoscaler"
_BUCKETS = tuple(0.001 * 2**k for k in range(15))
_QUEUE_BUCKETS = tuple(1e-8 * 10**k for k in range(12))
_STALL_BUCKETS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
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
        retries = prometheus_client.Counter("workqueue_retries", "Keys put back for a failure", ["name"], registry=to)
        retries.labels(_QUEUE)  # stays at zero: the next turn is the retry
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
    """What there is of each HPA: plain dicts, read when somebody looks, so that a deleted HPA leaves nothing behind.

    `at_max`: seconds spent at maxReplicas so far. `held_since`: when an HPA that is there was last seen there.
    `held_back`: (condition, reason) of all that keeps an HPA from the size it wants.
    """

    def __init__(self) -> None:
        self.desired: dict[Key, int] = {}
        self.at_max: dict[Key, float] = {}
        self.held_since: dict[Key, float] = {}
        self.held_back: dict[Key, list[tuple[str, str]]] = {}

    def collect(self) -> Iterator[Metric]:
        labels = ["namespace", "hpa_name"]
        family = GaugeMetricFamily(f"{_ORIGINAL}desired_replicas", "Replicas the HPA last wanted", labels=labels)
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

    def forget(self, key: Key) -> None:
        for held in (self.desired, self.at_max, self.held_since, self.held_back):
            held.pop(key, None)


class SourceFigures(Protocol):
    """What the series of a metric source are made of."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def asked(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def retries(self) -> int: ...


class _PerSource(registry.Collector):
    """What the sources count themselves, as they told it last."""

    def __init__(self) -> None:
        self.figures: Sequence[SourceFigures] = ()

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily("hpad_source_state", "1 for the state it is in", labels=["source", "state"])
        asked = CounterMetricFamily("hpad_source_questions", "Metrics that HPAs asked for", labels=["source"])
        hits = CounterMetricFamily("hpad_source_cache_hits", "Those answered without a call", labels=["source"])
        retries = CounterMetricFamily("hpad_source_retries", "Attempts after a failed one", labels=["source"])
        for each in self.figures:
            for name in SOURCE_STATES:
                state.add_metric([each.name, name], float(each.state == name))
            asked.add_metric([each.name], each.asked)
            hits.add_metric([each.name], each.hits)
            retries.add_metric([each.name], each.retries)
        yield from (state, asked, hits, retries)


class Telemetry:
    """Built once; every room reports to it through a method that says what happened. Seconds throughout."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no hint there
        self._registry = registry.CollectorRegistry()
        self._before_scrape: list[Callable[[], None]] = []
        self._per_hpa = _PerHpa()
        self._registry.register(self._per_hpa)
        self._per_source = _PerSource()
        self._registry.register(self._per_source)
        self.queue = QueueSeries(self._registry)
        self._make_originals()
        self._make_own()
        self._make_store()
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

        self._rest_requests = self._counter(
            "rest_client_requests", "Requests to the API server", ["code", "host", "method"]
        )

    def _make_own(self) -> None:
        self._lateness = prometheus_client.Histogram(
            "hpad_reconcile_lateness_seconds",
            "How long after it was due a periodic reconcile began",
            buckets=_LATENESS_BUCKETS,
            registry=self._registry,
        )
        self._stalls = prometheus_client.Histogram(
            "hpad_event_loop_stall_seconds",
            "How long the event loop did not turn, each time that was long",
            buckets=_STALL_BUCKETS,
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

    def _make_store(self) -> None:
        self._store_writes = self._counter("hpad_store_writes", "Saves of histories, each one transaction a group", [])
        self._store_errors = self._counter("hpad_store_errors", "What went wrong with histories", ["operation"])
        self._store_seconds = self._histogram("hpad_store_seconds", "Reading and saving histories", ["operation"])
        for operation in STORE_OPERATIONS:
            self._store_errors.labels(operation)
        self._store_bytes = prometheus_client.Gauge(
            "hpad_store_bytes", "What histories take where they survive a restart", registry=self._registry
        )
        self._store_hpas = prometheus_client.Gauge(
            "hpad_store_hpas", "HPAs that something is remembered of", registry=self._registry
        )

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

    def sources(self, figures: Sequence[SourceFigures]) -> None:
        """What the sources have counted up to now."""
        self._per_source.figures = figures

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

    def forget(self, key: Key) -> None:
        """The HPA is gone, and its series with it."""
        self._per_hpa.forget(key)

    def hpas(self, count: int) -> None:
        self._hpas.set(count)

    def late(self, seconds: float) -> None:
        self._lateness.observe(seconds)

    def stalled(self, seconds: float) -> None:
        """The event loop did not turn for that long."""
        self._stalls.observe(seconds)

    def bug(self) -> None:
        self._bugs.inc()

    def answered(self, source: str, seconds: float, blame: str | None = None) -> None:
        """A metric source answered one question, or failed to (`blame` says through whose fault)."""
        self._answers.labels(source).observe(seconds)
        if blame is not None:
            self._source_errors.labels(source, blame).inc()

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """A request to the API server ended; `code` is the HTTP status, "<error>" where there was none.

        Requests per reconcile are the rate of these over that of reconciliations.
        """
        self._requests.labels(method, code).observe(seconds)
        self._rest_requests.labels(code, host, method).inc()

    def leads(self, name: str, leading: bool) -> None:
        """Whether this process leads, by the name of the Lease."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        self._slow_renewals.labels(name).inc(times)

    def store_took(self, operation: str, seconds: float) -> None:
        """Histories were read (`load`) or written (`save`), or it was tried."""
        self._store_seconds.labels(operation).observe(seconds)
        if operation == "save":
            self._store_writes.inc()

    def store_failed(self, operation: str) -> None:
        self._store_errors.labels(operation).inc()

    def stored(self, hpas: int, size: int) -> None:
        """How many HPAs are remembered, in how many bytes."""
        self._store_hpas.set(hpas)
        self._store_bytes.set(size)

    def stale(self, resource: str, seconds: float) -> None:
        self._staleness.labels(resource).set(seconds)

    async def exposition(self) -> bytes:
        """The text for a scrape. Rendered in a thread: many HPAs must not hold up the loop."""
        for callback in self._before_scrape:
            callback()
        return await asyncio.to_thread(prometheus_client.generate_latest, self._registry)

"""Makes series in one registry; the series of metric sources, of the election, the store and the process."""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec
import prometheus_client
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hpad import __version__
from hpad.api.sample import AdapterError
from hpad.telemetry import plain

KUBERNETES: Final = "horizontal_pod_autoscaler_controller_"
"""Prefix of the series that the Kubernetes controller exports too (pkg/controller/podautoscaler/monitor/metrics.go)."""
_DURATION_BUCKETS: Final = tuple(0.001 * 2**k for k in range(15))


class SeriesFactory:
    """Makes gauges, counters and histograms that belong to one registry."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        self.registry = to

    def counts(self, name: str, text: str, labels: Sequence[str] = ()) -> plain.Counts:
        """Makes counters that a reconcile updates."""
        made = plain.Counts(name, text, labels)
        self.registry.register(made)
        return made

    def histograms(
        self, name: str, text: str, labels: Sequence[str] = (), bounds: Sequence[float] = _DURATION_BUCKETS
    ) -> plain.Histograms:
        """Makes histograms that a reconcile updates."""
        made = plain.Histograms(name, text, labels, bounds)
        self.registry.register(made)
        return made

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, text, labels, registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = _DURATION_BUCKETS
    ) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(name, text, labels, registry=self.registry, buckets=buckets)


SOURCE_STATES: Final = ("ok", "failing", "open", "trial", "idle", "broken")
OK, FAILING, OPEN, TRIAL, IDLE, BROKEN = SOURCE_STATES
"""failing: the last call returned nothing; open, trial: states of the circuit breaker; idle: never asked; broken: the
source could not be set up."""
BLAMES: Final = ("spec", "source", "cluster", "bug")
_WEIGHT: Final = 0.2
"""Weight of the last call in the moving average of durations."""


class SourceReport(msgspec.Struct, kw_only=True, rename="camel"):
    """State and counts of one metric source, for its series and for `hpad sources`. The source updates them.

    `latency` is the moving average of the duration of calls, in seconds; `hits` counts answers given without a call.
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

    @property
    def hit_rate(self) -> float | None:
        """Part of the queries that were answered without a call, from 0 to 1; None before the first query."""
        return self.hits / self.asked if self.asked else None

    def called(self, seconds: float, *, alive: bool) -> None:
        """Counts a call; `alive`: it returned a sample, or a reason why one metric has none."""
        self.calls += 1
        self.state = OK if alive else FAILING
        self.latency = seconds if self.latency is None else self.latency + _WEIGHT * (seconds - self.latency)

    def erred(self, error: AdapterError, at: datetime) -> None:
        """Counts a query that was answered with an error."""
        self.errors[error.blame] = self.errors.get(error.blame, 0) + 1
        self.last_error, self.last_error_at = error.message, at


class SourceSeries(registry.Collector):
    """Calls to metric sources, and the last report of each source."""

    def __init__(self, make: SeriesFactory) -> None:
        self._reports: Sequence[SourceReport] = ()
        make.registry.register(self)
        text = "Duration of a call to a metric source"
        self._answers = make.histograms("hpad_source_answer_seconds", text, ["source"])
        self._errors = make.counts("hpad_source_errors", "Calls that returned an error", ["source", "blame"])

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily("hpad_source_state", "1 for the state of the source", labels=["source", "state"])
        asked = CounterMetricFamily("hpad_source_questions", "Metrics that HPAs asked for", labels=["source"])
        hits = CounterMetricFamily("hpad_source_cache_hits", "Metrics answered without a call", labels=["source"])
        retries = CounterMetricFamily("hpad_source_retries", "Attempts after a failed one", labels=["source"])
        for each in self._reports:
            for name in SOURCE_STATES:
                state.add_metric([each.name, name], float(each.state == name))
            asked.add_metric([each.name], each.asked)
            hits.add_metric([each.name], each.hits)
            retries.add_metric([each.name], each.retries)
        yield from (state, asked, hits, retries)

    def configured(self, name: str) -> None:
        """Creates the series of a configured source, at zero."""
        self._answers.of(name)
        for blame in BLAMES:
            self._errors.create(name, blame)

    def report(self, reports: Sequence[SourceReport]) -> None:
        """Replaces the reports of all sources."""
        self._reports = reports

    def answered(self, source: str, seconds: float, error: AdapterError | None) -> None:
        """Counts one call to a source."""
        self._answers.of(source).observe(seconds)
        if error is not None:
            self._errors.count(source, error.blame)


_STALL_BUCKETS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ProcessSeries(registry.Collector):
    """Event loop, memory, watches and log of this process."""

    def __init__(self, make: SeriesFactory) -> None:
        prometheus_client.ProcessCollector(registry=make.registry)
        self._dropped_lines = 0
        make.registry.register(self)
        make.gauge("hpad_build_info", "The running version", ["version"]).labels(__version__).set(1)
        self.bugs = make.counter("hpad_bugs", "Unexpected exceptions")
        text = "Time that the event loop was blocked, for each long block"
        self.stalls = make.histogram("hpad_event_loop_stall_seconds", text, buckets=_STALL_BUCKETS)
        self._tasks = make.gauge("hpad_tasks", "Tasks of the event loop")
        self._blocks = make.gauge("hpad_allocated_blocks", "Blocks of memory that Python has in use")
        text = "Time since a watch last received anything"
        self._staleness = make.gauge("hpad_cache_staleness_seconds", text, ["resource"])

    def collect(self) -> Iterator[Metric]:
        """Yields the total that the log writer reported last."""
        text = "Log lines dropped because the reader of the log was too slow"
        yield CounterMetricFamily("hpad_log_lines_dropped", text, self._dropped_lines)

    def sample(self) -> None:
        """Sets the gauges of tasks and memory. Call it on the event loop."""
        self._tasks.set(len(asyncio.all_tasks()))
        self._blocks.set(sys.getallocatedblocks())

    def log_lines_dropped(self, lines: int) -> None:
        """Sets the total of log lines dropped since the start."""
        self._dropped_lines = lines

    def cache_staleness(self, resource: str, seconds: float) -> None:
        """Sets the seconds since the watch of a resource last received anything."""
        self._staleness.labels(resource).set(seconds)


class ElectionSeries:
    """Leader election."""

    def __init__(self, make: SeriesFactory) -> None:
        text = "1 while this process leads, 0 while it is a standby"
        self._leader = make.gauge("leader_election_master_status", text, ["name"])
        text = "Renewals that had to read the Lease first"
        self._slow_renewals = make.counter("leader_election_slowpath", text, ["name"])

    def leads(self, name: str, leading: bool) -> None:
        """Sets whether this process holds the Lease `name`."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        """Counts renewals that had to read the Lease first."""
        self._slow_renewals.labels(name).inc(times)


STORE_OPERATIONS: Final = ("load", "save", "decode")


class StoreSeries:
    """Reading and writing the state of HPAs."""

    def __init__(self, make: SeriesFactory) -> None:
        self._writes = make.counter("hpad_store_writes", "Saves of HPA state, one transaction for a group of HPAs")
        self._errors = make.counter("hpad_store_errors", "Failures to load, save or decode HPA state", ["operation"])
        self._seconds = make.histogram("hpad_store_seconds", "Duration of loading and saving HPA state", ["operation"])
        for operation in STORE_OPERATIONS:
            self._errors.labels(operation)
        self._bytes = make.gauge("hpad_store_bytes", "Size of the HPA state that survives a restart")
        self._hpas = make.gauge("hpad_store_hpas", "HPAs with stored state")

    def took(self, operation: str, seconds: float) -> None:
        """Records one attempt to read (`load`) or write (`save`) HPA state."""
        self._seconds.labels(operation).observe(seconds)
        if operation == "save":
            self._writes.inc()

    def failed(self, operation: str) -> None:
        """Counts a failed operation: one of STORE_OPERATIONS."""
        self._errors.labels(operation).inc()

    def size(self, hpas: int, size: int) -> None:
        """Sets the number of HPAs with stored state, and its size in bytes."""
        self._hpas.set(hpas)
        self._bytes.set(size)


class DecisionHistorySeries(registry.Collector):
    """The size of the decision history, and what it has lost."""

    def __init__(self, make: SeriesFactory) -> None:
        self._dropped = 0
        make.registry.register(self)
        self._bytes = make.gauge("hpad_decision_history_bytes", "Size of the decision history", ["where"])
        text = "1 while the decision history cannot be written to its file"
        self._unsaved = make.gauge("hpad_decision_history_unsaved", text)
        self.report(memory=0, disk=0, dropped=0, saved=True)

    def collect(self) -> Iterator[Metric]:
        """Yields the total that was reported last."""
        text = "Entries of the decision history deleted early because of its budgets of memory and disk"
        yield CounterMetricFamily("hpad_decision_history_dropped", text, self._dropped)

    def report(self, *, memory: int, disk: int, dropped: int, saved: bool) -> None:
        """Sets the bytes of memory and disk, the total of dropped entries, and whether the file can be written."""
        self._bytes.labels("memory").set(memory)
        self._bytes.labels("disk").set(disk)
        self._unsaved.set(int(not saved))
        self._dropped = dropped

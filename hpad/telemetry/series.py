"""Makes series in one registry; the series of metric sources, of the election, the store and the process."""

import asyncio
import sys
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import prometheus_client
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from hpad import __version__
from hpad.api.sample import AdapterError

KUBERNETES: Final = "horizontal_pod_autoscaler_controller_"
"""Prefix of the series that the Kubernetes controller exports too (pkg/controller/podautoscaler/monitor/metrics.go)."""
_DURATION_BUCKETS: Final = tuple(0.001 * 2**k for k in range(15))


class Counters(registry.Collector):
    """A counter for each combination of label values: plain numbers until a scrape.

    Those of prometheus_client find their series by a lock and a table of labels, and take another lock for each number:
    with some fifteen updates for each reconcile this was a twentieth of its CPU time. All updates of a series come from
    one thread; another one may collect meanwhile.
    """

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._head = name, text, labels
        self._counts: dict[tuple[str, ...], float] = {}

    def create(self, *values: str) -> None:
        """Creates the series of these label values, at zero."""
        self._counts.setdefault(values, 0)

    def count(self, *values: str, times: float = 1) -> None:
        """Adds to the series of these label values."""
        self._counts[values] = self._counts.get(values, 0) + times

    def reach(self, total: float) -> None:
        """Sets the series without labels to a total that is counted elsewhere."""
        self._counts[()] = total

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._head
        family = CounterMetricFamily(name, text, labels=labels)
        for values, number in self._counts.copy().items():
            family.add_metric(values, number)
        yield family


class Observations:
    """One histogram: the number of observations up to each bound, and their sum."""

    __slots__ = ("_bounds", "_numbers", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._numbers = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, amount: float) -> None:
        """Adds one observation."""
        self._numbers[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def cumulated(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the observations up to each bound, which is text, and the sum of all."""
        whole, buckets, total = self._numbers.copy(), [], 0
        for bound, number in zip((*self._bounds, float("inf")), whole, strict=True):
            total += number
            text = str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # the library has no hint there
            buckets.append((text, float(total)))
        return buckets, self._sum


class Histograms(registry.Collector):
    """A histogram for each combination of label values, as `Counters`; `bounds` are the upper bounds, ascending."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._head = name, text, labels
        self._bounds = tuple(bounds)
        self._of: dict[tuple[str, ...], Observations] = {}

    def of(self, *values: str) -> Observations:
        """Returns the histogram of these label values, which exists from then on."""
        found = self._of.get(values)
        if found is None:
            found = self._of[values] = Observations(self._bounds)
        return found

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._head
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, found in self._of.copy().items():
            buckets, total = found.cumulated()
            family.add_metric(values, buckets, total)
        yield family


class SeriesFactory:
    """Makes gauges, counters and histograms that belong to one registry."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        self.registry = to

    def counts(self, name: str, text: str, labels: Sequence[str] = ()) -> Counters:
        """Makes counters; one without labels exists from the start."""
        made = Counters(name, text, labels)
        if not labels:
            made.create()
        self.registry.register(made)
        return made

    def histograms(
        self, name: str, text: str, labels: Sequence[str] = (), bounds: Sequence[float] = _DURATION_BUCKETS
    ) -> Histograms:
        """Makes histograms."""
        made = Histograms(name, text, labels, bounds)
        self.registry.register(made)
        return made

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, text, labels, registry=self.registry)


BLAMES: Final = ("spec", "source", "cluster", "bug")


class SourceFigures(Protocol):
    """What a metric source reports: its state, and how often it was asked, gave a kept answer, and tried again."""

    name: str
    state: str
    asked: int
    hits: int
    retries: int


class SourceSeries(registry.Collector):
    """Calls to metric sources, and the last report of each source."""

    def __init__(self, make: SeriesFactory) -> None:
        self._reports: Sequence[SourceFigures] = ()
        self._states: Sequence[str] = ()
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
            for name in self._states:
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

    def report(self, reports: Sequence[SourceFigures], states: Sequence[str]) -> None:
        """Replaces the reports of all sources; `states` are those that a source may have."""
        self._reports, self._states = reports, states

    def answered(self, source: str, seconds: float, error: AdapterError | None) -> None:
        """Counts one call to a source."""
        self._answers.of(source).observe(seconds)
        if error is not None:
            self._errors.count(source, error.blame)


_STALL_BUCKETS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ProcessSeries:
    """Event loop, memory, watches and log of this process."""

    def __init__(self, make: SeriesFactory) -> None:
        prometheus_client.ProcessCollector(registry=make.registry)
        make.gauge("hpad_build_info", "The running version", ["version"]).labels(__version__).set(1)
        self.bugs = make.counts("hpad_bugs", "Unexpected exceptions")
        text = "Log lines dropped because the reader of the log was too slow"
        self._dropped_lines = make.counts("hpad_log_lines_dropped", text)
        text = "Time that the event loop was blocked, for each long block"
        self.stalls = make.histograms("hpad_event_loop_stall_seconds", text, bounds=_STALL_BUCKETS).of()
        self._tasks = make.gauge("hpad_tasks", "Tasks of the event loop")
        self._blocks = make.gauge("hpad_allocated_blocks", "Blocks of memory that Python has in use")
        text = "Time since a watch last received anything"
        self._staleness = make.gauge("hpad_cache_staleness_seconds", text, ["resource"])

    def sample(self) -> None:
        """Sets the gauges of tasks and memory. Call it on the event loop."""
        self._tasks.set(len(asyncio.all_tasks()))
        self._blocks.set(sys.getallocatedblocks())

    def log_lines_dropped(self, lines: int) -> None:
        """Sets the total of log lines dropped since the start."""
        self._dropped_lines.reach(lines)

    def cache_staleness(self, resource: str, seconds: float) -> None:
        """Sets the seconds since the watch of a resource last received anything."""
        self._staleness.labels(resource).set(seconds)


RELOADS: Final = ("applied", "rejected")


class BudgetSeries:
    """The budgets that HPAs share, in whole units: replicas or cores. A standby has none."""

    def __init__(self, make: SeriesFactory) -> None:
        labels = ["budget", "unit"]
        self._amount = make.gauge("hpad_budget_amount", "Replicas or cores that HPAs share by a budget", labels)
        self._held = make.gauge("hpad_budget_held", "Replicas or cores that its HPAs hold or were granted", labels)
        self._wanted = make.gauge("hpad_budget_wanted", "Replicas or cores that its HPAs want without it", labels)

    def clear(self) -> None:
        """Removes all series."""
        for each in (self._amount, self._held, self._wanted):
            each.clear()

    def set(self, name: str, unit: str, milli: tuple[int, int, int]) -> None:
        """Sets amount, held and wanted of a budget, in milli-units."""
        for gauge, value in zip((self._amount, self._held, self._wanted), milli, strict=True):
            gauge.labels(name, unit).set(value / 1000)


NOTIFIED: Final = ("sent", "failed", "dropped")


class NotifySeries:
    """The messages of `notify`."""

    def __init__(self, make: SeriesFactory) -> None:
        text = (
            "Messages by destination: sent, failed (refused, or lost after all attempts), dropped (the queue was full)"
        )
        self._messages = make.counts("hpad_notify_messages", text, ["destination", "result"])

    def configured(self, destination: str) -> None:
        """Creates the series of a destination, at zero."""
        for result in NOTIFIED:
            self._messages.create(destination, result)

    def count(self, destination: str, result: str, number: int) -> None:
        """Counts messages; `result` is one of NOTIFIED."""
        self._messages.count(destination, result, times=number)


class SettingsSeries:
    """The settings that are read again while hpad runs."""

    def __init__(self, make: SeriesFactory) -> None:
        text = "How often the settings were read again, and what became of them"
        self._reloads = make.counts("hpad_settings_reloads", text, ["result"])
        for result in RELOADS:
            self._reloads.create(result)
        text = "1 while changed settings, or files that they name, are rejected"
        self._rejected = make.gauge("hpad_settings_rejected", text)

    def reloaded(self, result: str) -> None:
        """Counts a reload; `result` is one of RELOADS."""
        self._reloads.count(result)

    def rejected(self, rejected: bool) -> None:
        """Sets whether the present files are rejected."""
        self._rejected.set(int(rejected))


class ElectionSeries:
    """Leader election."""

    def __init__(self, make: SeriesFactory) -> None:
        text = "1 while this process leads, 0 while it is a standby"
        self._leader = make.gauge("leader_election_master_status", text, ["name"])
        text = "Renewals that had to read the Lease first"
        self._slow_renewals = make.counts("leader_election_slowpath", text, ["name"])

    def leads(self, name: str, leading: bool) -> None:
        """Sets whether this process holds the Lease `name`."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        """Counts renewals that had to read the Lease first."""
        self._slow_renewals.count(name, times=times)


STORE_OPERATIONS: Final = ("load", "save", "decode")


class StoreSeries:
    """Reading and writing the state of HPAs."""

    def __init__(self, make: SeriesFactory) -> None:
        self._writes = make.counts("hpad_store_writes", "Saves of HPA state, one transaction for a group of HPAs")
        self._errors = make.counts("hpad_store_errors", "Failures to load, save or decode HPA state", ["operation"])
        self._seconds = make.histograms("hpad_store_seconds", "Duration of loading and saving HPA state", ["operation"])
        for operation in STORE_OPERATIONS:
            self._errors.create(operation)
        self._bytes = make.gauge("hpad_store_bytes", "Size of the HPA state that survives a restart")
        self._hpas = make.gauge("hpad_store_hpas", "HPAs with stored state")

    def took(self, operation: str, seconds: float) -> None:
        """Records one attempt to read (`load`) or write (`save`) HPA state."""
        self._seconds.of(operation).observe(seconds)
        if operation == "save":
            self._writes.count()

    def failed(self, operation: str) -> None:
        """Counts a failed operation: one of STORE_OPERATIONS."""
        self._errors.count(operation)

    def size(self, hpas: int, size: int) -> None:
        """Sets the number of HPAs with stored state, and its size in bytes."""
        self._hpas.set(hpas)
        self._bytes.set(size)


class DecisionHistorySeries:
    """The size of the decision history, and what it has lost."""

    def __init__(self, make: SeriesFactory) -> None:
        text = "Entries of the decision history deleted early because of its budgets of memory and disk"
        self._dropped = make.counts("hpad_decision_history_dropped", text)
        self._bytes = make.gauge("hpad_decision_history_bytes", "Size of the decision history", ["where"])
        text = "1 while the decision history cannot be written to its file"
        self._unsaved = make.gauge("hpad_decision_history_unsaved", text)
        self.report(memory=0, disk=0, dropped=0, saved=True)

    def report(self, *, memory: int, disk: int, dropped: int, saved: bool) -> None:
        """Sets the bytes of memory and disk, the total of dropped entries, and whether the file can be written."""
        self._bytes.labels("memory").set(memory)
        self._bytes.labels("disk").set(disk)
        self._unsaved.set(int(not saved))
        self._dropped.reach(dropped)

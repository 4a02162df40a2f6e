"""Series of the process (event loop, memory, watches, log), of leader election and sharding, and of the store."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Final

import prometheus_client
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, Metric

from hpad import __version__
from hpad.telemetry.series import SeriesFactory

_STALL_BUCKETS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _LogLines(registry.Collector):
    """Exports the total that the log writer reported last."""

    def __init__(self) -> None:
        self.dropped = 0

    def collect(self) -> Iterator[Metric]:
        text = "Log lines dropped because the reader of the log was too slow"
        yield CounterMetricFamily("hpad_log_lines_dropped", text, self.dropped)


class ProcessSeries:
    """Event loop, memory, watches and log of this process."""

    def __init__(self, make: SeriesFactory) -> None:
        prometheus_client.ProcessCollector(registry=make.registry)
        self._log_lines = _LogLines()
        make.registry.register(self._log_lines)
        make.gauge("hpad_build_info", "The running version", ["version"]).labels(__version__).set(1)
        self._bugs = make.counter("hpad_bugs", "Unexpected exceptions")
        text = "Time that the event loop was blocked, for each long block"
        self._stalls = make.histogram("hpad_event_loop_stall_seconds", text, buckets=_STALL_BUCKETS)
        self._tasks = make.gauge("hpad_tasks", "Tasks of the event loop")
        self._blocks = make.gauge("hpad_allocated_blocks", "Blocks of memory that Python has in use")
        text = "Time since a watch last received anything"
        self._staleness = make.gauge("hpad_cache_staleness_seconds", text, ["resource"])

    def sample(self) -> None:
        """Reads what can be read at any time. Call it on the event loop."""
        self._tasks.set(len(asyncio.all_tasks()))
        self._blocks.set(sys.getallocatedblocks())

    def bug(self) -> None:
        """Counts an unexpected exception."""
        self._bugs.inc()

    def stalled(self, seconds: float) -> None:
        """Records that the event loop was blocked for `seconds`."""
        self._stalls.observe(seconds)

    def log_lines_dropped(self, lines: int) -> None:
        """Sets the total of log lines dropped since the start."""
        self._log_lines.dropped = lines

    def cache_staleness(self, resource: str, seconds: float) -> None:
        """Sets the seconds since the watch of a resource last received anything."""
        self._staleness.labels(resource).set(seconds)


class ElectionSeries:
    """Leader election, and the distribution of HPAs over several replicas of hpad."""

    def __init__(self, make: SeriesFactory) -> None:
        text = "1 while this process leads, 0 while it is a standby"
        self._leader = make.gauge("leader_election_master_status", text, ["name"])
        text = "Renewals that had to read the Lease first"
        self._slow_renewals = make.counter("leader_election_slowpath", text, ["name"])
        self._members = make.gauge("hpad_shard_members", "Replicas that share the HPAs, as seen by this one")
        self._owned = make.gauge("hpad_shard_hpas", "HPAs that this process controls")
        self._handoffs = make.counter("hpad_shard_handovers", "HPAs that were reassigned", ["direction"])
        for direction in ("gained", "lost"):
            self._handoffs.labels(direction)

    def leads(self, name: str, leading: bool) -> None:
        """Sets whether this process holds the Lease `name`."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        """Counts renewals that had to read the Lease first."""
        self._slow_renewals.labels(name).inc(times)

    def members(self, count: int) -> None:
        """Sets how many replicas share the HPAs, including this one; 0 while this one owns none."""
        self._members.set(count)

    def owned(self, count: int) -> None:
        """Sets how many HPAs this process controls."""
        self._owned.set(count)

    def handed_off(self, gained: int, lost: int) -> None:
        """Counts HPAs that were assigned to this process, and HPAs that were taken from it."""
        self._handoffs.labels("gained").inc(gained)
        self._handoffs.labels("lost").inc(lost)


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

"""How the process itself fares: its loop, its memory, its log.

Who leads, and who shares the HPAs, where there may be several hpads.

How histories are kept.
"""

import asyncio
import sys
from collections.abc import Iterator
from typing import Final

import prometheus_client
from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, Metric

from hpad import __version__
from hpad.telemetry.series import Series

_STALL_BUCKETS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _LogLines(registry.Collector):
    """What whoever writes the log has counted, as it was told last."""

    def __init__(self) -> None:
        self.dropped = 0

    def collect(self) -> Iterator[Metric]:
        help_ = "Lines of the log that were dropped because nobody read it fast enough"
        yield CounterMetricFamily("hpad_log_lines_dropped", help_, self.dropped)


class Process(Series):
    """Fed by whoever watches over it."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        prometheus_client.ProcessCollector(registry=to)
        self._log_lines = _LogLines()
        to.register(self._log_lines)
        self._gauge("hpad_build_info", "The running version", ["version"]).labels(__version__).set(1)
        self._bugs = self._counter("hpad_bugs", "Exceptions nobody expected")
        self._stalls = self._histogram(
            "hpad_event_loop_stall_seconds",
            "How long the event loop did not turn, each time that was long",
            buckets=_STALL_BUCKETS,
        )
        self._tasks = self._gauge("hpad_tasks", "Tasks of the event loop")
        self._blocks = self._gauge("hpad_allocated_blocks", "Blocks of memory that Python has in use")
        self._staleness = self._gauge(
            "hpad_cache_staleness_seconds", "Time since a watch last gave a sign of life", ["resource"]
        )

    def look_at_process(self) -> None:
        """Set what is to be had at any time, on the loop."""
        self._tasks.set(len(asyncio.all_tasks()))
        self._blocks.set(sys.getallocatedblocks())

    def bug(self) -> None:
        self._bugs.inc()

    def stalled(self, seconds: float) -> None:
        """The event loop did not turn for that long."""
        self._stalls.observe(seconds)

    def log_lines_dropped(self, lines: int) -> None:
        """So many lines of the log have been dropped up to now."""
        self._log_lines.dropped = lines

    def stale(self, resource: str, seconds: float) -> None:
        self._staleness.labels(resource).set(seconds)


class Sharing(Series):
    """Fed by whoever stands for election or has a share."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._leader = self._gauge(
            "leader_election_master_status", "1 while this process leads, 0 while it stands by", ["name"]
        )
        self._slow_renewals = self._counter(
            "leader_election_slowpath", "Renewals that had to read the Lease first", ["name"]
        )
        self._members = self._gauge("hpad_shard_members", "Members that share the HPAs, as this one sees it")
        self._owned = self._gauge("hpad_shard_hpas", "HPAs that this process acts on")
        self._handovers = self._counter("hpad_shard_handovers", "HPAs that changed hands", ["direction"])
        for direction in ("gained", "lost"):
            self._handovers.labels(direction)

    def leads(self, name: str, leading: bool) -> None:
        """Whether this process leads, by the name of the Lease."""
        self._leader.labels(name).set(int(leading))

    def renewed_slowly(self, name: str, times: int) -> None:
        self._slow_renewals.labels(name).inc(times)

    def members(self, count: int) -> None:
        """How many members share the HPAs, ourselves included; 0 while we have no share."""
        self._members.set(count)

    def owned(self, count: int) -> None:
        """How many HPAs are ours."""
        self._owned.set(count)

    def handed_over(self, gained: int, lost: int) -> None:
        """So many HPAs have become ours, and so many are not any more, because of who shares them."""
        self._handovers.labels("gained").inc(gained)
        self._handovers.labels("lost").inc(lost)


STORE_OPERATIONS: Final = ("load", "save", "decode")


class Stores(Series):
    """Fed by the store."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._store_writes = self._counter("hpad_store_writes", "Saves of histories, each one transaction a group")
        self._store_errors = self._counter("hpad_store_errors", "What went wrong with histories", ["operation"])
        self._store_seconds = self._histogram("hpad_store_seconds", "Reading and saving histories", ["operation"])
        for operation in STORE_OPERATIONS:
            self._store_errors.labels(operation)
        self._store_bytes = self._gauge("hpad_store_bytes", "What histories take where they survive a restart")
        self._store_hpas = self._gauge("hpad_store_hpas", "HPAs that something is remembered of")

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

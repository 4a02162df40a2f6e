"""How the process itself fares: its loop, its memory, its caches, its log."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
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
        self._memory_limit = self._gauge(
            "hpad_memory_limit_bytes", "What memory is limited to, and by what", ["origin"]
        )
        self._memory_level = self._gauge("hpad_memory_level", "0: enough; 1: caches are emptied; 2: load is shed")
        self._make_caches()

    def _make_caches(self) -> None:
        self._entries = self._gauge("hpad_cache_entries", "Entries of what is kept for convenience", ["cache"])
        self._emptied = self._counter("hpad_caches_emptied", "Times that caches were emptied for lack of memory")
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

    def memory_limits(self, bytes_by_origin: Mapping[str, int]) -> None:
        """All limits in force; none: no series."""
        self._memory_limit.clear()
        for origin, size in bytes_by_origin.items():
            self._memory_limit.labels(origin).set(size)

    def memory_level(self, level: int) -> None:
        """How short memory is (`pressure.Level`)."""
        self._memory_level.set(level)

    def caches_emptied(self) -> None:
        self._emptied.inc()

    def cached(self, entries: Mapping[str, int]) -> None:
        """How much there is in each cache."""
        for cache, count in entries.items():
            self._entries.labels(cache).set(count)

    def stale(self, resource: str, seconds: float) -> None:
        self._staleness.labels(resource).set(seconds)

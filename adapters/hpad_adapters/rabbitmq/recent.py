"""What was read and asked for in the last seconds: the broker reports new consumers late."""

from collections import deque

import msgspec

REPORTED = 10.0
"""Seconds after which the broker has reported a new consumer. Observed in RabbitMQ 3.10."""
_APART = 0.5
"""Reads that follow each other sooner are one, so that there are few of them."""


class _Read(msgspec.Struct):
    at: float
    capacity: float
    needed: float | None = None


class Recent:
    """The reads of a queue in the last REPORTED seconds, and the one before.

    Workers that the broker does not report yet were asked for: that bounds how many of them there are, whatever number
    of messages each fetches ahead. Times are seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._reads: deque[_Read] = deque()

    def add(self, at: float, capacity: float | None) -> None:
        """Adds a read. `capacity`: how many messages the reported consumers work on at once, None if unreported."""
        if capacity is None:
            capacity = self._reads[-1].capacity if self._reads else 0.0
        if self._reads and at < self._reads[-1].at + _APART:
            self._reads[-1].capacity = capacity
        else:
            self._reads.append(_Read(at, capacity))
        while len(self._reads) > 1 and self._reads[1].at <= at - REPORTED:
            self._reads.popleft()

    def ask(self, workers: float) -> None:
        """Notes a number of workers that the goal needs, by the last read; the largest one of a read counts."""
        self._reads[-1].needed = max(workers, self._reads[-1].needed or 0.0)

    @property
    def capacity(self) -> tuple[float, float]:
        """The least and the most that the reported consumers could work on."""
        found = [read.capacity for read in self._reads]
        return min(found), max(found)

    @property
    def asked(self) -> float | None:
        """The largest number of workers that the goal needed, None if no read has told."""
        return max((read.needed for read in self._reads if read.needed is not None), default=None)

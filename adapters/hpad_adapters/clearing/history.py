"""What is remembered of a queue beside the time of its messages: recent reads, and since when messages wait."""

import math
from collections import deque
from typing import NamedTuple

import msgspec

# What was read and asked for in the last seconds: a broker may report new consumers late.

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


# When a backlog is due: one that was there at an earlier read has less time left than a new one.
#
# Without this, the goal would restart at each read, and a count that is too small would never be corrected.

_MARKS = 16
"""Reads that are remembered per goal."""
_HASTE = 2.0
"""Late messages ask for at most so many times the workers that new ones ask for."""


class WaitingMessages(NamedTuple):
    """Waiting messages at a time (seconds).

    `published`: all that were ever published, but for a constant; `rate`: how many usually are, per second.
    """

    at: float
    messages: float
    published: float
    rate: float = 0.0


class _Mark(msgspec.Struct):
    """A read. `at`: half-way from the read before, when its messages came. `least`: the fewest that waited since."""

    at: float
    published: float
    least: float


class Due:
    """The rate at which the waiting messages of one queue have to be begun, for a goal."""

    def __init__(self, goal: float, startup: float) -> None:
        self._goal, self._startup = goal, startup
        self._shortest = (goal - startup) / _HASTE
        self._marks: list[_Mark] = []
        self._read = -math.inf
        """When the queue was read last."""

    def per_second(self, now: WaitingMessages) -> float:
        """Remembers a read; returns messages per second, so that the backlog is gone within the goal after it came.

        The usual messages take workers of their own, so they do not excuse what is left of a backlog. More than usual
        are a backlog of their own, which is due later.
        """
        for mark in self._marks:
            mark.least = min(mark.least, now.messages)
        self._marks = [each for each in self._marks if each.least > 0]
        rates = [_still(mark, now) / self._left(now.at - mark.at) for mark in self._marks]
        self._remember(now)
        self._read = now.at
        return max([now.messages / self._left(0.0), *rates])

    def _left(self, age: float) -> float:
        """Returns the seconds in which messages that were seen so long ago are to be begun.

        Nothing can be begun by new workers before they have started, so that time is not lost yet.
        """
        return max(self._shortest, self._goal - max(self._startup, age))

    def _remember(self, now: WaitingMessages) -> None:
        if now.messages <= 0 or (self._marks and now.at - self._marks[-1].at < self._goal / _MARKS):
            return
        # Of marks older than the goal one is enough: their messages are late alike.
        while len(self._marks) > 1 and self._marks[1].at <= now.at - self._goal:
            del self._marks[0]
        since = min(now.at - self._read, self._goal) if self._read > -math.inf else 0.0
        self._marks.append(_Mark(now.at - since / 2, now.published, now.messages))


def _still(mark: _Mark, now: WaitingMessages) -> float:
    """Returns how many messages of the backlog at a mark wait still."""
    more = now.published - mark.published - now.rate * (now.at - mark.at)
    return min(mark.least, now.messages - max(0.0, more))

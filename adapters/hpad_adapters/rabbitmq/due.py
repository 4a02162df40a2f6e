"""When a backlog is due: one that was there at an earlier read has less time left than a new one.

Without this, the goal would restart at each read, and a count that is too small would never be corrected.
"""

import math
from typing import NamedTuple

import msgspec

_MARKS = 16
"""Reads that are remembered per goal."""
_HASTE = 2.0
"""Late messages ask for at most so many times the workers that new ones ask for."""


class Waiting(NamedTuple):
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

    def per_second(self, now: Waiting) -> float:
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

    def _remember(self, now: Waiting) -> None:
        if now.messages <= 0 or (self._marks and now.at - self._marks[-1].at < self._goal / _MARKS):
            return
        # Of marks older than the goal one is enough: their messages are late alike.
        while len(self._marks) > 1 and self._marks[1].at <= now.at - self._goal:
            del self._marks[0]
        since = min(now.at - self._read, self._goal) if self._read > -math.inf else 0.0
        self._marks.append(_Mark(now.at - since / 2, now.published, now.messages))


def _still(mark: _Mark, now: Waiting) -> float:
    """Returns how many messages of the backlog at a mark wait still."""
    more = now.published - mark.published - now.rate * (now.at - mark.at)
    return min(mark.least, now.messages - max(0.0, more))

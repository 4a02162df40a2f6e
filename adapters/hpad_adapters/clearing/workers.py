"""How many workers clear a queue within a goal, and how long the present ones take.

A worker here is whatever works on one message at a time. To clear the waiting messages within the goal while more are
published, it takes

    needed = long + waiting / (goal - startup) * service time + publish rate * service time

of them, and for the waiting messages no more than one each. Messages that waited before have less time left (`Due`).

This number depends on the present workers in one way only: while there is work for longer than a moment, those that
are busy stay. A worker that is released before the backlog is gone saves nothing, because the others then work for
longer; without this rule the count would shrink with the backlog, which would then never be gone.

While few messages have been measured, it is at most twice the present workers: one odd message could make it many
times too large, and each doubling measures more. New workers get ready messages only, so there are never more new ones
than ready and arriving messages: a consumer without a prefetch limit holds all others until it is done.

| what | source |
| --- | --- |
| waiting | ready messages, and those that wait in consumers, as of now |
| long | messages that have been in work for longer than the goal: their workers do not help (`service_time`) |
| publish rate | the mean over `rate_window` without its busiest and quietest intervals: a burst is backlog |
| service time | measured and remembered; that of the settings is a part of the evidence (`service_time`) |
| busy | messages in work, as of now; for as many workers as the broker reports or were just asked for (`Recent`) |
"""

import itertools
import math
import statistics
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.clearing.goal import ClearingGoal, CounterPoint, MeasuredQueue
from hpad_adapters.clearing.service_time import ServiceTime, at_work

MOST_QUEUES = 4096
"""The number of queues and goals that are remembered; the one that was read longest ago is dropped first."""
LONG_SECONDS = 0.5
"""Work that takes so long keeps busy workers. Shorter work is noise: a message or two that have just arrived."""
_TRIMMED = 6
"""Of the intervals of the publish rate, one in six is left out at each end."""
_FEWEST = 2
"""At least so many are left out: a burst is in up to two intervals, and in a young queue there are no others."""
_GROWTH = 2.0
"""While the time of a message is that of few messages, at most so many times the present workers are needed."""
LEAST = 0.001
"""A queue that holds a message needs a worker."""


class _Known:
    """What is remembered of a queue, for a goal."""

    def __init__(self, goal: ClearingGoal) -> None:
        self.time = ServiceTime(goal.service, goal.seconds)
        self.recent = Recent()
        self.due = Due(goal.seconds, goal.startup)


class _Work(NamedTuple):
    """Messages of a queue: all, those that wait for a worker, those in work, and of these the long ones.

    `begin`: how many of the waiting ones have to be begun per second; `arriving`: how many come.
    """

    messages: float
    waiting: float
    busy: float
    long: float
    begin: float
    arriving: float


class Clearing:
    """Makes the numbers of workers and of seconds, and remembers the service times of queues.

    `monotonic` returns seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[Hashable, ClearingGoal], _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def workers(self, queue: MeasuredQueue, wanted: ClearingGoal) -> float:
        """Returns how many messages have to be worked on at once; raises AdapterError where that is unknown.

        Of a queue with a single active consumer, no more than one consumer can work on.
        """
        needed = self._needed(queue, wanted)
        return min(needed, wanted.concurrency) if queue.single else needed

    def _needed(self, queue: MeasuredQueue, wanted: ClearingGoal) -> float:
        known = self._remembered(queue, wanted)
        now = self._monotonic()
        known.recent.add(now, queue.capacity)
        known.time.learn(queue, wanted.prefetch, known.recent.capacity)
        service, work = known.time.seconds, _work(queue, wanted, known, now)
        needed = _needed(queue, work, service)
        if not known.time.sure:
            growth = 1.0 if known.time.given_back else _GROWTH  # more of what crashes does not help
            needed = min(needed, max(1.0, growth * (queue.capacity or 0.0)))
        if present := known.recent.capacity[1]:
            needed = min(needed, present + queue.ready + work.arriving * (service or 0.0))
        known.recent.ask(needed)
        if not work.messages:
            return needed
        if service is None or work.messages * service >= LONG_SECONDS * work.busy:
            needed = max(needed, work.busy)
        return max(needed, LEAST)

    def seconds(self, queue: MeasuredQueue, wanted: ClearingGoal) -> float:
        """Returns the goal times the needed workers by the present ones, of which there is at least one."""
        needed = self._needed(queue, wanted)
        return wanted.seconds * needed / max(wanted.concurrency, _capacity(queue))

    def _remembered(self, queue: MeasuredQueue, wanted: ClearingGoal) -> _Known:
        place = queue.place, wanted
        known = self._known.get(place) or self._known.setdefault(place, _Known(wanted))
        self._known.move_to_end(place)
        if len(self._known) > MOST_QUEUES:
            self._known.popitem(last=False)
        return known


def _work(queue: MeasuredQueue, wanted: ClearingGoal, known: _Known, now: float) -> _Work:
    """Returns the work as of now.

    A broker reports consumers late, for some seconds after a restart none, and those of a young queue not at all.
    """
    messages, held = queue.ready + queue.held, queue.held
    capacity = queue.capacity or known.recent.capacity[1]
    full = held / wanted.prefetch
    if not capacity and known.recent.asked is None:  # hpad has just started: full consumers have begun their work
        known.recent.ask(full)
    busy = min(held, max(capacity, min(known.recent.asked or 0.0, full)))
    working = busy if capacity else at_work(held, wanted.prefetch, capacity)
    if queue.at_work is not None:
        busy = working = queue.at_work
    waiting = max(0.0, messages - working)
    arriving = _publish_rate(queue.published)
    done = queue.done[-1].sample if queue.done else 0
    begin = known.due.per_second(WaitingMessages(now, waiting, messages + done, arriving))
    return _Work(messages, waiting, busy, min(known.time.long, busy), begin, arriving)


def _needed(queue: MeasuredQueue, work: _Work, service: float | None) -> float:
    """Returns the workers that the goal needs; raises AdapterError where the service time is unknown and needed."""
    if not work.waiting and not work.arriving:
        return 0.0
    if service is not None:
        return work.long + min(work.waiting, work.begin * service) + work.arriving * service
    if not _capacity(queue):
        return 1.0  # the first worker shows how long a message takes
    raise AdapterError(
        f"too few messages of {queue.name} have been finished to tell how long one takes "
        "(until then, service_time gives it)",
        "spec",
    )


def _capacity(queue: MeasuredQueue) -> float:
    if queue.capacity is None:
        raise AdapterError(queue.no_capacity, "spec")
    return queue.capacity


def _publish_rate(points: Sequence[CounterPoint]) -> float:
    """Returns messages per second, 0 where too few intervals are known: then all that was published is backlog."""
    rates = sorted(
        max(0, later.sample - earlier.sample) * 1000 / (later.timestamp - earlier.timestamp)
        for earlier, later in itertools.pairwise(points)
    )
    left_out = max(_FEWEST, len(rates) // _TRIMMED)
    usual = rates[left_out : len(rates) - left_out]
    return statistics.fmean(usual) if usual else 0.0


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

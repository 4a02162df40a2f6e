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
| busy | messages in work, as of now; for as many workers as the broker reports or were just asked for (`history`) |
"""

import itertools
import statistics
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from hpad.adapter import AdapterError
from hpad_adapters.clearing.goal import ClearingGoal, CounterPoint, MeasuredQueue
from hpad_adapters.clearing.history import Due, Recent, WaitingMessages
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

"""How many workers clear a queue within a goal, and how long the present ones take.

A worker here is whatever works on one message at a time. To clear the waiting messages within the goal while more are
published, it takes

    needed = (waiting / (goal - startup) + publish rate) * service time

of them. This number depends on the present workers in one way only: while there is work for longer than a moment, those
that are busy stay. A worker that is released before the backlog is gone saves nothing, because the others then work for
longer; without this rule the count would shrink with the backlog, which would then never be gone.

| what | source |
| --- | --- |
| waiting | ready messages, and those that wait in consumers, as of now |
| publish rate | the mean over `rate_window` without its busiest and quietest intervals: a burst is backlog |
| service time | measured and remembered (`service_time`), else `service_time` of the settings |
"""

import itertools
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from hpad.adapter import AdapterError, parse_duration, positive_duration, shown
from hpad_adapters.rabbitmq.queues import Queue, field, named
from hpad_adapters.rabbitmq.service_time import ServiceTimes, busy_now

LONG_SECONDS = 0.5
"""Work that takes so long keeps busy workers. Shorter work is noise: a message or two that have just arrived."""
_MOST = 100_000
_TRIMMED = 6
"""Of the intervals of the publish rate, one in six is left out at each end."""
_FEWEST = 2
"""At least so many are left out: a burst is in up to two intervals, and in a young queue there are no others."""
_LEAST = 0.001
"""A queue that holds a message needs a worker."""


class Goal(NamedTuple):
    """Durations in seconds. `service`: the time of a message while none was measured, 0 if it is not given.

    `prefetch`: messages that a consumer holds for each that it works on; `concurrency`: those that it works on at once.
    """

    seconds: float
    startup: float = 0.0
    service: float = 0.0
    prefetch: int = 1
    concurrency: int = 1


def parsed_goal(texts: Mapping[str, str]) -> Goal:
    """Returns the goal that texts by parameter set, "" for the default; raises ValueError, "field: text"."""
    if not texts["goal"]:
        raise ValueError("goal: is missing; write the time in which the backlog is to be gone, such as 60s")
    seconds = positive_duration("goal", texts["goal"]).total_seconds()
    startup = _duration("startup", texts["startup"])
    if not 0 <= startup < seconds:
        raise ValueError(f"startup: {shown(texts['startup'])} is not between 0s and the goal of {texts['goal']}")
    service = positive_duration("service_time", texts["service_time"] or "1s").total_seconds()
    prefetch, concurrency = (_whole(name, texts[name]) for name in ("prefetch", "concurrency"))
    return Goal(seconds, startup, service if texts["service_time"] else 0.0, prefetch, concurrency)


def _duration(field: str, text: str) -> float:
    try:
        return parse_duration(text or "0s").total_seconds()
    except ValueError as error:
        raise ValueError(f"{field}: {error}") from None


def _whole(field: str, text: str) -> int:
    if text and (not text.isdecimal() or not 1 <= int(text) <= _MOST):
        raise ValueError(f"{field}: {shown(text)} is not a whole number from 1 to {_MOST}")
    return int(text or 1)


class Clearing:
    """Makes the values of `workers_to_clear` and `time_to_clear`, and remembers the service times of queues."""

    def __init__(self) -> None:
        self._times = ServiceTimes()

    def workers(self, queue: Queue, wanted: Goal, where: str) -> float:
        """Returns how many messages have to be worked on at once; raises AdapterError where that is unknown."""
        needed, service = self._needed(queue, wanted, where)
        backlog = field(queue, "messages", where)
        if not backlog:
            return needed
        busy = busy_now(queue, wanted.prefetch, wanted.concurrency)
        if service is None or backlog * service >= LONG_SECONDS * busy:
            needed = max(needed, busy)
        return max(needed, _LEAST)

    def seconds(self, queue: Queue, wanted: Goal, where: str) -> float:
        """Returns the goal times the needed workers by the present ones, of which there is at least one."""
        needed = self.workers(queue, wanted, where)
        return wanted.seconds * needed / (max(1.0, _consumers(queue, where)) * wanted.concurrency)

    def _needed(self, queue: Queue, wanted: Goal, where: str) -> tuple[float, float | None]:
        """Returns the workers that the goal needs, and the service time, None where it is unknown and not needed."""
        waiting = field(queue, "messages", where) - busy_now(queue, wanted.prefetch, wanted.concurrency)
        service = self._times.learn(queue, wanted.prefetch, wanted.concurrency) or wanted.service or None
        arriving = _publish_rate(queue, where)
        if waiting <= 0 and not arriving:
            return 0.0, service
        if service is not None:
            return (max(0.0, waiting) / (wanted.seconds - wanted.startup) + arriving) * service, service
        if not _consumers(queue, where):
            return 1.0, None  # the first worker shows how long a message takes
        raise AdapterError(
            f"{named(queue, where)} has had too few acknowledgements to tell how long a message takes "
            "(until then, service_time gives it)",
            "spec",
        )


def _consumers(queue: Queue, where: str) -> int:
    if queue.consumers is None:
        raise AdapterError(
            f"the answer about {named(queue, where)} has no consumers: "
            "the broker collects its statistics for the first time some seconds after it was made",
            "spec",
        )
    return queue.consumers


def _publish_rate(queue: Queue, where: str) -> float:
    """Returns messages per second, 0 where too few intervals are known: then all that was published is backlog."""
    if queue.message_stats is None:
        raise AdapterError(
            f"the answer about {named(queue, where)} has no message_stats: the broker keeps no rates "
            "(rates_mode, disable_metrics_collector)",
            "spec",
        )
    details = queue.message_stats.publish_details
    points = sorted(details.samples or (), key=lambda point: point.timestamp) if details is not None else []
    rates = sorted(
        max(0, later.sample - earlier.sample) * 1000 / (later.timestamp - earlier.timestamp)
        for earlier, later in itertools.pairwise(points)
    )
    left_out = max(_FEWEST, len(rates) // _TRIMMED)
    usual = rates[left_out : len(rates) - left_out]
    return statistics.fmean(usual) if usual else 0.0

"""How long a message takes, from the statistics of the broker, remembered per queue.

The time is measured by Little's law: the messages that consumers work on, summed over time, divided by the messages
that they began in that time. Both come from the same samples, so that it also holds while consumers start or are idle.
Source: J. D. C. Little, "A Proof for the Queuing Formula: L = λW", 1961; HTTP API reference of the
rabbitmq_management plugin (`msg_rates_age`, `lengths_age`).
"""

import itertools
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from hpad_adapters.rabbitmq.queues import Details, Lengths, Point, Queue

MOST_QUEUES = 4096
"""The number of queues that are remembered; the one that was read longest ago is dropped first."""
HALF_LIFE = 600.0
"""Seconds of the broker's time after which a measurement has half its weight."""
_LATE = 5_000
"""Milliseconds by which the samples of lengths are dated later than those of rates. Observed in RabbitMQ 3.10."""
_YOUNG = 2
"""Intervals with work that a measurement needs: the counts of one are up to an interval apart."""

Place = tuple[str, str, int, int]
"""Vhost, name, prefetch and concurrency of a queue."""


class _Measured(msgspec.Struct):
    """`busy`: messages worked on, times seconds; `begun`: messages. `until`: the newest sample (ms since 1970)."""

    until: int = 0
    busy: float = 0.0
    begun: float = 0.0
    intervals: int = 0


class ServiceTimes:
    """The mean time of a message of each queue that was read, over about the last ten minutes of work."""

    def __init__(self) -> None:
        self._measured: OrderedDict[Place, _Measured] = OrderedDict()

    def __len__(self) -> int:
        return len(self._measured)

    def learn(self, queue: Queue, prefetch: int, concurrency: int) -> float | None:
        """Adds what is new in the queue's samples; returns the seconds of a message, None as long as they are unknown.

        Reading the same samples twice changes nothing.
        """
        place = queue.vhost, queue.name, prefetch, concurrency
        measured = self._measured.setdefault(place, _Measured())
        self._measured.move_to_end(place)
        if len(self._measured) > MOST_QUEUES:
            self._measured.popitem(last=False)
        acked = _ascending(queue.message_stats.ack_details if queue.message_stats is not None else None)
        unacknowledged = _ascending(queue.messages_unacknowledged_details)
        busy = {each.timestamp - _LATE: _at_work(queue, each.sample, prefetch, concurrency) for each in unacknowledged}
        for earlier, later in itertools.pairwise(acked):
            if earlier.timestamp >= measured.until and earlier.timestamp in busy and later.timestamp in busy:
                _add(measured, (earlier, later), (busy[earlier.timestamp], busy[later.timestamp]))
        if measured.intervals < _YOUNG or measured.busy <= 0 or measured.begun <= 0:
            return None
        return measured.busy / measured.begun


def busy_now(queue: Queue, prefetch: int, concurrency: int) -> float:
    """Returns the number of messages that are worked on now."""
    return _at_work(queue, queue.messages_unacknowledged or 0, prefetch, concurrency)


def _at_work(queue: Queue, unacknowledged: int, prefetch: int, concurrency: int) -> float:
    """Returns how many of the unacknowledged messages are worked on: the others wait in consumers.

    Each consumer works on as many as it can. The broker reports new consumers late, but full ones hold `prefetch`
    messages for each that they work on.
    """
    return min(unacknowledged, max((queue.consumers or 0) * concurrency, unacknowledged / prefetch))


def _ascending(details: Details | Lengths | None) -> Sequence[Point]:
    return sorted(details.samples or (), key=lambda point: point.timestamp) if details is not None else ()


def _add(measured: _Measured, acked: tuple[Point, Point], busy: tuple[float, float]) -> None:
    """Adds the interval between two samples.

    Messages count when consumers begin them. If they counted when they are acknowledged, the first ones of many new
    consumers would seem to take for ever.
    """
    seconds, acknowledged = (acked[1].timestamp - acked[0].timestamp) / 1000, acked[1].sample - acked[0].sample
    kept = 0.5 ** ((acked[1].timestamp - (measured.until or acked[0].timestamp)) / 1000 / HALF_LIFE)
    measured.until = acked[1].timestamp
    if acknowledged < 0:  # the counter began anew, because the broker was restarted
        return
    measured.busy = measured.busy * kept + (busy[0] + busy[1]) / 2 * seconds
    measured.begun = measured.begun * kept + acknowledged + busy[1] - busy[0]
    measured.intervals += max(busy) > 0

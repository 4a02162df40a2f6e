"""Rates that hpad makes itself, from counters that it has read: for brokers that keep no statistics.

The counters of a queue stand on each node that has a channel to it. RabbitMQ 4.0 counts by queue; earlier versions by
channel, whose counters are gone once it closes. So the differences between two reads are added up, counter by counter:
one that fell belongs to a node that has restarted, and counts from zero, as does one that is new on a node that was
read before. What a channel did between the last read and its end is lost.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from hpad_adapters.clearing.goal import CounterPoint
from hpad_adapters.rabbitmq.plugin import NodeMetrics
from hpad_adapters.rabbitmq.queues import Details, Lengths, RabbitmqQueue, Statistics

# Source: prometheus_rabbitmq_core_metrics_collector.erl. Messages are delivered or fetched (get), with or without
# acknowledgement; the management API calls the sum deliver_get.
BY_QUEUE = ("queue_delivery_metrics", "queue_exchange_metrics")
"""Families of RabbitMQ 4.0 and later."""
BY_CHANNEL = ("channel_queue_metrics", "channel_queue_exchange_metrics")
"""Families of earlier versions."""
_DELIVERED = ("messages_delivered_ack_total", "messages_delivered_total", "get_ack_total", "get_total")
_PUBLISHED, _GIVEN, _ACKED = range(3)
_SERIES_BY_QUEUE = (
    ("queue_exchange_messages_published_total", _PUBLISHED),
    *((f"queue_{name}", _GIVEN) for name in _DELIVERED),
    ("queue_messages_acked_total", _ACKED),
)
_SERIES_BY_CHANNEL = (
    ("queue_messages_published_total", _PUBLISHED),
    *((f"channel_{name}", _GIVEN) for name in _DELIVERED),
    ("channel_messages_acked_total", _ACKED),
)

APART_SECONDS = 4.0
"""Reads that follow each other sooner are no new point: the broker itself counts every five seconds."""
FEWEST_POINTS = 13
"""Points that are kept at least, however far apart: a usual publish rate needs twelve intervals (`clearing`)."""
SHORTEST_SECONDS = 10.0
"""The time that a rate covers at least. In less, a counter may have been collected twice, or not at all."""

Place = tuple[str, str]
"""A vhost and a queue."""
_Key = tuple[str, int, str, str]
"""A node, an event, and the series' own labels: the name of the series, and its channel or exchange."""


def counts_by_queue(node: NodeMetrics) -> bool:
    """Returns whether the node's version counts by queue, so that BY_CHANNEL is not needed."""
    return node.has("queue_messages_acked_total")


class CountersOfQueue(msgspec.Struct):
    """The counters of one queue in one read, of all nodes; `nodes` are those that were read."""

    nodes: frozenset[str]
    values: dict[_Key, float] = {}


def counters(nodes: Sequence[NodeMetrics], wanted: Iterable[Place]) -> Mapping[Place, CountersOfQueue]:
    """Returns the counters of the queues that are wanted."""
    names = frozenset(node.node for node in nodes)
    found = {place: CountersOfQueue(names) for place in wanted}
    for node in nodes:
        for series, event in _SERIES_BY_QUEUE if counts_by_queue(node) else _SERIES_BY_CHANNEL:
            for sample in node.of(series):
                labels = sample.labels
                queue = found.get((labels.get("vhost") or labels.get("queue_vhost", ""), labels.get("queue", "")))
                if queue is not None:
                    own = f"{labels.get('channel', '')} {labels.get('exchange', '')}"
                    queue.values[node.node, event, series, own] = sample.value
    return found


class _Point(NamedTuple):
    """`at`: seconds. What was published, delivered and acknowledged since the first read; the lengths at this one."""

    at: float
    events: tuple[float, float, float]
    messages: int
    unacknowledged: int


class _History:
    """The points of one queue."""

    def __init__(self) -> None:
        self.points: deque[_Point] = deque()
        self._last = CountersOfQueue(frozenset())

    def add(self, at: float, read: CountersOfQueue, messages: int, unacknowledged: int) -> None:
        events = list(self.points[-1].events if self.points else (0.0, 0.0, 0.0))
        for key, value in read.values.items():
            before = self._last.values.get(key, 0.0 if key[0] in self._last.nodes else value)
            events[key[1]] += value - before if value >= before else value
        # A node that was not read keeps its counters, so that its next read counts from them.
        absent = {key: value for key, value in self._last.values.items() if key[0] not in read.nodes}
        self._last = CountersOfQueue(read.nodes | self._last.nodes, absent | read.values)
        self.points.append(_Point(at, (events[0], events[1], events[2]), messages, unacknowledged))

    def forget(self, before: float) -> None:
        """Drops points, but for one of that time or earlier: an average begins with it."""
        while len(self.points) > FEWEST_POINTS and self.points[1].at <= before:
            self.points.popleft()

    def average(self, span: float) -> tuple[_Point, _Point]:
        """Returns the points between which an average over the span is taken, or over all time if that is less."""
        last = self.points[-1]
        return next((point for point in reversed(self.points) if point.at <= last.at - span), self.points[0]), last


class Histories:
    """The points of queues. `span`: seconds over which a rate is averaged. `most` queues are remembered."""

    def __init__(self, span: float, most: int) -> None:
        self._span, self._most = span, most
        self._known: OrderedDict[Place, _History] = OrderedDict()

    def add(self, at: float, queue: RabbitmqQueue, read: CountersOfQueue) -> None:
        """Adds a read of all nodes at a time in seconds; the one that was read longest ago is dropped if needed."""
        place = queue.vhost, queue.name
        history = self._known.setdefault(place, _History())
        self._known.move_to_end(place)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        if history.points and at - history.points[-1].at < APART_SECONDS:
            return
        history.add(at, read, queue.messages or 0, queue.messages_unacknowledged or 0)
        history.forget(at - self._span)

    def measured(self, queue: RabbitmqQueue, *, samples: bool) -> RabbitmqQueue:
        """Returns a queue that was added with its rates, and all points if `samples`."""
        history = self._known[queue.vhost, queue.name]
        first, last = history.average(self._span)
        seconds = last.at - first.at
        shortest = min(self._span, SHORTEST_SECONDS)
        needed = f"hpad has read its counters for {seconds:.0f}s, and a rate needs {shortest:.0f}s at least"
        lacking = "" if seconds >= shortest else needed
        listed = list(history.points) if samples else []

        def details(event: int) -> Details:
            rate = None if lacking else (last.events[event] - first.events[event]) / seconds
            return Details(rate, [_sample(point.at, int(point.events[event])) for point in listed])

        growth = None if lacking else (last.messages - first.messages) / seconds
        messages = [_sample(point.at, point.messages) for point in listed]
        unacknowledged = [_sample(point.at, point.unacknowledged) for point in listed]
        return msgspec.structs.replace(
            queue,
            message_stats=Statistics(details(_PUBLISHED), details(_GIVEN), details(_ACKED)),
            messages_details=Lengths(growth, messages, aligned=True),
            messages_unacknowledged_details=Lengths(None, unacknowledged, aligned=True),
            lacking=lacking,
        )


def _sample(at: float, value: int) -> CounterPoint:
    return CounterPoint(value, int(at * 1000))

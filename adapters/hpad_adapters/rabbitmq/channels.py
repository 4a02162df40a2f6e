"""How many channels hold messages of some queues, for a broker that keeps no statistics.

The plugin rabbitmq_prometheus names a channel by its Erlang process, and nothing links that with a connection. So it is
known how many channels hold messages, and not whose they are. Of a channel there are two numbers:

- counters by queue, as of now: messages that were delivered for an acknowledgement, less the acknowledged ones. These
  lack the rejected ones, so the difference is what the channel holds at most.
- the unacknowledged messages of all its queues, up to five seconds old. That is what it holds at most if nothing was
  delivered meanwhile, which takes two readings to know.

A channel counts as busy unless one of the two is zero. Messages of the queues that no channel explains may each be held
by another one: the broker drops the counters of a quorum queue whose leader moves, and has none for AMQP 1.0. Of a
channel that has got messages without acknowledgement it is unknown what it holds: it counts as busy until it closes.
Counters outlive their channel by two minutes, its unacknowledged messages do not. Observed in RabbitMQ 3.10 and 4.0.

The addresses of connections are known: a pod without a connection holds nothing, unless a proxy hides its address.
RabbitMQ 3.10 and 4.0 list all connections. 4.3 lists those of statistics, which lack the nodes that keep none.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from hpad.adapter import Member
from hpad_adapters.exposition import ExposedSample
from hpad_adapters.rabbitmq.plugin import NodeMetrics

FAMILIES = ("channel_metrics", "channel_queue_metrics")
SETTLED_SECONDS = 10.0
"""After this time without a delivery, the broker has counted what a channel holds: twice its usual interval."""
_HELD = "channel_messages_unacked"
_DELIVERED = ("channel_messages_delivered_ack_total", "channel_get_ack_total")
_ACKNOWLEDGED = ("channel_messages_acked_total",)
_WITHOUT_ACK = ("channel_messages_delivered_total", "channel_get_total")

OwnQueue = Callable[[str, str], bool]
"""Whether the queue of this vhost and name is one of those that are asked for."""
_Queue = tuple[str, str]
_Channel = tuple[str, str]
"""Its node and its process."""


class ListedConnection(msgspec.Struct, frozen=True):
    """A connection; `name` is such as "10.0.0.1:41234 -> 10.0.0.9:5672". Only statistics have a `peer_host`."""

    name: str = ""
    vhost: str = ""
    user: str = ""
    peer_host: Any = None

    @property
    def peer(self) -> str:
        """The address of the client, "" if the name has none."""
        address, arrow, _ = self.name.partition(" -> ")
        return address.rpartition(":")[0].strip("[]") if arrow else ""


class Holding(NamedTuple):
    """The channels that hold messages of some queues, or may; and the `messages` of the queues that these may hold."""

    channels: int
    messages: int

    def most(self, unacknowledged: int) -> int:
        """Returns how many channels at most hold messages, if the queues have so many that are unacknowledged."""
        return self.channels + max(0, unacknowledged - self.messages)


class Channels(msgspec.Struct, frozen=True):
    """The channels of all nodes of a broker.

    `held`: the unacknowledged messages of each; `left`: those of each of its queues by counters; `unseen`: queues that
    have delivered messages without acknowledgement to it; `recent`: channels that may have got messages since `held`
    was counted.
    """

    held: Mapping[_Channel, int]
    left: Mapping[_Channel, Mapping[_Queue, int]]
    unseen: Mapping[_Channel, Collection[_Queue]]
    recent: Collection[_Channel]

    def holding(self, own: OwnQueue) -> Holding:
        """Returns what is held of these queues. O(channels and their queues)."""
        busy, messages = 0, 0
        for channel, held in self.held.items():
            queues = self.left.get(channel, {})
            left = sum(amount for queue, amount in queues.items() if own(*queue))
            others = sum(max(0, amount) for queue, amount in queues.items() if not own(*queue))
            most = left if channel in self.recent else min(left, held)
            busy += most > 0 or any(own(*queue) for queue in self.unseen.get(channel, ()))
            messages += max(0, most if channel in self.recent else min(left, held - others))
        return Holding(busy, messages)


class ChannelHistory:
    """Makes Channels, and remembers since when each has got no message."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._delivered: dict[_Channel, tuple[int, float]] = {}

    def channels(self, nodes: Sequence[NodeMetrics]) -> Channels:
        """Returns the channels of these nodes, which are all nodes of a broker."""
        held, delivered = dict[_Channel, int](), Counter[_Channel]()
        left, unseen = dict[_Channel, Counter[_Queue]](), dict[_Channel, set[_Queue]]()
        for node in nodes:
            held |= {(node.node, sample.labels.get("channel", "")): _count(sample) for sample in node.of(_HELD)}
            for channel, queue, count in _rows(node, _DELIVERED):
                left.setdefault(channel, Counter())[queue] += count
                delivered[channel] += count
            for channel, queue, count in _rows(node, _ACKNOWLEDGED):
                left.setdefault(channel, Counter())[queue] -= count
            for channel, queue, count in _rows(node, _WITHOUT_ACK):
                if count:
                    unseen.setdefault(channel, set()).add(queue)
        return Channels(held, left, unseen, self._recent(held, delivered))

    def _recent(self, held: Collection[_Channel], delivered: Mapping[_Channel, int]) -> Collection[_Channel]:
        now, before = self._monotonic(), self._delivered
        self._delivered = {}
        for channel in held:
            count = delivered[channel]
            known = before.get(channel)
            self._delivered[channel] = known if known is not None and known[0] == count else (count, now)
        return {channel for channel, (_, since) in self._delivered.items() if now - since < SETTLED_SECONDS}


def _rows(node: NodeMetrics, names: Sequence[str]) -> Iterator[tuple[_Channel, _Queue, int]]:
    for name in names:
        for sample in node.of(name):
            labels = sample.labels
            channel, queue = labels.get("channel", ""), (labels.get("vhost", ""), labels.get("queue", ""))
            yield (node.node, channel), queue, _count(sample)


def _count(sample: ExposedSample) -> int:
    return int(sample.value) if math.isfinite(sample.value) else 0


def without_connection(members: Iterable[Member], connections: Sequence[ListedConnection]) -> list[str]:
    """Returns the names of the pods that certainly have no connection.

    None, unless all connections of the pods have one user, who has no connection from elsewhere: that may be one of a
    pod whose address a proxy or a node hides. Pods that share an address have no address of their own.
    """
    members = list(members)
    shared = Counter(each.address for each in members)
    addresses = {each.address for each in members if each.address and shared[each.address] == 1}
    users = {each.user for each in connections if each.peer in addresses}
    if len(users) != 1 or any(each.user in users and each.peer not in addresses for each in connections):
        return []
    connected = {each.peer for each in connections}
    return [each.name for each in members if each.address in addresses - connected]

"""The messages that each pod's consumers hold without having acknowledged them, from the broker's statistics.

A consumer belongs to the pod whose IP address is the peer of its connection, or whose name is in its consumer tag. The
tag serves where pods share an address, and where a proxy hides it. Of a channel the broker reports unacknowledged
messages as of its last statistics, five seconds old at most by default. Source: HTTP API reference of the
rabbitmq_management plugin, /api/consumers and /api/vhosts/NAME/channels.

What is not known is left out, never zero: a pod is idle if its consumers hold nothing, or if it has none and the
consumers of the other pods hold all unacknowledged messages of the queues. New consumers are not listed for some
seconds, and a consumer outside the pods may be that of a pod whose address a proxy hides.
Consumers that need not acknowledge hold an unknown number.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from hpad.adapter import AdapterError, Member
from hpad.adapter_http import decoded
from hpad_adapters.rabbitmq.broker import NotFoundError, RabbitmqBroker
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.values import QueueQuery

_CONSUMER_COLUMNS = "queue,consumer_tag,ack_required,channel_details.name,channel_details.peer_host"
_CHANNEL_COLUMNS = "name,messages_unacknowledged"
_WORDS = re.compile(r"[a-z0-9]+|[^a-z0-9]+")
_MOST_WORDS = 32
"""Words of a consumer tag that are compared with names of pods."""


class _Channel(msgspec.Struct, frozen=True):
    """A channel; a count that is none is not known, and spoils no other channel."""

    name: str | None = None
    messages_unacknowledged: Any = None

    @property
    def held(self) -> int | None:
        count = self.messages_unacknowledged
        return count if type(count) is int and count >= 0 else None


class _ChannelOf(msgspec.Struct, frozen=True):
    name: str | None = None
    peer_host: str | None = None


class _QueueOf(msgspec.Struct, frozen=True):
    name: str
    vhost: str = ""


class QueueConsumer(msgspec.Struct, frozen=True):
    """A consumer as the broker lists it; `channel_details` is an empty list while the channel is not known."""

    queue: _QueueOf
    consumer_tag: str | None = None
    ack_required: bool = True
    channel_details: _ChannelOf | list[object] | None = None

    @property
    def channel(self) -> _ChannelOf:
        details = self.channel_details
        return details if isinstance(details, _ChannelOf) else _ChannelOf()


class Seen(msgspec.Struct, frozen=True):
    """The consumers of a vhost, and the unacknowledged messages of each channel (None: not reported)."""

    consumers: Sequence[QueueConsumer] = ()
    channels: Mapping[str, int | None] = {}


_CONSUMERS = msgspec.json.Decoder(list[QueueConsumer])
_CHANNELS = msgspec.json.Decoder(list[_Channel])


async def read(broker: RabbitmqBroker, vhost: str) -> Seen:
    """Returns the consumers of a vhost ("*": of all).

    Raises BrokerRefusedError where the broker keeps no statistics, among other reasons; else AdapterError.
    """
    name = quote(vhost, safe="")
    everywhere = vhost == ANY_VHOST
    consumers_at = "/api/consumers" if everywhere else f"/api/consumers/{name}"
    channels_at = "/api/channels" if everywhere else f"/api/vhosts/{name}/channels"
    try:
        consumers = await broker.get(consumers_at, {"columns": _CONSUMER_COLUMNS}, vhost=vhost)
        channels = await broker.get(channels_at, {"columns": _CHANNEL_COLUMNS}, vhost=vhost)
    except NotFoundError:
        raise AdapterError(f'vhost "{vhost}" does not exist at {broker}', "spec") from None
    found = decoded(_CONSUMERS, consumers, str(broker), "a list of consumers")
    listed = decoded(_CHANNELS, channels, str(broker), "a list of channels")
    return Seen(found, {each.name: each.held for each in listed if each.name})


class Held:
    """The messages of each pod: `known`; `unknown` pods; `nameless`: consumers outside pods hold an unknown number.

    `total` is the number of messages that are certainly those of these pods. Left out are those of consumers outside
    them, which may be hidden consumers of a pod, and those of mixed channels, which also consume from other queues.
    """

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.nameless = False
        self.total = 0
        self._counted: set[str] = set()

    def add(self, pod: str | None, amount: int | None, channel: str, *, mixed: bool) -> None:
        """Adds the messages of a channel (None: not known), once for all of its consumers."""
        if amount is None:
            self.nameless = self.nameless or pod is None
            if pod is not None:
                self.unknown.add(pod)
                self.known.pop(pod, None)
            return
        if channel in self._counted:
            return
        self._counted.add(channel)
        self.total += 0 if mixed or pod is None else amount
        if pod is not None and pod not in self.unknown:
            self.known[pod] = self.known.get(pod, 0) + amount


def held_by(
    members: Iterable[Member], plan: QueueQuery, seen: Sequence[Seen], total: int, broker: RabbitmqBroker
) -> Held:
    """Returns what the consumers of each pod hold, of `total` unacknowledged messages in the plan's queues.

    Raises AdapterError where no consumer, or no channel, is listed.
    """
    pods, held = ConsumerPods(members), Held()
    if total and not any(plan.matches(consumer.queue.name) for each in seen for consumer in each.consumers):
        what = f"{broker} lists no consumer of the queue, and {total} of its messages are unacknowledged"
        raise _unlisted(what, ", or were cancelled, or pods fetch by basic.get")
    for each in seen:
        own = [consumer for consumer in each.consumers if plan.matches(consumer.queue.name)]
        if own and not any(consumer.channel.name in each.channels for consumer in own):  # new ones are listed later
            raise _unlisted(f"{broker} lists no channel of the consumers")
        mixed = {consumer.channel.name for consumer in each.consumers if not plan.matches(consumer.queue.name)}
        for consumer in own:
            channel = consumer.channel.name or ""
            amount = each.channels.get(channel) if consumer.ack_required else None
            held.add(pods.of(consumer), amount, channel, mixed=channel in mixed)
    return held


def _unlisted(what: str, others: str = "") -> AdapterError:
    """Without the tag, the broker lists the consumers and channels of this user alone."""
    text = f"{what}: its user needs the tag monitoring, unless the consumers are a few seconds old{others}"
    return AdapterError(text, alive=True)


class ConsumerPods:
    """Finds the pod of a consumer."""

    def __init__(self, members: Iterable[Member]) -> None:
        members = list(members)
        shared = Counter(each.address for each in members)
        self._by_address = {each.address: each.name for each in members if each.address and shared[each.address] == 1}
        self._names = {each.name for each in members}

    def of(self, consumer: QueueConsumer) -> str | None:
        """Returns the name of the pod, None for a consumer outside these pods."""
        return self._by_address.get(consumer.channel.peer_host or "") or self._named(consumer.consumer_tag or "")

    def _named(self, tag: str) -> str | None:
        """Returns the longest name of a pod that stands in the tag as whole words."""
        words = _WORDS.findall(tag)[:_MOST_WORDS]
        count = len(words)
        for length in range(count, 0, -1):
            for start in range(count - length + 1):
                text = "".join(words[start : start + length])
                if text in self._names:
                    return text
        return None

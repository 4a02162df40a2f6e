"""The messages that each pod's consumers hold without having acknowledged them, from the management API.

A consumer belongs to the pod whose IP address is the peer of its connection, or whose name is in its consumer tag. The
tag serves where pods share an address, and where a proxy hides it. Of a channel the broker reports unacknowledged
messages as of its last statistics, five seconds old at most by default. Source: HTTP API reference of the
rabbitmq_management plugin, /api/consumers and /api/vhosts/NAME/channels.

What is not known is left out, never zero: a pod is idle if its consumers hold nothing, or if it has none and the
consumers of the other pods hold all unacknowledged messages of the queues. New consumers are not listed for some
seconds, and a consumer outside the pods may be that of a pod whose address a proxy hides.
Consumers that need not acknowledge hold an unknown number.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from hpad.adapter import AdapterError, Answer, Context, Member, PodSample, PodValue, Query, or_error
from hpad.adapter_http import decoded
from hpad_adapters.clearing.workers import MOST_QUEUES
from hpad_adapters.rabbitmq.broker import NotFoundError, RabbitmqBroker
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.queues import RabbitmqQueue
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup, QueueQuery, ValueReader

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


Plan = QueueQuery | AdapterError


class PodWork:
    """Answers what each pod holds. `reader` reads the queues, None where it does not know consumers."""

    def __init__(self, settings: Settings, context: Context, reader: ValueReader | None) -> None:
        self._broker = RabbitmqBroker(settings, context)
        self._clock = context.clock
        self._source = settings.source
        self._reader = reader

    async def answers(self, plans: Sequence[Plan], queries: Sequence[Query]) -> list[Answer]:
        """Returns one answer per query with `members`; the consumers of each vhost are read once."""
        if self._reader is None:
            who = "AMQP" if self._source == "amqp" else "the plugin rabbitmq_prometheus alone"
            text = f"{who} does not say what consumers hold: hpad needs the management API for that"
            return [AdapterError(text, "spec")] * len(queries)
        vhosts = sorted({vhost for plan in plans if isinstance(plan, QueueQuery) for vhost in plan.vhosts})
        found = await asyncio.gather(*(or_error(self._seen(vhost)) for vhost in vhosts))
        seen = dict(zip(vhosts, found, strict=True))
        return [
            await or_error(self._answer(self._reader, plan, seen, query.members or ()))
            for plan, query in zip(plans, queries, strict=True)
        ]

    async def _answer(
        self, reader: ValueReader, plan: Plan, seen: Mapping[str, "Seen | AdapterError"], members: Sequence[Member]
    ) -> PodSample:
        if isinstance(plan, AdapterError):
            raise plan
        here: list[Seen] = []
        queues: list[RabbitmqQueue] = []
        for vhost in plan.vhosts:
            found = seen[vhost]
            if isinstance(found, AdapterError):
                raise found
            here.append(found)
            queues += await self._queues(reader, vhost, plan)
        return self._sample(plan, here, queues, members)

    async def _queues(self, reader: ValueReader, vhost: str, plan: QueueQuery) -> list[RabbitmqQueue]:
        """Returns the queues of the plan. Raises AdapterError if one is missing: its consumers are not known."""
        patterns = frozenset() if plan.pattern is None else frozenset({plan.pattern})
        read = await reader.read(vhost, Lookup(frozenset(plan.queues), patterns))
        found = [queue for queue in read if plan.matches(queue.name)]
        absent = set(plan.queues) - {queue.name for queue in found}
        if (absent or not found) and plan.on_missing_queue != "zero":
            named = f'no queue "{min(absent)}"' if absent else "no queue of that pattern"
            raise AdapterError(f'{self._broker} has {named} in vhost "{vhost}"', "spec")
        return found

    async def _seen(self, vhost: str) -> Seen:
        """Returns the consumers of a vhost ("*": of all). Raises AdapterError."""
        name = quote(vhost, safe="")
        everywhere = vhost == ANY_VHOST
        consumers_at = "/api/consumers" if everywhere else f"/api/consumers/{name}"
        channels_at = "/api/channels" if everywhere else f"/api/vhosts/{name}/channels"
        try:
            consumers = await self._broker.get(consumers_at, {"columns": _CONSUMER_COLUMNS}, vhost=vhost)
            channels = await self._broker.get(channels_at, {"columns": _CHANNEL_COLUMNS}, vhost=vhost)
        except NotFoundError:
            raise AdapterError(f'vhost "{vhost}" does not exist at {self._broker}', "spec") from None
        found = decoded(_CONSUMERS, consumers, str(self._broker), "a list of consumers")
        listed = decoded(_CHANNELS, channels, str(self._broker), "a list of channels")
        return Seen(found, {each.name: each.held for each in listed if each.name})

    def _sample(
        self, plan: QueueQuery, seen: Sequence[Seen], queues: Sequence[RabbitmqQueue], members: Sequence[Member]
    ) -> PodSample:
        """Returns the unacknowledged messages of each pod, for the `queues` of the plan. Raises AdapterError."""
        now, nothing = self._clock.now(), timedelta(0)
        unknown = next((queue.name for queue in queues if queue.messages_unacknowledged is None), None)
        if unknown is not None:
            raise AdapterError(
                f'{self._broker} has not counted the messages of queue "{unknown}" that consumers hold', alive=True
            )
        held = self._held(plan, seen, members)
        values = {name: PodValue(amount * 1000, now, nothing) for name, amount in held.known.items()}
        total = sum(queue.messages_unacknowledged or 0 for queue in queues)
        if total <= held.total and not held.nameless:
            idle = PodValue(0, now, nothing)
            values |= {each.name: idle for each in members if each.name not in values and each.name not in held.unknown}
        return PodSample(values, now)

    def _held(self, plan: QueueQuery, seen: Sequence[Seen], members: Sequence[Member]) -> "_Held":
        pods, held = ConsumerPods(members), _Held()
        for each in seen:
            own = [consumer for consumer in each.consumers if plan.matches(consumer.queue.name)]
            if own and not any(consumer.channel.name in each.channels for consumer in own):
                # Without the tag, the broker lists the channels of this user alone. New ones it lists after consumers.
                raise AdapterError(
                    f"{self._broker} lists no channel of the consumers: its user needs the tag monitoring, unless they"
                    " are a few seconds old",
                    lasting=True,
                    alive=True,
                )
            mixed = {consumer.channel.name for consumer in each.consumers if not plan.matches(consumer.queue.name)}
            for consumer in own:
                channel = consumer.channel.name or ""
                amount = each.channels.get(channel) if consumer.ack_required else None
                held.add(pods.of(consumer), amount, channel, mixed=channel in mixed)
        return held


class _Held:
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


# Notices queues whose messages no consumer takes, from the counts that are read for the values.

_LASTING = 5.0
"""Seconds between two counts of one queue: the broker itself counts some queues every five seconds."""
_MOST_NAMED = 2
_LONGEST_NAME = 80


class _Waiting(NamedTuple):
    """The ready messages at the last read, and the monotonic time since which none was held, and none taken."""

    since: float
    ready: int


class Unconsumed:
    """Remembers of each queue since when its messages have waited while no consumer held any.

    A consumer with acknowledgements holds a message as long as one waits. Of others the broker tells nothing but that
    messages get fewer, so that counts.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[tuple[str, str], _Waiting] = {}

    def note(self, queues: Sequence[RabbitmqQueue]) -> str:
        """Returns the note of a sample that was made from a read of these queues; "" where consumers take messages."""
        names = sorted({queue.name for queue in queues if self._stays(queue)})
        if not names:
            return ""
        named = ", ".join(f'"{name[:_LONGEST_NAME]}"' for name in names[:_MOST_NAMED])
        others = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"no consumer holds a message of the queue{'s' if len(names) > 1 else ''} {named}{others}"

    def _stays(self, queue: RabbitmqQueue) -> bool:
        """Whether messages wait, and no consumer takes any."""
        place, ready, held = (queue.vhost, queue.name), queue.messages_ready, queue.messages_unacknowledged
        if not ready or held or queue.consumers or (held is None and queue.consumers is None):
            self._waiting.pop(place, None)
            return False
        return queue.consumers == 0 or self._lasts(place, ready)

    def _lasts(self, place: tuple[str, str], ready: int) -> bool:
        now = self._monotonic()
        before = self._waiting.get(place)
        since = now if before is None or ready < before.ready else before.since
        if before is None and len(self._waiting) >= MOST_QUEUES:
            self._waiting.clear()
        self._waiting[place] = _Waiting(since, ready)
        return now - since >= _LASTING

"""What each pod of a target holds: by its consumers where the broker keeps statistics, else by what is counted.

Without statistics the plugin rabbitmq_prometheus says how many channels hold messages, and not whose they are. Then a
sample says how many pods are busy at most.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import AdapterError, Answer, Context, Member, PodSample, PodValue, Query, or_error
from hpad.adapter_http import decoded
from hpad_adapters.rabbitmq import consumers
from hpad_adapters.rabbitmq.answers import overview
from hpad_adapters.rabbitmq.broker import BrokerRefusedError, NotFoundError, RabbitmqBroker
from hpad_adapters.rabbitmq.channels import FAMILIES, ChannelHistory, Channels, ListedConnection, without_connection
from hpad_adapters.rabbitmq.consumers import Seen
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.plugin_queues import Auto, PluginQueues
from hpad_adapters.rabbitmq.queues import RabbitmqQueue
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup, QueueQuery, ValueReader
from hpad_adapters.selection import or_raise

_CONNECTIONS = msgspec.json.Decoder(list[ListedConnection])
_OTHERS = (
    "or let the workers say it, by an http-json metric with pods: each, or by workers of a celery source "
    "(hpad.io/busy-metric)"
)

Plan = QueueQuery | AdapterError


class _Counted(msgspec.Struct, frozen=True):
    """What is known without statistics: the channels of all nodes, and the connections (None: not known)."""

    channels: Channels
    connections: Sequence[ListedConnection] | None


class PodWork:
    """Answers what each pod holds. `reader` reads the queues, and some readers the plugin on all nodes as well."""

    def __init__(self, settings: Settings, context: Context, reader: ValueReader) -> None:
        self._settings = settings
        self._broker = RabbitmqBroker(settings, context)
        self._clock = context.clock
        self._reader = reader
        self._nodes = reader if isinstance(reader, Auto | PluginQueues) else None
        self._history = ChannelHistory(context.clock.monotonic)

    async def answers(self, plans: Sequence[Plan], queries: Sequence[Query]) -> list[Answer]:
        """Returns one answer per query with `members`; the consumers of each vhost are read once."""
        if self._settings.source == "amqp":
            text = f"AMQP does not say what consumers hold: hpad needs the management API for that, {_OTHERS}"
            return [AdapterError(text, "spec")] * len(queries)
        vhosts = sorted({vhost for plan in plans if isinstance(plan, QueueQuery) for vhost in plan.vhosts})
        seen = await self._seen(vhosts)
        counted = await or_error(self._counted, vhosts) if seen is None else None
        return [
            await or_error(self._answer, plan, seen or {}, counted, query.members or ())
            for plan, query in zip(plans, queries, strict=True)
        ]

    async def _seen(self, vhosts: Sequence[str]) -> Mapping[str, Seen | AdapterError] | None:
        """Returns the consumers of each vhost; None where there are no statistics."""
        if self._settings.source == "prometheus":
            return None
        found = await asyncio.gather(*(or_error(consumers.read, self._broker, vhost) for vhost in vhosts))
        refused = [vhost for vhost, each in zip(vhosts, found, strict=True) if isinstance(each, BrokerRefusedError)]
        if refused and not await self._keeps_statistics(refused[0]):
            return None
        return dict(zip(vhosts, found, strict=True))

    async def _keeps_statistics(self, vhost: str) -> bool:
        """Returns whether the broker keeps statistics, True where it does not say."""
        try:
            return (await overview(self._broker, vhost)).disable_stats is not True
        except AdapterError:
            return True

    async def _counted(self, vhosts: Sequence[str]) -> _Counted:
        """Reads all channels and connections; raises AdapterError."""
        if self._nodes is None:
            raise AdapterError(
                f"{self._broker} keeps no statistics, which say what each consumer holds: write source: auto, and its "
                "plugin rabbitmq_prometheus as metrics_url, which says how many channels hold messages; "
                f"{_OTHERS}",
                lasting=True,
                alive=True,
            )
        found = self._history.channels(await self._nodes.whole(FAMILIES, ANY_VHOST))
        if self._settings.source == "prometheus":
            return _Counted(found, None)
        try:
            body = await self._broker.get("/api/connections", {"columns": "name,vhost,user,peer_host"}, vhost=vhosts[0])
        except NotFoundError:
            raise AdapterError(f"{self._broker} does not list its connections") from None
        listed = decoded(_CONNECTIONS, body, str(self._broker), "a list of connections")
        return _Counted(found, None if any(each.peer_host for each in listed) else listed)

    async def _answer(
        self,
        plan: Plan,
        seen: Mapping[str, Seen | AdapterError],
        counted: _Counted | AdapterError | None,
        members: Sequence[Member],
    ) -> PodSample:
        plan = or_raise(plan)
        if counted is not None:
            return self._by_count(plan, or_raise(counted), await self._unacknowledged(plan), members)
        here = [or_raise(seen[vhost]) for vhost in plan.vhosts]
        return self._by_consumers(plan, here, await self._unacknowledged(plan), members)

    async def _unacknowledged(self, plan: QueueQuery) -> int:
        """Returns the unacknowledged messages of the plan's queues; raises AdapterError if a number is unknown."""
        queues = [queue for vhost in plan.vhosts for queue in await self._queues(vhost, plan)]
        unknown = next((queue.name for queue in queues if queue.messages_unacknowledged is None), None)
        if unknown is not None:
            raise AdapterError(
                f'{self._reader} has not counted the messages of queue "{unknown}" that consumers hold', alive=True
            )
        return sum(queue.messages_unacknowledged or 0 for queue in queues)

    async def _queues(self, vhost: str, plan: QueueQuery) -> list[RabbitmqQueue]:
        """Returns the queues of the plan. Raises AdapterError if one is missing: its consumers are not known."""
        read = await self._reader.read(vhost, Lookup(frozenset(plan.queues), plan.patterns))
        found = [queue for queue in read if plan.matches(queue.name)]
        absent = set(plan.queues) - {queue.name for queue in found}
        if (absent or not found) and plan.on_missing_queue != "zero":
            named = f'no queue "{min(absent)}"' if absent else "no queue of that pattern"
            raise AdapterError(f'{self._reader} has {named} in vhost "{vhost}"', "spec")
        return found

    def _by_consumers(self, plan: QueueQuery, seen: Sequence[Seen], total: int, members: Sequence[Member]) -> PodSample:
        """Returns the unacknowledged messages of each pod, `total` in the plan's queues. Raises AdapterError."""
        now, nothing = self._clock.now(), timedelta(0)
        held = consumers.held_by(members, plan, seen, total, self._broker)
        values = {name: PodValue(amount * 1000, now, nothing) for name, amount in held.known.items()}
        if total <= held.total and not held.nameless:
            idle = PodValue(0, now, nothing)
            values |= {each.name: idle for each in members if each.name not in values and each.name not in held.unknown}
        return PodSample(values, now)

    def _by_count(self, plan: QueueQuery, counted: _Counted, total: int, members: Sequence[Member]) -> PodSample:
        """Returns how many pods are busy at most, and which ones are idle all the same."""
        here = set(plan.vhosts)

        def own(vhost: str, queue: str) -> bool:
            return (vhost in here or ANY_VHOST in here) and plan.matches(queue)

        most = counted.channels.holding(own).most(total)
        connections = [each for each in counted.connections or () if each.vhost in here or ANY_VHOST in here]
        idle = without_connection(members, connections) if most else [each.name for each in members]
        now = self._clock.now()
        return PodSample(dict.fromkeys(idle, PodValue(0, now, timedelta(0))), now, most)

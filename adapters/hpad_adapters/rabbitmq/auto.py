"""Counts from the management API, and statistics from wherever the broker keeps them.

RabbitMQ calls the statistics of the management API deprecated from 4.0 on, and operators turn them off. The API still
counts then, asks the leaders of the queues for it, and knows which nodes run. Rates, consumers and their capacity come
from the plugin rabbitmq_prometheus on each of these nodes.
"""

from collections.abc import Collection

import msgspec

from hpad.adapter import AdapterError, Context
from hpad.adapter_http import decoded
from hpad_adapters.rabbitmq.broker import NotFoundError, RabbitmqBroker
from hpad_adapters.rabbitmq.management import Management
from hpad_adapters.rabbitmq.plugin import NodeMetrics, Plugin
from hpad_adapters.rabbitmq.plugin_queues import PluginQueues
from hpad_adapters.rabbitmq.queues import RabbitmqQueue
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup

KNOWN_SECONDS = 60.0
"""The time for which hpad remembers whether the broker keeps statistics: it takes a restart of the broker to change."""
KEPT = "the statistics of the management API"
NOT_KEPT = "the plugin rabbitmq_prometheus, because the broker keeps no statistics"


class _ClusterNode(msgspec.Struct, frozen=True):
    name: str
    running: bool = False


_NODES = msgspec.json.Decoder(list[_ClusterNode])


class Auto:
    """Reads queues of one broker."""

    def __init__(self, settings: Settings, context: Context, plugin: Plugin) -> None:
        self._management = Management(settings, context)
        self._broker = RabbitmqBroker(settings, context)
        self._plugin = PluginQueues(settings, context, plugin)
        self._monotonic = context.clock.monotonic
        self._log = context.log
        self._kept: tuple[float, bool] | None = None

    def __str__(self) -> str:
        return str(self._management)

    async def read(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues that exist; raises AdapterError."""
        if not (lookup.statistics or lookup.samples) or await self.keeps_statistics(vhost):
            return await self._management.read(vhost, lookup)
        queues = await self._management.read(vhost, Lookup(lookup.names, lookup.patterns))
        known = await self._plugin.statistics(vhost, lookup, await self._running(vhost))
        return [_completed(queue, known.get((queue.vhost, queue.name))) for queue in queues]

    async def whole(self, families: Collection[str], vhost: str) -> list[NodeMetrics]:
        """Returns what the plugin on each node answers; raises AdapterError unless all running nodes have answered."""
        return await self._plugin.whole(families, vhost, await self._running(vhost))

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    async def statistics_from(self, vhost: str) -> str:
        """Returns where statistics come from, as the end of a sentence; raises AdapterError."""
        return KEPT if await self.keeps_statistics(vhost) else NOT_KEPT

    async def keeps_statistics(self, vhost: str) -> bool:
        """Returns whether the broker keeps statistics and rates; logs what it found. Raises AdapterError."""
        now = self._monotonic()
        if self._kept is not None and now - self._kept[0] < KNOWN_SECONDS:
            return self._kept[1]
        kept = await self._management.keeps_rates(vhost)
        if self._kept is None or self._kept[1] != kept:
            self._log.info("found where statistics come from", statistics=KEPT if kept else NOT_KEPT)
        self._kept = now, kept
        return kept

    async def _running(self, vhost: str) -> list[str]:
        """Returns the names of the nodes that run."""
        try:
            body = await self._broker.get("/api/nodes", {"columns": "name,running"}, vhost=vhost)
        except NotFoundError:
            raise AdapterError(f"{self._broker} does not list its nodes") from None
        return [each.name for each in decoded(_NODES, body, str(self._broker), "a list of nodes") if each.running]


def _completed(queue: RabbitmqQueue, known: RabbitmqQueue | None) -> RabbitmqQueue:
    """Returns a queue as the management API counts it, with what the plugin knows of it."""
    if known is None or known.fault:
        return queue
    return msgspec.structs.replace(
        queue,
        consumers=known.consumers,
        consumer_capacity=known.consumer_capacity,
        message_stats=known.message_stats,
        messages_details=known.messages_details,
        messages_unacknowledged_details=known.messages_unacknowledged_details,
        head_message_timestamp=known.head_message_timestamp,
        lacking=known.lacking,
    )

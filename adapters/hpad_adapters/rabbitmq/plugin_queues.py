"""Queues from the plugin rabbitmq_prometheus: counts as of the last five seconds, and rates from counters.

A queue is counted by one node: that of its leader. Followers of a quorum queue report nothing, and for some seconds
after a leader has moved, nobody does; `ra_metrics` shows that the queue exists all the same. Observed in RabbitMQ 4.0
and 3.10 with three nodes.

A count of a queue that was found is whole, also while another node is not read. All else needs all nodes: rates,
patterns, and the knowledge that a queue does not exist. Which nodes there are tells the connections between them
(`Plugin.peers`), or the management API (`Auto`).
"""

import asyncio
import math
import re
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from hpad.adapter import AdapterError, Context
from hpad_adapters.rabbitmq.answers import running_nodes
from hpad_adapters.rabbitmq.broker import RabbitmqBroker
from hpad_adapters.rabbitmq.counters import BY_CHANNEL, BY_QUEUE, Histories, Place, counters, counts_by_queue
from hpad_adapters.rabbitmq.management import KNOWN_SECONDS, Management, NoStatisticsError
from hpad_adapters.rabbitmq.metric import ANY_VHOST
from hpad_adapters.rabbitmq.plugin import NodeAnswer, NodeMetrics, Plugin, complete
from hpad_adapters.rabbitmq.queues import QUORUM, STREAM, RabbitmqQueue
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import Lookup, TooManyQueuesError

GONE_SECONDS = 30.0
"""The time for which a queue that is no longer counted may be a quorum queue without a leader that has counted."""
_COUNTS = ("queue_coarse_metrics", "queue_consumer_count")
_EXTENDED = ("queue_coarse_metrics", "queue_metrics")
"""The consumers are in one of the two families, and not in both if both are asked for."""
_MEMBERS = ("ra_metrics",)
_MEMBER = ("raft_term_total", "raft_term")
"""A member of a quorum queue: the name in RabbitMQ 3.10 and 4.0, and that from 4.2 on."""
_OLDEST = "queue_head_message_timestamp"
"""The oldest message, also if it has no timestamp: of classic queues only."""
_FIELDS = {
    "messages": "queue_messages",
    "messages_ready": "queue_messages_ready",
    "messages_unacknowledged": "queue_messages_unacked",
    "consumers": "queue_consumers",
    "head_message_timestamp": _OLDEST,
}
_CAPACITY = "queue_consumer_capacity"
_REDUCTIONS = "queue_process_reductions_total"
"""The work of a queue's process. A stream has none, and reports zero."""


class PluginQueues:
    """Reads queues of one broker, and remembers the counters of those whose rates were asked for."""

    def __init__(self, settings: Settings, context: Context, plugin: Plugin) -> None:
        self.plugin = plugin
        self._max_queues = settings.max_queues
        self._all_samples = settings.smoothing > 0
        self._histories = Histories(settings.rate_span.total_seconds(), settings.max_queues)
        self._adding = threading.Lock()
        self._by_channel = False
        self._monotonic = context.clock.monotonic
        self._seen: dict[Place, float] = {}
        """When a queue was counted last, or was known to exist; by its vhost and name."""
        self._listed: set[tuple[str, re.Pattern[str]]] = set()
        """Patterns of which a list has been read."""

    def __str__(self) -> str:
        return str(self.plugin)

    async def read(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues that exist. Raises AdapterError."""
        answers = await self._answers(vhost, lookup)
        nodes = [each for each in answers if isinstance(each, NodeMetrics)]
        if not nodes or lookup.statistics:
            nodes = complete(answers)
        found = await asyncio.to_thread(self._counted, nodes, lookup)
        absent = lookup.names - {name for _, name in found}
        try:
            if lookup.statistics or lookup.patterns or absent:
                await self._require_all(complete(answers))
            if lookup.patterns or absent:
                _require_read(nodes)
            found |= await self._uncounted(vhost, lookup, found)
        except AdapterError as error:
            if lookup.statistics or lookup.patterns or not found:
                raise
            # The queues that were found are whole; only the others may be on a node that was not read.
            found |= {(vhost, name): RabbitmqQueue(name, vhost, fault=error.message) for name in absent}
        return await self._with_rates(nodes, lookup, found)

    async def statistics(self, vhost: str, lookup: Lookup, running: Collection[str]) -> dict[Place, RabbitmqQueue]:
        """Returns the queues that are counted, with rates; raises AdapterError unless all running nodes answer."""
        answers = await self._answers(vhost, lookup)
        nodes = [each for each in answers if isinstance(each, NodeMetrics)]
        _require(running, nodes, answers, "metrics_url")
        found = await asyncio.to_thread(self._counted, nodes, lookup)
        return {(queue.vhost, queue.name): queue for queue in await self._with_rates(nodes, lookup, found)}

    async def whole(
        self, families: Collection[str], vhost: str, running: Collection[str] | None = None
    ) -> list[NodeMetrics]:
        """Returns what each node answers; `running` are the nodes of the broker (None: ask them).

        Raises AdapterError unless all nodes have answered.
        """
        answers = await self.plugin.nodes(families, "" if vhost == ANY_VHOST else vhost)
        if running is None:
            await self._require_all(complete(answers))
            return complete(answers)
        nodes = [each for each in answers if isinstance(each, NodeMetrics)]
        _require(running, nodes, answers, "metrics_url")
        return nodes

    async def _answers(self, vhost: str, lookup: Lookup) -> list[NodeAnswer]:
        """Returns the answers of all nodes; asks for channels only where a node's version does not count by queue."""
        base = _EXTENDED if lookup.extended else _COUNTS
        of = "" if vhost == ANY_VHOST else vhost
        if not lookup.statistics:
            return await self.plugin.nodes(base, of)
        answers = await self.plugin.nodes((*base, *BY_QUEUE, *(BY_CHANNEL if self._by_channel else ())), of)
        needed = any(isinstance(each, NodeMetrics) and not counts_by_queue(each) for each in answers)
        if needed and not self._by_channel:
            answers = await self.plugin.nodes((*base, *BY_QUEUE, *BY_CHANNEL), of)
        self._by_channel = needed
        return answers

    async def _require_all(self, nodes: Sequence[NodeMetrics]) -> None:
        """Raises AdapterError, which names them, if there are nodes in the cluster that are not asked."""
        peers = await self.plugin.peers(nodes)
        _require(peers.names, nodes, nodes, "url")
        if peers.unreachable:
            raise AdapterError(
                f"{peers.unreachable} nodes of the cluster are not reached by {nodes[0].node}: their part of the "
                "numbers is unknown (source: auto knows which nodes run)"
            )

    def _counted(self, nodes: Sequence[NodeMetrics], lookup: Lookup) -> dict[Place, RabbitmqQueue]:
        """Returns the queues that the nodes count; one that two nodes count has no counts, and a fault.

        Takes some milliseconds per thousand queues of the vhost, so call it in a thread.
        """
        found: dict[Place, RabbitmqQueue] = {}
        for node in nodes:
            for place, queue in _queues_of(node, lookup).items():
                found[place] = queue if place not in found else _counted_twice(queue)
        if len(found) > self._max_queues:
            raise TooManyQueuesError(
                f"{self} has more than {self._max_queues} queues to read (max_queues): a part of them would be a "
                "wrong number"
            )
        return found

    async def _uncounted(
        self, vhost: str, lookup: Lookup, found: Mapping[Place, RabbitmqQueue]
    ) -> dict[Place, RabbitmqQueue]:
        """Returns quorum queues that exist and that no node counts; asked for only if a queue is absent, or may be."""
        now = self._monotonic()
        if max(len(self._seen), len(self._listed)) > self._max_queues:
            self._seen.clear()
            self._listed.clear()
        self._seen |= dict.fromkeys(found, now)
        absent = lookup.names - {name for _, name in found}
        new = {(vhost, pattern) for pattern in lookup.patterns} - self._listed
        if not absent and not new and not any(self._gone(place, vhost, lookup, now) for place in self._seen):
            return {}
        members = await self.plugin.scrape(_MEMBERS, "" if vhost == ANY_VHOST else vhost)
        terms = [sample.labels for node in members for series in _MEMBER for sample in node.of(series)]
        there = {_place(labels) for labels in terms if "queue" in labels}
        missing = [place for place in there if place not in found and lookup.matches(place[1])]
        self._listed |= new
        self._seen |= dict.fromkeys(missing, now)
        return {place: RabbitmqQueue(place[1], place[0], QUORUM) for place in missing}

    def _gone(self, place: Place, vhost: str, lookup: Lookup, now: float) -> bool:
        """Returns whether the queue is one of the lookup, was there some seconds ago, and was not counted now."""
        recently = now - GONE_SECONDS <= self._seen[place] < now
        return recently and vhost in (place[0], ANY_VHOST) and lookup.matches(place[1])

    async def _with_rates(
        self, nodes: Sequence[NodeMetrics], lookup: Lookup, found: Mapping[Place, RabbitmqQueue]
    ) -> list[RabbitmqQueue]:
        if not lookup.statistics:
            return list(found.values())
        samples = lookup.samples or self._all_samples
        return await asyncio.to_thread(self._remembered, nodes, found, samples)

    def _remembered(
        self, nodes: Sequence[NodeMetrics], found: Mapping[Place, RabbitmqQueue], samples: bool
    ) -> list[RabbitmqQueue]:
        """Adds the counters to those of earlier reads, and returns the queues with rates. Call it in a thread."""
        at = max(node.at for node in nodes)
        complete_ones = {place: queue for place, queue in found.items() if queue.complete}
        read = counters(nodes, complete_ones)
        with self._adding:
            for place, queue in complete_ones.items():
                self._histories.add(at, queue, read[place])
            return [
                self._histories.measured(queue, samples=samples) if queue.complete else queue
                for queue in found.values()
            ]


def _require(names: Iterable[str], nodes: Sequence[NodeMetrics], answers: Sequence[NodeAnswer], setting: str) -> None:
    """Raises AdapterError if a node is not read: with the errors of the addresses, or with what to write."""
    absent = sorted(set(names) - {node.node for node in nodes})
    if not absent:
        return
    errors = "; ".join(dict.fromkeys(each.message for each in answers if isinstance(each, AdapterError)))
    why = errors or f"write the address of its plugin into {setting}, too"
    raise AdapterError(
        f"node{'s' if len(absent) > 1 else ''} {', '.join(absent)} of the cluster {'are' if len(absent) > 1 else 'is'} "
        f"not read, so that a part of the numbers is unknown: {why}",
        alive=True,
    )


def _require_read(nodes: Sequence[NodeMetrics]) -> None:
    """Raises AdapterError if a queue was left out because its name cannot be read: it may be one of the lookup."""
    for node in nodes:
        if node.unread:
            raise AdapterError(
                f"the plugin rabbitmq_prometheus on {node.node} writes the name of a queue so that it cannot be read, "
                f"as RabbitMQ 3 does with quotes and backslashes: {node.unread}; rename the queue, or write source: "
                "management or auto",
                "spec",
            )


def _queues_of(node: NodeMetrics, lookup: Lookup) -> dict[Place, RabbitmqQueue]:
    """Returns the queues of the lookup that a node counts."""
    found: dict[Place, dict[str, Any]] = {}
    skipped = set[Place]()
    for field, series in _FIELDS.items():
        for sample in node.of(series):
            place = _place(sample.labels)
            if place not in found:
                if place in skipped or not lookup.matches(place[1]):
                    skipped.add(place)
                    continue
                found[place] = {}
            if math.isfinite(sample.value) and sample.value >= 0:
                found[place][field] = int(sample.value)
    classic = {_place(sample.labels) for sample in node.of(_OLDEST)} if node.has(_OLDEST) else found.keys()
    capacity = {_place(sample.labels): sample.value for sample in node.of(_CAPACITY)}
    streams = {_place(sample.labels) for sample in node.of(_REDUCTIONS) if sample.value == 0}
    types = {
        place: STREAM if place in streams else QUORUM for place in found if place in streams or place not in classic
    }
    return {
        place: RabbitmqQueue(place[1], place[0], types.get(place, ""), consumer_capacity=capacity.get(place), **fields)
        for place, fields in found.items()
    }


def _counted_twice(queue: RabbitmqQueue) -> RabbitmqQueue:
    fault = "two nodes of the cluster count it, as they may while its leader moves"
    return RabbitmqQueue(queue.name, queue.vhost, fault=fault)


def _place(labels: Mapping[str, str]) -> Place:
    return labels.get("vhost", ""), labels.get("queue", "")


# Counts from the management API, and statistics from wherever the broker keeps them.
#
# RabbitMQ calls the statistics of the management API deprecated from 4.0 on, and operators turn them off. The API still
# counts then, asks the leaders of the queues for it, and knows which nodes run. Rates, consumers and their capacity
# come from the plugin rabbitmq_prometheus on each of these nodes.

KEPT = "the statistics of the management API"
NOT_KEPT = "the plugin rabbitmq_prometheus, because the broker keeps no statistics"


class Auto:
    """Reads counts by the management API, and statistics there or, if the broker keeps none, by the plugin."""

    def __init__(self, settings: Settings, context: Context, plugin: Plugin) -> None:
        self._management = Management(settings, context)
        self._broker = RabbitmqBroker(settings, context)
        self._plugin = PluginQueues(settings, context, plugin)
        self._monotonic = context.clock.monotonic
        self._log = context.log
        self._kept: bool | None = None
        self._known_at: float | None = None

    def __str__(self) -> str:
        return str(self._management)

    async def read(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues that exist; raises AdapterError."""
        if not lookup.statistics or await self.keeps_statistics(vhost):
            try:
                return await self._management.read(vhost, lookup)
            except NoStatisticsError:  # they have just been turned off
                self._known_at = None
        queues = await self._management.read(vhost, Lookup(lookup.names, lookup.patterns))
        known = await self._plugin.statistics(vhost, lookup, await self._running(vhost))
        return [_completed(queue, known.get((queue.vhost, queue.name))) for queue in queues]

    async def whole(self, families: Collection[str], vhost: str) -> list[NodeMetrics]:
        """Returns what the plugin on each node answers; raises AdapterError unless all running nodes have answered."""
        return await self._plugin.whole(families, vhost, await self._running(vhost))

    async def statistics_from(self, vhost: str) -> str:
        """Returns where statistics come from, as the end of a sentence; raises AdapterError."""
        return KEPT if await self.keeps_statistics(vhost) else NOT_KEPT

    async def keeps_statistics(self, vhost: str) -> bool:
        """Returns whether all nodes keep statistics and rates; logs what it found. Raises AdapterError."""
        now = self._monotonic()
        if self._known_at is not None and now - self._known_at < KNOWN_SECONDS:
            return bool(self._kept)
        rates = await self._management.keeps_rates(vhost)
        kept = rates and not await self._management.silent_nodes(vhost)
        if self._kept != kept:
            self._log.info("found where statistics come from", statistics=KEPT if kept else NOT_KEPT)
        self._kept = kept
        self._known_at = now if kept == rates else None  # a node that has just started has none for some seconds
        return kept

    async def _running(self, vhost: str) -> list[str]:
        """Returns the names of the nodes that run."""
        return [each.name for each in await running_nodes(self._broker, vhost)]


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

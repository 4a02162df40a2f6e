"""The RabbitMQ adapter: reads the queues of each vhost once, and makes samples of them, or the PromQL of their past."""

import asyncio
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import ClassVar, Final

from msgspec.structs import replace

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, PastPromQL, Query, or_error
from hpad_adapters import extras
from hpad_adapters.rabbitmq import settings
from hpad_adapters.rabbitmq.amqp import Amqp
from hpad_adapters.rabbitmq.management import Management
from hpad_adapters.rabbitmq.metric import ANY_VHOST, OwnQueues
from hpad_adapters.rabbitmq.plugin import PREFIX, Plugin
from hpad_adapters.rabbitmq.plugin_queues import Auto, PluginQueues
from hpad_adapters.rabbitmq.pod_work import Plan, PodWork
from hpad_adapters.rabbitmq.queries import (
    NAMES,
    PARAMETERS,
    StreamQuery,
    about_stream,
    queue_query,
    stream_query,
)
from hpad_adapters.rabbitmq.queues import RabbitmqQueue, Unconsumed
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.stream_lag import NO_MEMBERS, StreamLags
from hpad_adapters.rabbitmq.values import Lookup, QueueQuery, TooManyQueuesError, ValueReader, Values
from hpad_adapters.selection import attempt

_Place = tuple[str, bool, bool, bool, bool]
"""A vhost, whether by patterns, and what is needed of a Lookup: counts alone cost the broker less."""
_Found = dict[str, list[RabbitmqQueue]] | AdapterError
_FoundBy = Mapping[re.Pattern[str] | None, _Found]
"""What each pattern has found, and under None the names."""


class RabbitMQ:
    """Messages, rates and consumers of RabbitMQ queues, and the workers that clear a backlog within a goal in seconds.

    The metric's selector names the queue, unless the configuration does: `queue=worker_tasks` or `queue in (a,b)`,
    optionally with `vhost=`, `mode=` and `aggregate=`. Queries by pod are answered with the messages that the consumers
    of each pod hold. Metrics of streams have `stream=` and `group=`, and need the setting `stream_url`.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    knows_members = True
    metrics: Sequence[str] = NAMES
    parameters = PARAMETERS
    Settings: ClassVar[type[settings.Settings]] = settings.Settings
    QuerySchema = OwnQueues

    @staticmethod
    def lacks(settings: settings.Settings) -> str:
        """Returns the package that is missing; "" if none is."""
        return extras.lacks("aiormq", "amqp") if settings.source == "amqp" else ""

    def __init__(self, configured: settings.Settings, context: Context) -> None:
        self.metrics = (*NAMES, *configured.metrics)
        self._settings = configured
        self._clock = context.clock
        self._values = Values(configured, context)
        self._unconsumed = Unconsumed(context.clock.monotonic)
        urls = configured.plugin_nodes
        self._plugin = Plugin(urls, configured.http_options(), context) if urls else None
        self._reader = _reader(configured, context, self._plugin)
        self._lags = StreamLags(configured, context)
        self._work = PodWork(configured, context, self._reader)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns one answer per query; each vhost is read once, and once more if statistics are needed."""
        plans = [attempt(self._plan, query) for query in queries]
        if any(query.members is not None for query in queries):
            return await self._with_work(plans, queries)
        return await self._values_of(plans)

    async def _with_work(self, plans: Sequence[Plan | StreamQuery], queries: Sequence[Query]) -> list[Answer]:
        """Answers queries of which some are about the work of each pod, which streams do not tell."""
        pairs = list(zip(plans, queries, strict=True))
        by_pod = [pair for pair in pairs if pair[1].members is not None]
        queues = [AdapterError(NO_MEMBERS, "spec") if isinstance(plan, StreamQuery) else plan for plan, _ in by_pod]
        work = iter(await self._work.answers(queues, [query for _, query in by_pod]))
        values = iter(await self._values_of([plan for plan, query in pairs if query.members is None]))
        return [next(values) if query.members is None else next(work) for query in queries]

    async def _values_of(self, plans: Sequence[Plan | StreamQuery]) -> list[Answer]:
        lags = iter(await self._lags.answers([plan for plan in plans if isinstance(plan, StreamQuery)]))
        values = iter(await self._values_of_queues([plan for plan in plans if not isinstance(plan, StreamQuery)]))
        return [next(lags) if isinstance(plan, StreamQuery) else next(values) for plan in plans]

    async def _values_of_queues(self, plans: Sequence[Plan]) -> list[Answer]:
        lookups = self._lookups(plan for plan in plans if isinstance(plan, QueueQuery))
        read = await asyncio.gather(*(self._read(vhost, each) for (vhost, *_), each in lookups.items()))
        found = dict(zip(lookups, read, strict=True))
        return [plan if isinstance(plan, AdapterError) else self._answer(plan, found) for plan in plans]

    def group(self, query: Query) -> Hashable:
        """Returns what the queries that are read together agree in; None for an invalid query."""
        plan = attempt(self._plan, query)
        if isinstance(plan, StreamQuery):
            return "stream", plan.vhost
        return None if isinstance(plan, AdapterError) else tuple(self._places(plan))

    async def explain(self, query: Query) -> str:
        """Returns what is read, and from where; raises AdapterError."""
        plan = self._plan(query)
        if isinstance(plan, StreamQuery):
            return f'stream "{plan.stream}" in vhost "{plan.vhost}", by the plugin rabbitmq_stream'
        queues = ", ".join(plan.queues) or f"all that match {plan.pattern.pattern if plan.pattern else ''}"
        read = f"{plan.mode} of {queues} in {self._place(plan)}"
        if isinstance(self._reader, Auto) and plan.statistics:
            return f"{read}, with {await self._reader.statistics_from(plan.vhosts[0])}"
        return read

    async def past(self, query: Query, window: timedelta) -> PastPromQL:
        """Returns the PromQL of the queue in the series of the plugin; rates are over `window`. Raises AdapterError."""
        plan = self._plan(query)
        if isinstance(plan, StreamQuery):
            raise AdapterError("no series has the lag of a group behind a stream: its past cannot be read", "spec")
        return past_of(plan, window)

    async def aclose(self) -> None:
        """Closes the connections of AMQP; hpad closes the session of all others."""
        if isinstance(self._reader, Amqp):
            await self._reader.aclose()

    def _plan(self, query: Query) -> QueueQuery | StreamQuery:
        if about_stream(query, self._settings):
            return stream_query(query, self._settings)
        return queue_query(query, self._settings)

    async def _read(self, vhost: str, lookup: Lookup) -> _FoundBy:
        together = await or_error(self._found, vhost, lookup)
        # One list for all patterns costs least; if that is too many queues, a pattern alone may still be readable.
        if isinstance(together, TooManyQueuesError) and len(lookup.patterns) > 1:
            alone = {each: replace(lookup, patterns=frozenset({each})) for each in lookup.patterns}
            return {each: await or_error(self._found, vhost, part) for each, part in alone.items()}
        return dict.fromkeys(lookup.patterns or (None,), together)

    async def _found(self, vhost: str, lookup: Lookup) -> dict[str, list[RabbitmqQueue]]:
        """Returns the queues by name: one each, or several where "*" stands for several vhosts."""
        found: dict[str, list[RabbitmqQueue]] = {}
        for queue in await self._reader.read(vhost, lookup):
            found.setdefault(queue.name, []).append(queue)
        return found

    def _answer(self, plan: QueueQuery, read: Mapping[_Place, _FoundBy]) -> Answer:
        queues: list[RabbitmqQueue] = []
        absent: list[str] = []
        for place in self._places(plan):
            found = read[place][plan.pattern]
            if isinstance(found, AdapterError):
                return found
            if plan.pattern is None:
                absent += (name for name in plan.queues if name not in found)
                queues += (queue for name in plan.queues for queue in found.get(name, ()))
            else:
                queues += (queue for name, each in found.items() if plan.matches(name) for queue in each)
        try:
            values = self._values.of(plan, queues, absent, self._place(plan))
        except AdapterError as error:
            return error
        return ExternalSample(values, self._clock.now(), self._unconsumed.note(queues))

    def _places(self, plan: QueueQuery) -> list[_Place]:
        """Returns where the queues are read; for the management API, what is extended costs nothing more."""
        extended = plan.extended and bool(self._settings.plugin_nodes)
        return [(vhost, bool(plan.patterns), plan.statistics, plan.samples, extended) for vhost in plan.vhosts]

    def _lookups(self, plans: Iterable[QueueQuery]) -> dict[_Place, Lookup]:
        """Returns the queues that the queries of a batch need: in each vhost the named ones, and those of patterns.

        They are read apart: a pattern needs a list, and all nodes, where names may do without.
        """
        found: dict[_Place, tuple[set[str], set[re.Pattern[str]]]] = {}
        for plan in plans:
            for place in self._places(plan):
                names, patterns = found.setdefault(place, (set(), set()))
                names.update(plan.queues)
                patterns.update(plan.patterns)
        return {
            place: Lookup(frozenset(names), frozenset(patterns), *place[2:])
            for place, (names, patterns) in found.items()
        }

    def _place(self, plan: QueueQuery) -> str:
        if ANY_VHOST in plan.vhosts:
            return f"any vhost of {self._reader}"
        names = ", ".join(f'"{vhost}"' for vhost in plan.vhosts)
        return f"vhost{'s' if len(plan.vhosts) > 1 else ''} {names} of {self._reader}"


def _reader(settings: Settings, context: Context, plugin: Plugin | None) -> ValueReader:
    if settings.source == "amqp":
        return Amqp(settings, context)
    if plugin is None:
        return Management(settings, context)
    return Auto(settings, context, plugin) if settings.source == "auto" else PluginQueues(settings, context, plugin)


# The PromQL by which a Prometheus that scrapes the plugin rabbitmq_prometheus knows the past of a queue.
#
# The plugin names series of single queues at /metrics/per-object (also /metrics with return_per_object_metrics) and at
# /metrics/detailed, where the families queue_coarse_metrics, queue_delivery_metrics and queue_exchange_metrics are
# needed (RabbitMQ 3: channel_queue_metrics and channel_queue_exchange_metrics). Seen in 3.10.8 and 4.0.5. Each node
# counts the queues that it leads, so the nodes are added up.

_PREFIXES: Final = ("rabbitmq_", PREFIX)
_GAUGES: Final = {
    "messages": ("queue_messages_ready", "queue_messages_unacked"),
    "ready": ("queue_messages_ready",),
    "unacked": ("queue_messages_unacked",),
    "consumers": ("queue_consumers",),
}
"""The series of a mode, which are added up. `queue_messages` also counts what no consumer can get."""
_BACKLOGS: Final = ("messages", "ready")
Counter = tuple[tuple[str, str], ...]
"""Names of series of which the first that exists counts, each with its label of the vhost: RabbitMQ 4 counts by queue,
earlier versions by channel."""
_PUBLISHED: Final[Counter] = (
    ("queue_exchange_messages_published_total", "vhost"),
    ("queue_messages_published_total", "queue_vhost"),
)
_ACKED: Final[Counter] = (("queue_messages_acked_total", "vhost"), ("channel_messages_acked_total", "vhost"))
_COUNTERS: Final = {"publish_rate": _PUBLISHED, "ack_rate": _ACKED}
_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def past_of(query: QueueQuery, window: timedelta) -> PastPromQL:
    """Returns the PromQL of the queues. Raises AdapterError for what the plugin does not count by queue."""
    if query.pattern is not None:
        text = "the queues of a pattern are not known by their names"
        raise AdapterError(f"{text}: write their PromQL into the series file", "spec")
    if query.mode in _GAUGES:
        values = _first([_added(query, prefix) for prefix in _PREFIXES])
        flows = query.mode in _BACKLOGS and (query.aggregate == "sum" or len(query.queues) * len(query.vhosts) == 1)
        rates = [_rate(query, counter, window) if flows else "" for counter in (_PUBLISHED, _ACKED)]
        return PastPromQL(values, *rates)
    if query.mode in _COUNTERS and query.aggregate == "sum":
        return PastPromQL(_rate(query, _COUNTERS[query.mode], window))
    raise AdapterError(f"RabbitMQ exports no series of {query.mode}: write its PromQL into the series file", "spec")


def _added(query: QueueQuery, prefix: str) -> str:
    """Returns the sum of the gauges of a mode, over the queues or reduced otherwise."""
    if query.aggregate == "sum":
        return " + ".join(f"sum({prefix}{name}{{{_matchers(query)}}})" for name in _GAUGES[query.mode])
    each = (f"sum by (vhost, queue) ({prefix}{name}{{{_matchers(query)}}})" for name in _GAUGES[query.mode])
    return f"{query.aggregate}({' + '.join(each)})"


def _rate(query: QueueQuery, counter: Counter, window: timedelta) -> str:
    length = f"{window // timedelta(seconds=1)}s"
    return _first(
        [
            f"sum(rate({prefix}{name}{{{_matchers(query, vhost)}}}[{length}]))"
            for name, vhost in counter
            for prefix in _PREFIXES
        ]
    )


def _first(expressions: Sequence[str]) -> str:
    """Returns an expression with the value of the first one that has one."""
    return " or ".join(expressions)


def _matchers(query: QueueQuery, vhost: str = "vhost") -> str:
    return f"{_one_of(vhost, query.vhosts)},{_one_of('queue', query.queues)}"


def _one_of(label: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f'{label}="{values[0].translate(_ESCAPES)}"'
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", value) for value in values)
    return f'{label}=~"{pattern.translate(_ESCAPES)}"'

"""The RabbitMQ adapter: queries are read, the queues of each vhost are looked up once, and samples are made of them.

An HPA's selector names the queue, unless the configuration does: `queue=worker_tasks` or `queue in (a,b)`, optionally
with `vhost=`, `mode=` and `aggregate=`.
"""

import asyncio
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

from hpad.adapter import EXTERNAL, AdapterError, Answer, Context, ExternalSample, Operator, Query
from hpad_adapters.rabbitmq import settings
from hpad_adapters.rabbitmq.amqp import Amqp
from hpad_adapters.rabbitmq.broker import Broker
from hpad_adapters.rabbitmq.management import Management
from hpad_adapters.rabbitmq.settings import AGGREGATES, ANY_VHOST, MODES, UNSUMMABLE, Metric, Settings, compiled
from hpad_adapters.rabbitmq.values import Lookup, Queue, QueueQuery, Reader, TooManyQueuesError, Values

METRICS = {
    "queue_messages": "messages",
    "queue_messages_ready": "ready",
    "queue_messages_unacknowledged": "unacked",
}
"""Metric name -> mode, of the metrics that need no configuration."""

_ALIASES = {"messages_ready": "ready", "messages_unacknowledged": "unacked"}
_PARAMETERS = ("queue", "vhost", "mode", "aggregate", "queue_regex")
_EXAMPLES = {"vhost": "production", "mode": "ready", "aggregate": "max", "queue_regex": "orders", "queue": "orders"}
_EQUALITY = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN)
_DEFAULTS = Metric()

_Place = tuple[str, bool]
"""A vhost, and whether its statistics are needed: counts alone are fresher and cost the broker less."""
_Found = dict[str, list[Queue]] | AdapterError


class RabbitMQ:
    """External metrics `queue_messages`, `queue_messages_ready`, `queue_messages_unacknowledged`, and configured ones.

    The metric's selector names the queue, unless the configuration does: `queue=worker_tasks` or `queue in (a,b)`,
    optionally with `vhost=`, `mode=` and `aggregate=`.
    """

    serves: ClassVar[frozenset[str]] = frozenset({EXTERNAL})
    metrics: Sequence[str] = tuple(METRICS)
    Settings: ClassVar[type[settings.Settings]] = settings.Settings

    def __init__(self, configured: settings.Settings, context: Context) -> None:
        self.metrics = (*METRICS, *configured.metrics)
        self._settings = configured
        self._clock = context.clock
        self._values = Values(configured)
        self._reader, self._server = _reader(configured, context)

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """One answer per query; each vhost is read once, and once more if statistics are needed."""
        plans = [self._plan(query) for query in queries]
        lookups = _lookups(plan for plan in plans if isinstance(plan, QueueQuery))
        read = await asyncio.gather(*(self._read(vhost, each) for (vhost, _), each in lookups.items()))
        vhosts = dict(zip(lookups, read, strict=True))
        return [plan if isinstance(plan, AdapterError) else self._answer(plan, vhosts) for plan in plans]

    def group(self, query: Query) -> Hashable:
        """The vhosts of a query: their queues are read together. None for a query that is wrong."""
        plan = self._plan(query)
        return None if isinstance(plan, AdapterError) else (plan.vhosts, plan.statistics)

    async def aclose(self) -> None:
        """Closes the reader's own connections."""
        await self._reader.aclose()

    def _plan(self, query: Query) -> QueueQuery | AdapterError:
        try:
            return queue_query(query, self._settings)
        except AdapterError as error:
            return error

    async def _read(self, vhost: str, lookup: Lookup) -> dict[re.Pattern[str] | None, _Found]:
        """The queues by name, for each pattern and for the names (under None): together, or apart if those are many."""
        together = await self._found(vhost, lookup)
        if isinstance(together, TooManyQueuesError) and len(lookup.parts) > 1:
            return {part: await self._found(vhost, each) for part, each in lookup.parts.items()}
        return dict.fromkeys(lookup.parts, together)

    async def _found(self, vhost: str, lookup: Lookup) -> _Found:
        """The queues by name: one each, or several where "*" stands for several vhosts."""
        try:
            found: dict[str, list[Queue]] = {}
            for queue in await self._reader.read(vhost, lookup):
                found.setdefault(queue.name, []).append(queue)
            return found
        except AdapterError as error:
            return error

    def _answer(self, plan: QueueQuery, vhosts: Mapping[_Place, Mapping[re.Pattern[str] | None, _Found]]) -> Answer:
        queues: list[Queue] = []
        absent: list[str] = []
        for vhost in plan.vhosts:
            found = vhosts[vhost, plan.statistics][plan.pattern]
            if isinstance(found, AdapterError):
                return found
            if plan.pattern is None:
                absent += (name for name in plan.queues if name not in found)
                queues += (queue for name in plan.queues for queue in found.get(name, ()))
            else:
                queues += (queue for name, each in found.items() if plan.matches(name) for queue in each)
        try:
            return ExternalSample(self._values.of(plan, queues, absent, self._place(plan)), self._clock.now())
        except AdapterError as error:
            return error

    def _place(self, plan: QueueQuery) -> str:
        if ANY_VHOST in plan.vhosts:
            return f"any vhost of {self._server}"
        names = ", ".join(f'"{vhost}"' for vhost in plan.vhosts)
        return f"vhost{'s' if len(plan.vhosts) > 1 else ''} {names} of {self._server}"


def _reader(configured: settings.Settings, context: Context) -> tuple[Reader, object]:
    """The reader, and the object whose text is the name of the server in errors."""
    if configured.source == "amqp":
        amqp = Amqp(configured, context)
        return amqp, amqp
    broker = Broker(configured, context)
    return Management(broker, configured), broker


def _lookups(plans: Iterable[QueueQuery]) -> dict[_Place, Lookup]:
    """The queues of each vhost that the queries of a batch are about."""
    found: dict[_Place, tuple[set[str], set[re.Pattern[str]]]] = {}
    for plan in plans:
        for vhost in plan.vhosts:
            names, patterns = found.setdefault((vhost, plan.statistics), (set(), set()))
            names.update(plan.queues)
            if plan.pattern is not None:
                patterns.add(plan.pattern)
    return {
        place: Lookup(frozenset(names), frozenset(patterns), place[1]) for place, (names, patterns) in found.items()
    }


def queue_query(query: Query, settings: Settings) -> QueueQuery:
    """Reads the name and selector of a query; raises AdapterError (blame "spec") saying what to write.

    Without `mode` the name of the metric decides; a name that only a route sends here stands for all messages.
    """
    metric = settings.metrics.get(query.name, _DEFAULTS)
    given = _parameters(query, metric)
    pattern = _pattern(query, given, metric, settings)
    queues = metric.names or tuple(_real_name(query, "queue", name, settings) for name in given.get("queue", ()))
    if not queues and pattern is None:
        raise AdapterError(
            f'External metric "{query.name}" names no queue: write it in the metric\'s selector, '
            "such as matchLabels: {queue: worker_tasks}",
            "spec",
        )
    vhosts = tuple(_real_name(query, "vhost", name, settings) for name in given.get("vhost", ()))
    mode = _mode(query, given, metric, settings)
    return QueueQuery(
        vhosts=metric.vhosts or vhosts or (settings.vhost,),
        queues=tuple(dict.fromkeys(queues)),
        pattern=pattern,
        exclude=compiled("exclude_regex", metric.exclude_regex),
        mode="ready" if mode == "messages" and not metric.include_unacked else mode,
        include_unacked=metric.include_unacked,
        aggregate=_aggregate(query, given, metric, mode),
        on_missing_queue=metric.on_missing_queue or settings.on_missing_queue,
        on_stalled=metric.on_stalled or settings.on_stalled,
    )


def _parameters(query: Query, metric: Metric) -> dict[str, tuple[str, ...]]:
    """The parameters in the selector, of those that the metric leaves open; `queue` may have several values."""
    given: dict[str, tuple[str, ...]] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        key = term.key
        if key not in _PARAMETERS:
            raise _wrong(query, f'"{key}" is not a parameter of rabbitmq; the parameters are {", ".join(_PARAMETERS)}')
        if term.operator not in _EQUALITY or (len(term.values) != 1 and key != "queue"):
            raise _wrong(query, f'"{term}": write one value, such as {key}={_EXAMPLES[key]}')
        if not all(term.values):
            raise _wrong(query, f'"{key}" is empty: write a value, such as {key}={_EXAMPLES[key]}')
        if _fixed(metric, key):
            raise _wrong(query, f'"{key}" is set for this metric by hpad\'s configuration; leave it out')
        if given.setdefault(key, tuple(term.values)) != tuple(term.values):
            raise _wrong(query, f'"{key}" is given twice')
    return given


def _fixed(metric: Metric, key: str) -> bool:
    if key in ("queue", "queue_regex"):
        return bool(metric.names or metric.queue_regex)
    return bool(getattr(metric, key))


def _real_name(query: Query, key: str, name: str, settings: Settings) -> str:
    """The real name of a queue or vhost in the selector; raises AdapterError if the configuration excludes it."""
    named: Mapping[str, str] = settings.queues if key == "queue" else settings.vhosts
    confined = settings.only_queues if key == "queue" else settings.only_vhosts
    if confined and name not in named:
        raise _wrong(query, f'the {key} "{name}" is not one that hpad\'s configuration offers')
    if key == "vhost" and named.get(name, name) == ANY_VHOST:
        raise _wrong(query, "only hpad's configuration can name all vhosts")
    return named.get(name, name)


def _pattern(
    query: Query, given: Mapping[str, tuple[str, ...]], metric: Metric, settings: Settings
) -> re.Pattern[str] | None:
    if "queue_regex" not in given:
        return compiled("queue_regex", metric.queue_regex)
    [name] = given["queue_regex"]
    if name not in settings.patterns:
        offered = ", ".join(settings.patterns) or "none"
        raise _wrong(query, f'there is no pattern "{name}"; hpad\'s configuration offers {offered}')
    if "queue" in given:
        raise _wrong(query, "write queue or queue_regex, not both")
    return compiled("queue_regex", settings.patterns[name])


def _mode(query: Query, given: Mapping[str, tuple[str, ...]], metric: Metric, settings: Settings) -> str:
    [name] = given.get("mode", (metric.mode or METRICS.get(query.name, "messages"),))
    mode = _ALIASES.get(name, name)
    if mode not in MODES:
        raise _wrong(query, f'there is no mode "{mode}"; there are {", ".join(MODES)}')
    effective = "ready" if mode == "messages" and not metric.include_unacked else mode
    if not settings.offers(effective):
        raise _wrong(
            query,
            f"mode={mode}: AMQP reports ready messages and consumers only, not messages that consumers hold: "
            "write mode=ready",
        )
    return mode


def _aggregate(query: Query, given: Mapping[str, tuple[str, ...]], metric: Metric, mode: str) -> str:
    [name] = given.get("aggregate", (metric.aggregate or ("max" if mode in UNSUMMABLE else "sum"),))
    if name not in AGGREGATES:
        raise _wrong(query, f'there is no aggregate "{name}"; there are {", ".join(AGGREGATES)}')
    if name == "sum" and mode in UNSUMMABLE:
        raise _wrong(query, f"a sum of {mode} has no meaning; write aggregate=max, avg or min")
    return name


def _wrong(query: Query, message: str) -> AdapterError:
    return AdapterError(f'selector of External metric "{query.name}": {message}', "spec")

"""Which number of which queues a query means."""

import re
from collections.abc import Mapping

import msgspec

from hpad.adapter import AdapterError, Operator, Query
from hpad_adapters.rabbitmq.modes import AGGREGATES, ANY_VHOST, COUNTS, MODES, UNSUMMABLE, Metric, compiled
from hpad_adapters.rabbitmq.settings import Settings

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
_NOTHING_SAID = Metric()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Queues by their real names, or by a pattern, and what to make of them."""

    vhosts: tuple[str, ...] = ("/",)
    queues: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    mode: str = "messages"
    include_unacked: bool = True
    aggregate: str = "sum"
    on_missing_queue: str = "error"
    on_stalled: str = "hold"

    @property
    def statistics(self) -> bool:
        """Whether counts alone do not tell."""
        return self.mode not in COUNTS

    def matches(self, name: str) -> bool:
        """Whether a queue of that name is meant."""
        if self.pattern is None:
            return name in self.queues
        return self.pattern.fullmatch(name) is not None and not (self.exclude and self.exclude.fullmatch(name))


def wanted(query: Query, settings: Settings) -> Wanted:
    """Read a query's name and selector; raises AdapterError (blame "spec") saying what to write.

    Without `mode` the metric's name decides, and a name of the operator's own (by a route) means all messages.
    """
    metric = settings.metrics.get(query.name, _NOTHING_SAID)
    given = _parameters(query, metric)
    pattern = _pattern(query, given, metric, settings)
    queues = metric.names or tuple(_allowed(query, "queue", said, settings) for said in given.get("queue", ()))
    if not queues and pattern is None:
        raise AdapterError(
            f'External metric "{query.name}" does not say which queue: write it in the metric\'s selector, '
            "such as matchLabels: {queue: worker_tasks}",
            "spec",
        )
    said = tuple(_allowed(query, "vhost", said, settings) for said in given.get("vhost", ()))
    mode = _mode(query, given, metric, settings)
    return Wanted(
        vhosts=metric.vhosts or said or (settings.vhost,),
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
    """What the selector says, for parameters that the metric leaves open; one value each, but for queues."""
    given: dict[str, tuple[str, ...]] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        key = term.key
        if key not in _PARAMETERS:
            raise _wrong(query, f'"{key}" is no parameter of rabbitmq; there are {", ".join(_PARAMETERS)}')
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


def _allowed(query: Query, key: str, said: str, settings: Settings) -> str:
    """The real name of the queue or vhost that the selector says."""
    named: Mapping[str, str] = settings.queues if key == "queue" else settings.vhosts
    confined = settings.only_queues if key == "queue" else settings.only_vhosts
    if confined and said not in named:
        raise _wrong(query, f'the {key} "{said}" is not among those that hpad\'s configuration offers')
    if key == "vhost" and named.get(said, said) == ANY_VHOST:
        raise _wrong(query, "all vhosts can be asked for by hpad's configuration alone")
    return named.get(said, said)


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
    [said] = given.get("mode", (metric.mode or METRICS.get(query.name, "messages"),))
    mode = _ALIASES.get(said, said)
    if mode not in MODES:
        raise _wrong(query, f'there is no mode "{mode}"; there are {", ".join(MODES)}')
    effective = "ready" if mode == "messages" and not metric.include_unacked else mode
    if not settings.offers(effective):
        raise _wrong(query, f"mode={mode}: {_UNOFFERED[settings.source]}")
    return mode


_UNOFFERED = {
    "amqp": "AMQP tells of ready messages and of consumers alone, not of what consumers hold: write mode=ready",
    "prometheus": "the metrics of RabbitMQ tell of messages, ready, unacked and consumers alone",
}


def _aggregate(query: Query, given: Mapping[str, tuple[str, ...]], metric: Metric, mode: str) -> str:
    [said] = given.get("aggregate", (metric.aggregate or ("max" if mode in UNSUMMABLE else "sum"),))
    if said not in AGGREGATES:
        raise _wrong(query, f'there is no aggregate "{said}"; there are {", ".join(AGGREGATES)}')
    if said == "sum" and mode in UNSUMMABLE:
        raise _wrong(query, f"a sum of {mode} means nothing; write aggregate=max, avg or min")
    return said


def _wrong(query: Query, what: str) -> AdapterError:
    return AdapterError(f'selector of External metric "{query.name}": {what}', "spec")

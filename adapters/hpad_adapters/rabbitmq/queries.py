"""Queries about queues and about streams: their names, selectors, definitions and configured metrics."""

import re
from collections.abc import Collection, Mapping

import msgspec

from hpad.adapter import AdapterError, Query
from hpad_adapters.clearing.goal import GOAL, ClearingGoal
from hpad_adapters.rabbitmq.metric import (
    AGGREGATES,
    ANY_VHOST,
    CLEARING,
    LAG,
    MODES,
    UNSUMMABLE,
    WORKERS,
    Metric,
    NoOffset,
    compiled,
)
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.values import QueueQuery
from hpad_adapters.selection import EQUALITY

_METRICS = {
    "queue_messages": "messages",
    "queue_messages_ready": "ready",
    "queue_messages_unacknowledged": "unacked",
    "queue_workers_to_clear": "workers_to_clear",
    "queue_time_to_clear": "time_to_clear",
    "queue_growth": "growth",
    "queue_head_age": "head_age",
}
"""Metric name -> mode, of the metrics that need no configuration."""

_EXAMPLES = {"queue": "orders", "vhost": "production", "mode": "ready", "aggregate": "max", "queue_regex": "orders"}
_EXAMPLES |= {"goal": "60s", "startup": "10s", "service_time": "2s", "prefetch": "4", "concurrency": "2"}
"""Parameters of the selector, each with an example."""
_UNOFFERED = {
    "amqp": "AMQP reports ready messages and consumers only, not messages that consumers hold: write mode=ready, or for"
    " Celery take celery_tasks_waiting",
    "prometheus": "the plugin rabbitmq_prometheus does not tell which queues have priorities; source: auto does",
}
"""Why a source has no values of a mode."""
_DEFAULTS = Metric()

_STREAM_METRICS = {"stream_lag": LAG, "stream_workers_to_clear": WORKERS}
"""Metric name -> mode, of the metrics of streams that need no configuration."""
_STREAM_PARAMETERS = {"stream": "invoices", "group": "billing"}
"""Parameters of the selector that only they have, each with an example."""
_STREAM_GOAL = {"goal": "60s", "startup": "10s", "service_time": "2s", "concurrency": "2"}
_STREAM_EXAMPLES = {**_STREAM_PARAMETERS, "vhost": "production", **_STREAM_GOAL}
_NEEDS_URL = (
    "the lag of a group is read by the stream protocol: write stream_url in hpad's configuration of the source, such "
    'as stream_url: "rabbitmq-stream://rabbitmq:5552"'
)
_NEEDS_SERVICE_TIME = (
    "service_time: is missing; write how long a message takes, such as 2s: RabbitMQ does not say how many consumers of "
    "a group share the messages of a stream, so it cannot be measured"
)
NAMES = (*_METRICS, *_STREAM_METRICS)
"""The metrics that need no configuration."""
PARAMETERS = (*_EXAMPLES, *_STREAM_PARAMETERS)


def _real_name(query: Query, key: str, name: str, settings: Settings) -> str:
    """Returns the real name of a queue or vhost in the selector; raises AdapterError if the settings exclude it."""
    named: Mapping[str, str] = settings.queues if key == "queue" else settings.vhosts
    restricted = settings.only_queues if key == "queue" else settings.only_vhosts
    if restricted and name not in named:
        raise _wrong(query, f'the {key} "{name}" is not one that hpad\'s configuration offers')
    # A selector of one namespace must not reach all vhosts, unless the operator wrote such a metric.
    if key == "vhost" and named.get(name, name) == ANY_VHOST:
        raise _wrong(query, "only hpad's configuration can name all vhosts")
    return named.get(name, name)


def _wrong(query: Query, message: str) -> AdapterError:
    """Returns the error of a query that asks for something impossible."""
    where = "" if query.definition is not None else f'selector of External metric "{query.name}": '
    return AdapterError(f"{where}{message}", "spec")


def queue_query(query: Query, settings: Settings) -> QueueQuery:
    """Parses the name and selector of a query; raises AdapterError (blame "spec") with the correct form.

    Without `mode` the name of the metric determines it; a name that only a route sends here stands for all messages.
    """
    metric = _metric(query, settings)
    if query.definition is not None:
        metric = _really_named(query, metric, settings)
    parameters = _parameters(query, metric, _EXAMPLES, "metrics of queues")
    pattern = _pattern(query, parameters, metric, settings)
    queues = metric.names or tuple(_real_name(query, "queue", name, settings) for name in parameters.get("queue", ()))
    if not queues and pattern is None:
        raise AdapterError(
            f'External metric "{query.name}" names no queue: write it in the metric\'s selector, '
            "such as matchLabels: {queue: worker_tasks}",
            "spec",
        )
    vhosts = tuple(_real_name(query, "vhost", name, settings) for name in parameters.get("vhost", ()))
    mode = _mode(query, parameters, metric, settings)
    return QueueQuery(
        vhosts=metric.vhosts or vhosts or (settings.vhost,),
        queues=tuple(dict.fromkeys(queues)),
        pattern=pattern,
        exclude=compiled("exclude_regex", metric.exclude_regex),
        mode=mode,
        include_unacked=metric.include_unacked,
        aggregate=_aggregate(query, parameters, metric, mode),
        on_missing_queue=metric.on_missing_queue or settings.on_missing_queue,
        on_stalled=metric.on_stalled or settings.on_stalled,
        goal=_goal(query, parameters, metric, mode, CLEARING),
    )


def _parameters(query: Query, metric: Metric, examples: Mapping[str, str], of: str) -> dict[str, tuple[str, ...]]:
    """Returns the parameters in the selector; `queue` may have several values. The metric's own fields are refused.

    `examples`: the parameters, each with an example; `of`: what has these, in errors.
    """
    found: dict[str, tuple[str, ...]] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        key = term.key
        if key not in examples:
            raise _wrong(query, f'"{key}" is not a parameter of {of}; the parameters are {", ".join(examples)}')
        if term.operator not in EQUALITY or (len(term.values) != 1 and key != "queue") or not all(term.values):
            raise _wrong(query, f'"{term}": write one value, such as {key}={examples[key]}')
        if _fixed(metric, key):
            raise _wrong(query, f'"{key}" is set for this metric by hpad\'s configuration; leave it out')
        if found.setdefault(key, tuple(term.values)) != tuple(term.values):
            raise _wrong(query, f'"{key}" occurs twice')
    return found


def _really_named(query: Query, metric: Metric, settings: Settings) -> Metric:
    """Returns the metric that a query brings along, with the real names; raises AdapterError for excluded ones."""
    return msgspec.structs.replace(
        metric,
        queue="",
        queues=[_real_name(query, "queue", name, settings) for name in metric.names],
        vhost=[_real_name(query, "vhost", name, settings) for name in metric.vhosts],
    )


def _fixed(metric: Metric, key: str) -> bool:
    if key in ("queue", "queue_regex"):
        return bool(metric.names or metric.queue_regex)
    return bool(getattr(metric, key))


def _pattern(
    query: Query, parameters: Mapping[str, tuple[str, ...]], metric: Metric, settings: Settings
) -> re.Pattern[str] | None:
    if "queue_regex" not in parameters:
        return compiled("queue_regex", metric.queue_regex)
    [name] = parameters["queue_regex"]
    if name not in settings.patterns:
        offered = ", ".join(settings.patterns) or "none"
        raise _wrong(query, f'there is no pattern "{name}"; hpad\'s configuration offers {offered}')
    if "queue" in parameters:
        raise _wrong(query, "write queue or queue_regex, not both")
    return compiled("queue_regex", settings.patterns[name])


def _mode(query: Query, parameters: Mapping[str, tuple[str, ...]], metric: Metric, settings: Settings) -> str:
    """Returns the mode whose values answer the query."""
    [mode] = parameters.get("mode", (metric.mode or _METRICS.get(query.name, "messages"),))
    if mode not in MODES:
        raise _wrong(query, f'there is no mode "{mode}"; there are {", ".join(MODES)}')
    # Without unacknowledged messages, all messages are those that AMQP can count.
    effective = "ready" if mode == "messages" and not metric.include_unacked else mode
    if not settings.offers(effective):
        raise _wrong(query, f"mode={mode}: {_UNOFFERED[settings.source]}")
    return effective


def _goal(
    query: Query, parameters: Mapping[str, tuple[str, ...]], metric: Metric, mode: str, modes: Collection[str]
) -> ClearingGoal | None:
    """Returns the goal of a query, None for a mode that has none (not in `modes`)."""
    selected = {name: parameters[name][0] for name in GOAL if name in parameters}
    if mode not in modes:
        if selected:
            raise _wrong(query, f'"{next(iter(selected))}" belongs to {" and ".join(sorted(modes))}, not to {mode}')
        return None
    try:
        return metric.goal_with(selected)
    except ValueError as error:
        raise _wrong(query, str(error)) from None


def _aggregate(query: Query, parameters: Mapping[str, tuple[str, ...]], metric: Metric, mode: str) -> str:
    [name] = parameters.get("aggregate", (metric.aggregate or ("max" if mode in UNSUMMABLE else "sum"),))
    if name not in AGGREGATES:
        raise _wrong(query, f'there is no aggregate "{name}"; there are {", ".join(AGGREGATES)}')
    if name == "sum" and mode in UNSUMMABLE:
        raise _wrong(query, f"a sum of {mode} has no meaning; write aggregate=max, avg or min")
    return name


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed query. `goal`: for the workers that clear the lag; None asks for the lag itself.

    `no_offset`: what counts for a partition in which the group has stored no offset.
    """

    vhost: str
    stream: str
    group: str
    no_offset: NoOffset = "error"
    goal: ClearingGoal | None = None


def about_stream(query: Query, settings: Settings) -> bool:
    """Returns whether the query is about a stream: by the name of the metric, or as its definition says."""
    if query.definition is not None:
        return bool(query.definition.metric.as_metric.of_stream)
    metric = settings.metrics.get(query.name)
    if metric is not None:
        return metric.of_stream
    return query.name in _STREAM_METRICS


def stream_query(query: Query, settings: Settings) -> StreamQuery:
    """Parses the name and selector of a query; raises AdapterError (blame "spec") with the correct form."""
    metric = _metric(query, settings)
    parameters = _parameters(query, metric, _STREAM_EXAMPLES, "metrics of streams")
    if not settings.stream_nodes:
        raise _wrong(query, _NEEDS_URL)
    mode = metric.mode or _STREAM_METRICS.get(query.name, LAG)
    goal = _goal(query, parameters, metric, mode, (WORKERS,))
    if goal is not None and not goal.service:
        raise _wrong(query, _NEEDS_SERVICE_TIME)
    return StreamQuery(
        vhost=_vhost(query, parameters, metric, settings),
        stream=_stream(query, parameters, metric, settings),
        group=_named(query, "group", parameters, metric),
        no_offset=metric.offset_reset_policy or settings.offset_reset_policy,
        goal=goal,
    )


def _metric(query: Query, settings: Settings) -> Metric:
    if query.definition is None:
        return settings.metrics.get(query.name, _DEFAULTS)
    metric: Metric = query.definition.metric.as_metric
    return metric


def _named(query: Query, key: str, parameters: Mapping[str, tuple[str, ...]], metric: Metric) -> str:
    found: str = parameters[key][0] if key in parameters else getattr(metric, key)
    if not found:
        raise _wrong(query, f"no {key}: write both, such as matchLabels: {{stream: invoices, group: billing}}")
    return found


def _stream(query: Query, parameters: Mapping[str, tuple[str, ...]], metric: Metric, settings: Settings) -> str:
    name = _named(query, "stream", parameters, metric)
    by_operator = metric.stream and query.definition is None
    return name if by_operator else _real_name(query, "queue", name, settings)


def _vhost(query: Query, parameters: Mapping[str, tuple[str, ...]], metric: Metric, settings: Settings) -> str:
    if "vhost" in parameters:
        return _real_name(query, "vhost", parameters["vhost"][0], settings)
    if len(metric.vhosts) > 1 or ANY_VHOST in metric.vhosts:
        raise _wrong(query, "vhost: a stream is in one vhost; write one name")
    if not metric.vhosts:
        return settings.vhost
    [name] = metric.vhosts
    return name if query.definition is None else _real_name(query, "vhost", name, settings)

"""Queries about the lag of a group of consumers of a stream: their names, selectors and configured metrics."""

from collections.abc import Mapping

import msgspec

from hpad.adapter import Query
from hpad_adapters.clearing.goal import GOAL, ClearingGoal
from hpad_adapters.rabbitmq.metric import ANY_VHOST, LAG, WORKERS, Metric, NoOffset
from hpad_adapters.rabbitmq.names import EQUALITY, real_name, wrong
from hpad_adapters.rabbitmq.settings import Settings

STREAM_METRICS = {"stream_lag": LAG, "stream_workers_to_clear": WORKERS}
"""Metric name -> mode, of the metrics of streams that need no configuration."""
STREAM_PARAMETERS = {"stream": "invoices", "group": "billing"}
"""Parameters of the selector that only they have, each with an example."""
_GOAL = {"goal": "60s", "startup": "10s", "service_time": "2s", "concurrency": "2"}
_EXAMPLES = {**STREAM_PARAMETERS, "vhost": "production", **_GOAL}
_NEEDS_URL = (
    "the lag of a group is read by the stream protocol: write stream_url in hpad's configuration of the source, such "
    'as stream_url: "rabbitmq-stream://rabbitmq:5552"'
)


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
    return query.name in STREAM_METRICS


def stream_query(query: Query, settings: Settings) -> StreamQuery:
    """Parses the name and selector of a query; raises AdapterError (blame "spec") with the correct form."""
    metric = _metric(query, settings)
    parameters = _parameters(query, metric)
    if not settings.stream_nodes:
        raise wrong(query, _NEEDS_URL)
    mode = metric.mode or STREAM_METRICS.get(query.name, LAG)
    return StreamQuery(
        vhost=_vhost(query, parameters, metric, settings),
        stream=_stream(query, parameters, metric, settings),
        group=_named(query, "group", parameters, metric),
        no_offset=metric.offset_reset_policy or settings.offset_reset_policy,
        goal=_goal(query, parameters, metric, mode),
    )


def _metric(query: Query, settings: Settings) -> Metric:
    if query.definition is None:
        return settings.metrics.get(query.name, Metric())
    metric: Metric = query.definition.metric.as_metric
    return metric


def _parameters(query: Query, metric: Metric) -> dict[str, str]:
    """Returns the parameters in the selector. The metric's own fields are refused."""
    found: dict[str, str] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        key = term.key
        if key not in _EXAMPLES:
            offered = ", ".join(_EXAMPLES)
            raise wrong(query, f'"{key}" is not a parameter of metrics of streams; the parameters are {offered}')
        if term.operator not in EQUALITY or len(term.values) != 1 or not term.values[0]:
            raise wrong(query, f'"{term}": write one value, such as {key}={_EXAMPLES[key]}')
        if getattr(metric, key):
            raise wrong(query, f'"{key}" is set for this metric by hpad\'s configuration; leave it out')
        if found.setdefault(key, term.values[0]) != term.values[0]:
            raise wrong(query, f'"{key}" occurs twice')
    return found


def _named(query: Query, key: str, parameters: Mapping[str, str], metric: Metric) -> str:
    found: str = parameters.get(key) or getattr(metric, key)
    if not found:
        raise wrong(query, f"no {key}: write both, such as matchLabels: {{stream: invoices, group: billing}}")
    return found


def _stream(query: Query, parameters: Mapping[str, str], metric: Metric, settings: Settings) -> str:
    name = _named(query, "stream", parameters, metric)
    by_operator = metric.stream and query.definition is None
    return name if by_operator else real_name(query, "queue", name, settings)


def _vhost(query: Query, parameters: Mapping[str, str], metric: Metric, settings: Settings) -> str:
    if "vhost" in parameters:
        return real_name(query, "vhost", parameters["vhost"], settings)
    if len(metric.vhosts) > 1 or ANY_VHOST in metric.vhosts:
        raise wrong(query, "vhost: a stream is in one vhost; write one name")
    if not metric.vhosts:
        return settings.vhost
    [name] = metric.vhosts
    return name if query.definition is None else real_name(query, "vhost", name, settings)


def _goal(query: Query, parameters: Mapping[str, str], metric: Metric, mode: str) -> ClearingGoal | None:
    selected = {name: parameters[name] for name in GOAL if name in parameters}
    if mode == LAG:
        if selected:
            raise wrong(query, f'"{next(iter(selected))}" belongs to stream_workers_to_clear, not to the lag')
        return None
    try:
        goal = metric.goal_with(selected)
    except ValueError as error:
        raise wrong(query, str(error)) from None
    if not goal.service:
        raise wrong(
            query,
            "service_time: is missing; write how long a message takes, such as 2s: RabbitMQ does not say how many "
            "consumers of a group share the messages of a stream, so it cannot be measured",
        )
    return goal

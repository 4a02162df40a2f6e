"""From queues to the values of a metric. What is missing is an error: no number is ever made up, least of all zero.

Where the broker answered well and a queue has no such number, the error blames the question ("spec"): the broker must
not pass for one that fails.

Which number of which queues a query means.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from hpad.adapter import AdapterError, Operator, Query
from hpad_adapters.rabbitmq.modes import AGGREGATES, ANY_VHOST, COUNTS, MODES, UNSUMMABLE, Metric, compiled
from hpad_adapters.rabbitmq.queue import QUORUM, Details, Queue
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


_MILLI = 1000
_INT64 = 2**63 - 1
_STEADY = 1e-9
_DELIVERY = "deliver_rate"
_RATES = {"publish_rate": "publish_details", _DELIVERY: "deliver_get_details", "ack_rate": "ack_details"}
_COUNTS = {
    "messages": "messages",
    "ready": "messages_ready",
    "unacked": "messages_unacknowledged",
    "consumers": "consumers",
}


class Values:
    """Reads numbers out of queues in the way that a source's settings say."""

    def __init__(self, settings: Settings) -> None:
        self._span = settings.rate_span
        self._smoothing = settings.smoothing

    def of(self, wanted: Wanted, queues: Sequence[Queue], absent: Sequence[str], where: str) -> tuple[int, ...]:
        """The values in milli-units: for a sum, those of each queue, whose sum is the engine's to take.

        `absent`: the names of queues that are not there. Raises AdapterError saying which queue lacks what.
        """
        if wanted.on_missing_queue != "zero" and (absent or not queues):
            raise _missing(wanted, absent, where)
        try:
            values = [self._value(wanted, queue, where) for queue in queues]
            values += [0.0] * (len(absent) or (not queues))
            return _aggregated(wanted.aggregate, values)
        except (OverflowError, ValueError):
            raise AdapterError(f"the answer of {where} holds numbers beyond 64 bits of thousandths") from None

    def _value(self, wanted: Wanted, queue: Queue, where: str) -> float:
        mode = wanted.mode
        if mode in _COUNTS:
            return _given(queue, _COUNTS[mode], where)
        backlog = _given(queue, "messages" if wanted.include_unacked else "messages_ready", where)
        if mode == "utilisation":
            return _utilisation(queue, backlog, where)
        if mode == "drain_time" and not backlog:
            return 0.0
        event = _RATES.get(mode, _RATES[_DELIVERY])
        delivered, rate = self._rate(queue, _RATES[_DELIVERY]), self._rate(queue, event)
        if backlog and not delivered and self._has_rates(queue):
            return self._stalled(wanted, queue, backlog, where)
        if rate is None:
            raise AdapterError(
                f"the answer about {_named(queue, where)} has no {event}: nothing of "
                "that kind has happened yet, or the broker keeps no rates (rates_mode, disable_metrics_collector)",
                "spec",
            )
        return backlog / rate if mode == "drain_time" else rate

    def _has_rates(self, queue: Queue) -> bool:
        """Whether the broker keeps rates; then one that is absent is of something that never happened."""
        return any(self._rate(queue, event) is not None for event in _RATES.values())

    def _stalled(self, wanted: Wanted, queue: Queue, backlog: float, where: str) -> float:
        """Messages wait and none is delivered: an idle rate would scale down those who should take them."""
        if wanted.on_stalled == "up":
            return backlog * self._span.total_seconds() if wanted.mode == "drain_time" else backlog
        raise AdapterError(
            f"{_named(queue, where)} has stalled: {backlog:g} messages wait, and none was delivered in the last "
            f"{_written(self._span)}, so that its {wanted.mode} says nothing (on_stalled)",
            "spec",
        )

    def _rate(self, queue: Queue, event: str) -> float | None:
        """How often a second, None where the broker does not say."""
        details: Details | None = getattr(queue.message_stats, event) if queue.message_stats is not None else None
        if details is None:
            return None
        return smoothed(details, self._smoothing) if self._smoothing else details.avg_rate


def smoothed(details: Details, weight: float) -> float | None:
    """An exponential moving average over the rates between samples, of which the newest has that weight.

    The broker's samples carry it all, so that nothing is remembered here and each answer depends on its question alone.
    """
    points = sorted(details.samples or (), key=lambda point: point.timestamp)
    rates = [
        max(0, later.sample - earlier.sample) * 1000 / (later.timestamp - earlier.timestamp)
        for earlier, later in itertools.pairwise(points)
        if later.timestamp > earlier.timestamp
    ]
    if not rates:
        return None
    average = rates[0]
    for rate in rates[1:]:
        average += weight * (rate - average)
    return average if average > _STEADY else 0.0


def _utilisation(queue: Queue, backlog: float, where: str) -> float:
    """1 - consumer_capacity: RabbitMQ tells how much of the time a consumer could take a message at once.

    An empty queue keeps nobody busy; of one without consumers RabbitMQ says 0, which makes a backlog a full load.
    """
    return 1.0 - min(1.0, _given(queue, "consumer_capacity", where)) if backlog else 0.0


def _given(queue: Queue, field: str, where: str) -> float:
    value: float | None = getattr(queue, field)
    if value is None:
        why = ": its leader has yet to count" if queue.type == QUORUM else ""
        why = f": the queue is {queue.state}" if queue.away else why
        raise AdapterError(f"the answer about {_named(queue, where)} has no {field}{why}", lasting=True)
    return value


_REDUCED: Mapping[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "sum": lambda values: values,
    "max": lambda values: (max(values),),
    "min": lambda values: (min(values),),
    "avg": lambda values: (math.fsum(values) / len(values),),
}


def _aggregated(how: str, values: Sequence[float]) -> tuple[int, ...]:
    """In milli-units, rounded up as Kubernetes rounds quantities, but not for a float's last digit.

    Raises OverflowError or ValueError for what no quantity can hold.
    """
    found = tuple(math.ceil(round(value * _MILLI, 6)) for value in _REDUCED[how](values))
    if max(found) > _INT64:
        raise OverflowError(max(found))
    return found


def _missing(wanted: Wanted, absent: Sequence[str], where: str) -> AdapterError:
    if absent:
        return AdapterError(f'queue "{absent[0]}" does not exist in {where}', "spec")
    pattern = wanted.pattern.pattern if wanted.pattern is not None else ""
    return AdapterError(f'no queue matches "{pattern}" in {where}', "spec")


def _named(queue: Queue, where: str) -> str:
    return f'queue "{queue.name}" in {where}'


def _written(span: timedelta) -> str:
    return f"{span.total_seconds():g}s"

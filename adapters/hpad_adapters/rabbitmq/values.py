"""The values of a metric from the queues that a reader found.

A field that the broker does not report is an error and never zero. If the broker works and only this queue has no
such number, the error blames the query ("spec"), so that the source does not count as failing.
"""

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from hpad.adapter import AdapterError, Context
from hpad_adapters.ages import age
from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.clearing.workers import Clearing
from hpad_adapters.rabbitmq.metric import CLEARING, COUNTS, EXTENDED
from hpad_adapters.rabbitmq.queues import (
    CLASSIC,
    QUORUM,
    STREAM,
    Details,
    RabbitmqQueue,
    ascending,
    field,
    measured,
    named,
    tasks,
)
from hpad_adapters.rabbitmq.settings import Settings


class Lookup(msgspec.Struct, frozen=True):
    """Queues of one vhost: those of the names, or all whose whole names match one of the patterns.

    `statistics`: with rates; `samples`: with the samples of rates and lengths as well, and with counts as of now;
    `extended`: with the capacity of consumers and the oldest message, for readers that ask for these apart.
    """

    names: frozenset[str] = frozenset()
    patterns: frozenset[re.Pattern[str]] = frozenset()
    statistics: bool = False
    samples: bool = False
    extended: bool = False

    def matches(self, name: str) -> bool:
        """Returns whether a queue of this name is one of them."""
        return name in self.names or any(pattern.fullmatch(name) for pattern in self.patterns)


class TooManyQueuesError(AdapterError):
    """The lookup covers more than `max_queues` queues; a part of it may cover fewer."""


class ValueReader(Protocol):
    """Reads queues of one broker; its text is the name of the broker in errors."""

    async def read(self, vhost: str, lookup: Lookup) -> list[RabbitmqQueue]:
        """Returns the queues that exist, with their vhost; raises AdapterError."""
        ...


class QueueQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed query: queues by their real names or by a pattern, and how their values are made."""

    vhosts: tuple[str, ...] = ("/",)
    queues: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    exclude: re.Pattern[str] | None = None
    mode: str = "messages"
    include_unacked: bool = True
    aggregate: str = "sum"
    on_missing_queue: str = "error"
    on_stalled: str = "hold"
    goal: ClearingGoal | None = None

    @property
    def patterns(self) -> frozenset[re.Pattern[str]]:
        """The pattern, or nothing."""
        return frozenset() if self.pattern is None else frozenset({self.pattern})

    @property
    def statistics(self) -> bool:
        """Whether the broker's statistics are needed."""
        return self.mode not in COUNTS

    @property
    def samples(self) -> bool:
        """Whether the samples of the statistics are needed."""
        return self.mode in CLEARING

    @property
    def extended(self) -> bool:
        """Whether the capacity of consumers or the oldest message is needed."""
        return self.mode in EXTENDED

    def matches(self, name: str) -> bool:
        """Returns whether the query is about a queue of this name; no pattern matches a delay queue."""
        if self.pattern is None:
            return name in self.queues
        excluded = keeps_for_later(name) or (self.exclude is not None and self.exclude.fullmatch(name))
        return self.pattern.fullmatch(name) is not None and not excluded


_MILLI = 1000
_INT64 = 2**63 - 1
_STEADY = 1e-9
_USUAL_MILLISECONDS = 5_000
"""The time between two samples that the management API is asked for."""
_DELIVERY = "deliver_rate"
_RATES = {"publish_rate": "publish_details", _DELIVERY: "deliver_get_details", "ack_rate": "ack_details"}
_COUNTS = {
    "ready": "messages_ready",
    "unacked": "messages_unacknowledged",
    "consumers": "consumers",
}


class Values:
    """Makes the values of a metric from queues."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._span = settings.rate_span
        self._smoothing = settings.smoothing
        self._now = context.clock.now
        self._clearing = Clearing(context.clock.monotonic)

    def of(
        self, query: QueueQuery, queues: Sequence[RabbitmqQueue], absent: Sequence[str], where: str
    ) -> tuple[int, ...]:
        """Returns the values in milli-units; for a sum those of each queue, which the engine adds up.

        `absent`: the names of queues that do not exist. Raises AdapterError naming the queue and the field it lacks.
        """
        if query.on_missing_queue != "zero" and (absent or not queues):
            raise _missing(query, absent, where)
        try:
            values = [self._value(query, queue, where) for queue in queues]
            values += [0.0] * (len(absent) or (not queues))
            return _aggregated(query.aggregate, values)
        except (OverflowError, ValueError):
            raise AdapterError(f"the answer of {where} holds numbers beyond 64 bits of thousandths") from None

    def _value(self, query: QueueQuery, queue: RabbitmqQueue, where: str) -> float:
        if queue.type == STREAM:
            raise AdapterError(
                f"{named(queue, where)} is a stream: it keeps messages after they were read, so they are no backlog; "
                "scale by stream_lag or stream_workers_to_clear, which count those that a group of consumers has not "
                "worked on, or leave it out (exclude_regex)",
                "spec",
            )
        try:
            return self._measured(query, queue, where)
        except AdapterError:
            if queue.fault:
                raise AdapterError(f"{named(queue, where)} cannot be read: {queue.fault}", "spec") from None
            raise

    def _measured(self, query: QueueQuery, queue: RabbitmqQueue, where: str) -> float:
        mode = query.mode
        if mode in _COUNTS:
            return field(queue, _COUNTS[mode], where)
        if query.goal is not None:
            value = self._clearing.seconds if mode == "time_to_clear" else self._clearing.workers
            return value(measured(queue, query.goal.concurrency, where), query.goal)
        if mode == "growth":
            return _growth(queue, where)
        if mode == "head_age":
            return head_age(queue, self._now(), where)
        backlog = tasks(queue, where) if query.include_unacked else field(queue, "messages_ready", where)
        if mode == "messages":
            return backlog
        if mode == "utilisation":
            # The capacity is the share of time in which a message can be delivered at once. An empty queue has no load.
            # Without consumers RabbitMQ reports a capacity of 0, so a backlog is a full load.
            _require_capacity(queue, where)
            return 1.0 - min(1.0, field(queue, "consumer_capacity", where)) if backlog else 0.0
        if mode == "drain_time" and not backlog:
            return 0.0
        event = _RATES.get(mode, _RATES[_DELIVERY])
        delivered, rate = self._rate(queue, _RATES[_DELIVERY]), self._rate(queue, event)
        # If the broker keeps rates, an absent rate means that no event ever happened.
        if backlog and not (delivered or rate) and any(self._rate(queue, each) is not None for each in _RATES.values()):
            return self._stalled(query, queue, backlog, where)
        if rate is None:
            _require_rates(queue, where)
            raise AdapterError(
                f"the answer about {named(queue, where)} has no {event}: nothing of "
                "that kind has happened yet, or the broker keeps no rates (rates_mode, disable_metrics_collector); "
                "source: auto makes them from counters of its plugin",
                "spec",
            )
        return backlog / rate if mode == "drain_time" else rate

    def _stalled(self, query: QueueQuery, queue: RabbitmqQueue, backlog: float, where: str) -> float:
        """Returns the value of a rate of zero while messages wait and none is delivered."""
        # A rate of zero would scale the consumers down while the backlog grows.
        if query.on_stalled == "up":
            return backlog * self._span.total_seconds() if query.mode == "drain_time" else backlog
        raise AdapterError(
            f"{named(queue, where)} has stalled: {backlog:g} messages wait, and none was delivered in the last "
            f"{self._span.total_seconds():g}s, so that its {query.mode} has no meaning (on_stalled)",
            "spec",
        )

    def _rate(self, queue: RabbitmqQueue, event: str) -> float | None:
        """Returns events per second, None where the broker does not report them."""
        details: Details | None = getattr(queue.message_stats, event) if queue.message_stats is not None else None
        if details is None:
            return None
        return smoothed(details, self._smoothing) if self._smoothing else details.avg_rate


def _require_capacity(queue: RabbitmqQueue, where: str) -> None:
    """Raises AdapterError for a quorum queue: RabbitMQ 3.10 and 4.0 always report a capacity of 1, and 4.3 one of 0."""
    if queue.type == QUORUM:
        reason = "of a quorum queue RabbitMQ reports the same capacity of consumers, busy or idle; take drain_time"
        raise AdapterError(f"{named(queue, where)} has no utilisation: {reason}", "spec")


def _growth(queue: RabbitmqQueue, where: str) -> float:
    tasks(queue, where)
    rate = queue.messages_details.avg_rate if queue.messages_details is not None else None
    if rate is None:
        _require_rates(queue, where)
        raise AdapterError(f"the answer about {named(queue, where)} has no messages_details", "spec")
    return rate


def _require_rates(queue: RabbitmqQueue, where: str) -> None:
    """Raises AdapterError where a reader that makes rates itself has none yet."""
    if queue.lacking:
        raise AdapterError(f"{named(queue, where)} has no rates yet: {queue.lacking}", alive=True)


def smoothed(details: Details, weight: float) -> float | None:
    """Returns an exponential moving average over the rates between the broker's samples; the newest has this weight.

    It needs no state between queries, because the samples of one answer hold the whole time span. Samples that are
    further apart than the broker's have more weight, as several would have.
    """
    rates = [
        (max(0, later.sample - earlier.sample) * 1000 / apart, apart / _USUAL_MILLISECONDS)
        for earlier, later in itertools.pairwise(ascending(details))
        if (apart := later.timestamp - earlier.timestamp)
    ]
    if not rates:
        return None
    average, _ = rates[0]
    for rate, intervals in rates[1:]:
        average += (1 - (1 - weight) ** intervals) * (rate - average)
    # An average that only decays never reaches zero by itself.
    return average if average > _STEADY else 0.0


_REDUCED: Mapping[str, Callable[[Sequence[float]], Sequence[float]]] = {
    "sum": lambda values: values,
    "max": lambda values: (max(values),),
    "min": lambda values: (min(values),),
    "avg": lambda values: (math.fsum(values) / len(values),),
}


def _aggregated(how: str, values: Sequence[float]) -> tuple[int, ...]:
    """Returns the values in milli-units, rounded up as Kubernetes rounds quantities, but not for a float's last digit.

    Raises OverflowError or ValueError for values that no quantity can hold.
    """
    found = tuple(math.ceil(round(value * _MILLI, 6)) for value in _REDUCED[how](values))
    if max(found) > _INT64:
        raise OverflowError(max(found))
    return found


def _missing(query: QueueQuery, absent: Sequence[str], where: str) -> AdapterError:
    if absent:
        return AdapterError(f'queue "{absent[0]}" does not exist in {where}', "spec")
    pattern = query.pattern.pattern if query.pattern is not None else ""
    later = f"delay queues such as {EXAMPLES} count only where they are named"
    return AdapterError(f'no queue matches "{pattern}" in {where}; {later}', "spec")


# Queues whose messages no worker may take yet: they count where they are named, and never because a pattern matches.
#
# Sources: Celery from 5.5 on (kombu/transport/native_delayed_delivery.py: level_name), dramatiq (dramatiq/common.py:
# dq_name, and xq_name of dead letters), NServiceBus (DelayInfrastructure.cs: LevelName).

EXAMPLES = "celery_delayed_0 and tasks.DQ"
_NAMES = re.compile(r"(.+_)?celery_delayed_\d{1,2}|.+\.[DX]Q|nsb\.(v2\.)?delay-level-\d{2}", re.DOTALL)


def keeps_for_later(name: str) -> bool:
    """Returns whether a queue of this name holds messages that are not due, or dead letters of dramatiq."""
    return _NAMES.fullmatch(name) is not None


# The age of the oldest message of a queue, by the property `timestamp` that its publisher set.
#
# Only classic queues report it: of the oldest ready message and the oldest unacknowledged one, as far as they are in
# memory, the smaller timestamp (rabbit_variable_queue.erl: head_message_timestamp). A queue with priorities reports
# that of the highest priority which has messages, although older ones may wait behind it (rabbit_priority_queue.erl:
# find_head_message_timestamp).

_PRIORITIES = "x-max-priority"


def head_age(queue: RabbitmqQueue, now: datetime, where: str) -> float:
    """Returns seconds since the oldest message was published, 0.0 for an empty queue; raises AdapterError."""
    if queue.type not in (CLASSIC, ""):
        raise _unknown(queue, where, f"only classic queues report it, and this is a {queue.type} queue")
    if isinstance(queue.arguments, dict) and queue.arguments.get(_PRIORITIES):
        reason = f"it has priorities ({_PRIORITIES}), of which the broker looks at the highest with messages only"
        raise AdapterError(f"{named(queue, where)} has no age of its oldest message: {reason}", "spec")
    if not tasks(queue, where):
        return 0.0
    stamp = queue.head_message_timestamp
    if not isinstance(stamp, int):
        reason = "either the publisher of the oldest message did not set the property timestamp, or the broker holds"
        raise _unknown(queue, where, f"{reason} that message on disk only, as lazy queues do")
    try:
        return age(stamp, now)
    except ValueError as error:
        text = f"{named(queue, where)}: the timestamp {stamp} of the oldest message {error}"
        raise AdapterError(text, "spec") from None


def _unknown(queue: RabbitmqQueue, where: str, reason: str) -> AdapterError:
    return AdapterError(f"the answer about {named(queue, where)} has no head_message_timestamp: {reason}", "spec")

"""From queues to the values of a metric. What is missing is an error: no number is ever made up, least of all zero.

Where the broker answered well and a queue has no such number, the error blames the question ("spec"): the broker must
not pass for one that fails.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq.queue import QUORUM, Details, Queue
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.wanted import Wanted

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

"""What the goal in seconds needs to know of a queue of RabbitMQ: its messages, consumers, and samples."""

from collections.abc import Callable

from hpad.adapter import AdapterError
from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.clearing.measured import MeasuredQueue
from hpad_adapters.clearing.workers import Clearing
from hpad_adapters.rabbitmq.queues import RabbitmqQueue, ascending, field, named, tasks

_LATE = 5_000
"""Milliseconds by which the samples of lengths are dated later than those of rates. Observed in RabbitMQ 3.10."""


class QueueClearing:
    """Makes the values of `workers_to_clear` and `time_to_clear`. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._clearing = Clearing(monotonic)

    def __len__(self) -> int:
        return len(self._clearing)

    def workers(self, queue: RabbitmqQueue, wanted: ClearingGoal, where: str) -> float:
        """Returns how many messages have to be worked on at once; raises AdapterError where that is unknown."""
        return self._clearing.workers(measured(queue, wanted.concurrency, where), wanted)

    def seconds(self, queue: RabbitmqQueue, wanted: ClearingGoal, where: str) -> float:
        """Returns the goal times the needed workers by the present ones; raises AdapterError."""
        return self._clearing.seconds(measured(queue, wanted.concurrency, where), wanted)


def measured(queue: RabbitmqQueue, concurrency: int, where: str) -> MeasuredQueue:
    """Returns what the broker reports of a queue; raises AdapterError for counts or rates that it does not report."""
    tasks(queue, where)
    stats, name = queue.message_stats, named(queue, where)
    if stats is None:
        raise AdapterError(
            f"the answer about {name} has no message_stats: the broker keeps no rates "
            "(rates_mode, disable_metrics_collector); source: auto makes them from counters of its plugin",
            "spec",
        )
    return MeasuredQueue(
        place=(queue.vhost, queue.name),
        name=name,
        ready=field(queue, "messages_ready", where),
        held=field(queue, "messages_unacknowledged", where),
        capacity=None if queue.served is None else float(queue.served * concurrency),
        no_capacity=f"the answer about {name} has no consumers: "
        "the broker collects its statistics for the first time some seconds after it was made",
        single=queue.single_active,
        published=ascending(stats.publish_details),
        done=ascending(stats.ack_details),
        working=_held(queue),
    )


def _held(queue: RabbitmqQueue) -> dict[int, int]:
    """Returns the unacknowledged messages by the time of the sample of events that they belong to."""
    lengths = queue.messages_unacknowledged_details
    points = ascending(lengths)
    if lengths is not None and lengths.aligned:
        return {point.timestamp: point.sample for point in points}
    # Of the management API, the newest one repeats the one before, for seconds.
    return {point.timestamp - _LATE: point.sample for point in points[:-1]}

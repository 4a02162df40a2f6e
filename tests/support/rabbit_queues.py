"""Queues as RabbitMQ reports them, with samples five seconds apart."""

from typing import Any

from hpad_adapters.rabbitmq.queues import Details, Lengths, Point, Queue, Statistics


def counter(*samples: int, first: int = 0) -> Details:
    """A counter; `first`: the number of intervals before the first sample."""
    return Details(samples=[Point(sample, 5_000 * (first + index)) for index, sample in enumerate(samples)])


def length(*samples: int, first: int = 0) -> Lengths:
    """Counts at the times of `counter`.

    The broker dates them an interval later, and adds a sample that repeats the newest one until that is collected.
    """
    dated = [*samples, samples[-1]]
    return Lengths(samples=[Point(sample, 5_000 * (first + index + 1)) for index, sample in enumerate(dated)])


def queue(*, ready: int = 0, unacked: int = 0, consumers: int | None = 4, name: str = "tasks", **samples: Any) -> Queue:
    """A queue; `samples` are `published` and `acked` (Details) and `held` (Lengths)."""
    return Queue(
        name,
        "/",
        messages=ready + unacked,
        messages_ready=ready,
        messages_unacknowledged=unacked,
        consumers=consumers,
        message_stats=Statistics(publish_details=samples.get("published"), ack_details=samples.get("acked")),
        messages_unacknowledged_details=samples.get("held"),
    )

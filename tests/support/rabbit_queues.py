"""Queues as RabbitMQ reports them, with samples five seconds apart, and the wait for a real broker's statistics."""

import asyncio
from collections.abc import Callable
from typing import Any

from hpad import testing
from hpad.adapter import Answer
from hpad_adapters import rabbitmq
from hpad_adapters.clearing.goal import CounterPoint
from hpad_adapters.rabbitmq.queues import Details, Lengths, RabbitmqQueue, Statistics

SETTLED = 180.0


def counter(*samples: int, first: int = 0) -> Details:
    """A counter; `first`: the number of intervals before the first sample."""
    return Details(samples=[CounterPoint(sample, 5_000 * (first + index)) for index, sample in enumerate(samples)])


def length(*samples: int, first: int = 0) -> Lengths:
    """Counts at the times of `counter`.

    The broker dates them an interval later, and adds a sample that repeats the newest one until that is collected.
    """
    dated = [*samples, samples[-1]]
    return Lengths(samples=[CounterPoint(sample, 5_000 * (first + index + 1)) for index, sample in enumerate(dated)])


def queue(
    *, ready: int = 0, unacked: int = 0, consumers: int | None = 4, name: str = "tasks", **samples: Any
) -> RabbitmqQueue:
    """A queue; `samples` are `published` and `acked` (Details) and `held` (Lengths)."""
    return RabbitmqQueue(
        name,
        "/",
        messages=ready + unacked,
        messages_ready=ready,
        messages_unacknowledged=unacked,
        consumers=consumers,
        message_stats=Statistics(publish_details=samples.get("published"), ack_details=samples.get("acked")),
        messages_unacknowledged_details=samples.get("held"),
    )


async def until(source: rabbitmq.RabbitMQ, name: str, selector: str | None, right: Callable[[Answer], bool]) -> Answer:
    """Asks again until the answer fulfils the condition."""
    async with asyncio.timeout(SETTLED):
        while True:
            [answer] = await source.answer([testing.external(name, selector)])
            if right(answer):
                return answer
            await asyncio.sleep(0.5)

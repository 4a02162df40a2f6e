"""The plugin of a real broker: counts, and rates from counters of channels or queues, whichever the version has."""

import asyncio
import itertools

import pytest
from support import http_stub
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import ExternalSample
from hpad_adapters.rabbitmq import Metric, Mode, RabbitMQ

pytestmark = pytest.mark.rabbitmq

COUNTS: tuple[Mode, ...] = ("messages", "ready", "unacked", "consumers")
RATES: tuple[Mode, ...] = ("publish_rate", "deliver_rate", "ack_rate", "growth")
METRICS = {mode: Metric(mode=mode) for mode in (*COUNTS, *RATES, "utilisation")}


class Source:
    """The adapter by the plugin alone; between two questions, four seconds pass on its own clock."""

    def __init__(self, adapter: RabbitMQ, clock: http_stub.SetClock) -> None:
        self._adapter, self._clock = adapter, clock

    async def ask(self, *queries: str) -> list[float | None]:
        """Returns the value of each query "metric queue", None instead of an error."""
        answers = await self._adapter.answer(
            [testing.external(*query.replace(" ", " queue=").split()) for query in queries]
        )
        self._clock.seconds += 4
        return [sum(each.values) / 1000 if isinstance(each, ExternalSample) else None for each in answers]

    async def until(self, expected: list[float], *queries: str, total: float = 0.0) -> None:
        """Asks until the values are as expected; with a `total`, in proportion to the first, which is so many."""
        async with asyncio.timeout(120):
            found = await self.ask(*queries)
            while found != expected:
                await asyncio.sleep(0.2)
                found = await self.ask(*queries)
                if total and found[0]:
                    found = [round(total * (each or 0.0) / found[0]) for each in found]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_counts_and_rates_are_those_of_the_work(broker, kind):
    queue, clock = await broker.declare(kind=kind), http_stub.SetClock()
    producer, consumer = await asyncio.to_thread(lambda: (broker.connect(), broker.connect()))
    deliveries = consumer.consume(queue, prefetch=3)
    async with testing.context("rabbit", clock=clock) as context:
        options = {"source": "prometheus", "rate_window": "10m", "metrics": METRICS, **PATIENT}
        source = Source(RabbitMQ(RabbitMQ.Settings(url=broker.metrics_url, **options), context), clock)
        await source.until([0, 0], f"messages {queue}", f"consumers {queue}")
        assert await source.ask(*(f"{mode} {queue}" for mode in RATES)) == [None] * len(RATES)
        await asyncio.to_thread(producer.publish, queue, [b"work"] * 20)
        for delivery in await asyncio.to_thread(lambda: list(itertools.islice(deliveries, 2))):
            await asyncio.to_thread(consumer.ack, delivery)
        await source.until([18, 15, 3, 1], *(f"{mode} {queue}" for mode in COUNTS))
        await source.until([20, 5, 2, 18], *(f"{mode} {queue}" for mode in RATES), total=20)
        [utilisation] = await source.ask(f"utilisation {queue}")
        assert (utilisation is None) is (kind == "quorum")
    for connection in (producer, consumer):
        await asyncio.to_thread(connection.close)

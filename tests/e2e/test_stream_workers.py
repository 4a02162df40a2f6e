"""Workers scaled by the lag of their group in a stream of a real RabbitMQ; and a right that is taken away meanwhile."""

import asyncio
from typing import Any

import pytest
from support import stream_client
from support.brokers import Broker

from hpad import settings

pytestmark = pytest.mark.rabbitmq
READER = "reader-of-streams"


async def allow(broker: Broker, reads: str) -> None:
    """Gives a user the right to read the queues whose names match."""
    right = {"user": READER, "vhost": "/", "configure": "^$", "write": "^$", "read": reads}
    user = {"name": READER, "password": "s3cr3t", "tags": "monitoring"}
    await broker.define(users=[user], permissions=[right])


async def test_workers_follow_the_lag_of_their_group(world: Any, shared_broker: Broker) -> None:
    """Seven messages of which one is done, two for each worker; then all are done; then hpad must not read any more."""
    broker = shared_broker
    stream = await broker.declare(kind="stream")
    await allow(broker, stream)
    await broker.publish(stream, 7)

    async def done(offset: int) -> None:
        await asyncio.to_thread(stream_client.store, broker.stream_port, stream, "billing", offset)

    await done(0)
    options = {"url": broker.url, "stream_url": broker.stream_url, "username": READER, "password": "s3cr3t"}
    metric = {"name": "stream_lag", "selector": {"matchLabels": {"stream": stream, "group": "billing"}}}
    target = {"type": "AverageValue", "averageValue": "2"}
    world.workload("Deployment", "billing", 1)
    world.hpa("billing", metrics=[{"type": "External", "external": {"metric": metric, "target": target}}])
    await world.hpad(sources=(settings.SourceSettings(name="broker", adapter="rabbitmq", settings=options),))
    await world.until(lambda: world.replicas("deployments", "billing") == 3)
    await broker.publish(stream, 2)
    await world.until(lambda: world.replicas("deployments", "billing") == 4)
    await allow(broker, "^$")
    # A busy broker may let the source run out of time first.
    refused = f'stream "{stream}" in vhost "/": the user has no permission to read the stream'
    await world.until(lambda: world.condition("billing", "ScalingActive")[2].endswith(refused))
    assert world.condition("billing", "ScalingActive")[:2] == ("False", "FailedGetExternalMetric")
    await done(8)
    await world.periods(3)
    assert world.replicas("deployments", "billing") == 4
    await allow(broker, stream)
    await world.until(lambda: world.replicas("deployments", "billing") == 1)

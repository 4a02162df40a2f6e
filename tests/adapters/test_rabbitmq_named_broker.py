"""The contract of the readers on the broker that `HPAD_TEST_RABBITMQ` names; collected only if that is set.

Each test takes a minute: `-k "3-no"` is three nodes without statistics.
"""

import asyncio

import pytest
from support.rabbit_contract import KINDS, READERS, Place, check
from support.rabbit_nodes import RabbitMQNodes
from support.rabbit_work import RabbitWork

from hpad.adapter import Context

pytestmark = pytest.mark.rabbitmq


@pytest.mark.parametrize("statistics", [True, False], ids=["statistics", "no statistics"])
@pytest.mark.parametrize("count", [1, 3])
async def test_every_metric_of_a_named_broker(rabbit: Context, count: int, statistics: bool) -> None:
    async with RabbitMQNodes(count, statistics=statistics) as broker:
        nodes = broker.nodes
        place = Place(
            [node.url for node in nodes],
            [node.metrics_url for node in nodes],
            [f"amqp://127.0.0.1:{node.amqp_port}" for node in nodes],
            statistics=statistics,
        )
        work = RabbitWork([node.amqp_url for node in nodes], KINDS)
        running = work.running()
        await asyncio.to_thread(running.__enter__)
        try:
            await asyncio.gather(*(check(reader, kind, place, work, rabbit) for reader in READERS for kind in KINDS))
        finally:
            await asyncio.to_thread(running.__exit__, None, None, None)

"""The contract of the readers on the broker of the session."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.rabbit_contract import KINDS, READERS, Place, check
from support.rabbit_work import RabbitWork

from hpad.adapter import Context

pytestmark = pytest.mark.rabbitmq


@pytest.fixture(scope="module")
def worked(broker: Any) -> Iterator[tuple[Place, RabbitWork]]:
    """The broker of the session, with the work."""
    admin = broker.server.admin
    amqp_url = f"amqp://{admin.name}:{admin.password}@127.0.0.1:{broker.server.amqp_port}/"
    place = Place([broker.url], [broker.metrics_url], [broker.amqp_url], statistics=True)
    with RabbitWork([amqp_url], KINDS).running() as work:
        yield place, work


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
async def test_every_metric_is_what_was_done(
    worked: tuple[Place, RabbitWork], rabbit: Context, reader: str, kind: str
) -> None:
    place, work = worked
    await check(reader, kind, place, work, rabbit)

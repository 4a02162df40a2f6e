"""A right that is taken from the user of a real broker while hpad reads."""

import asyncio

import msgspec
import pytest
from support.brokers import Broker
from support.rabbit_queues import SETTLED

from hpad import testing
from hpad.adapter import Context, ExternalSample
from hpad_adapters.rabbitmq import RabbitMQ, Settings

VHOST, USER = "withdrawn", "a-reader"
RIGHT = {"user": USER, "vhost": VHOST, "configure": "^$", "write": "^$", "read": ".*"}


@pytest.mark.rabbitmq
@pytest.mark.parametrize("reader", ["management", "amqp"])
async def test_a_right_that_is_taken_away_is_an_error_and_no_number(
    broker: Broker, rabbit: Context, reader: str
) -> None:
    """Whoever may not read a queue does not read zero messages; with the right, the number is there again.

    RabbitMQ lets an open AMQP connection go on, whose counts stay right: there the user is removed.
    """
    user = {"name": USER, "password": "s3cr3t", "tags": "monitoring"}
    admin = {"user": broker.server.admin.name, "vhost": VHOST, "configure": ".*", "write": ".*", "read": ".*"}
    await broker.define(vhosts=[{"name": VHOST}], users=[user], permissions=[RIGHT, admin])
    queue = await broker.declare(VHOST)
    await broker.publish(queue, 5, VHOST)
    url = broker.url if reader == "management" else broker.amqp_url
    options = {"source": reader, "url": url, "username": USER, "password": "s3cr3t", "vhost": VHOST}
    source = RabbitMQ(msgspec.convert(options, Settings), rabbit)
    seen: list[str] = []

    async def until(expected: str) -> None:
        async with asyncio.timeout(SETTLED):
            while not seen or expected not in seen[-1]:
                [answer] = await source.answer([testing.external("queue_messages_ready", f"queue={queue}")])
                seen.append(str(answer.values) if isinstance(answer, ExternalSample) else answer.message)
                await asyncio.sleep(0.1)

    await until("(5000,)")
    await broker.remove(f"permissions/{VHOST}/{USER}" if reader == "management" else f"users/{USER}")
    await until("rabbitmq at")
    await broker.define(users=[user], permissions=[RIGHT])
    await until("(5000,)")
    await source.aclose()
    assert "(0,)" not in seen
    assert "s3cr3t" not in str(seen)

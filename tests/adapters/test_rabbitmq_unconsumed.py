"""The note of a sample says whose messages no consumer takes, while pods of the wrong queue or vhost look healthy."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest
from support.brokers import PATIENT, READER
from support.rabbit_queues import queue, until
from support.virtual_time import ManualClock

from hpad import testing
from hpad.adapter import Answer, Context, ExternalSample
from hpad_adapters import rabbitmq
from hpad_adapters.rabbitmq.queues import Unconsumed

pytestmark = pytest.mark.rabbitmq
READY = "queue_messages_ready"
PERIOD = 15.0


def source(broker, rabbit: Context, clock: ManualClock | None = None, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": broker.url, "username": "monitor", "password": "m0nitor:pw/ü"}
    options |= PATIENT | changed
    context = msgspec.structs.replace(rabbit, clock=clock or rabbit.clock)
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), context)


def note(answer: Answer) -> str:
    assert isinstance(answer, ExternalSample), answer
    return answer.note


async def of(adapter: rabbitmq.RabbitMQ, *queues: str) -> str:
    [answer] = await adapter.answer([testing.external("queue_messages", f"queue in ({','.join(queues)})")])
    return note(answer)


@pytest.mark.parametrize("beside", [0, 5])
async def test_a_queue_that_no_consumer_takes_from_is_named_from_the_second_read_on(broker, rabbit, beside):
    """By single reads, and by a list where many queues are read."""
    name, clock = await broker.declare(), ManualClock()
    await broker.publish(name, 3)
    adapter = source(broker, rabbit, clock)
    asked = [name, *[await broker.declare() for _ in range(beside)]]
    assert await of(adapter, *asked) == ""
    clock.advance(1)
    assert await of(adapter, *asked) == ""
    clock.advance(PERIOD)
    assert await of(adapter, *asked) == f'no consumer holds a message of the queue "{name}"'
    async with broker.holding(name, 1):
        clock.advance(PERIOD)
        assert await of(adapter, *asked) == ""
    clock.advance(PERIOD)
    assert await of(adapter, *asked) == ""


async def test_at_most_two_of_several_queues_are_named(broker, rabbit):
    names, clock = sorted([await broker.declare() for _ in range(4)]), ManualClock()
    for name in names[:3]:
        await broker.publish(name, 1)
    adapter = source(broker, rabbit, clock)
    await of(adapter, *names)
    clock.advance(PERIOD)
    two = f'no consumer holds a message of the queues "{names[0]}", "{names[1]}"'
    assert await of(adapter, *names[:2]) == two
    assert await of(adapter, *names) == f"{two} and 1 more"


async def test_statistics_tell_at_the_first_read(broker, rabbit):
    name = await broker.declare()
    await broker.publish(name, 3)
    adapter = source(broker, rabbit)
    # The broker collects them every five seconds; before, a queue has none.
    grown = await until(adapter, "queue_growth", f"queue={name}", lambda found: bool(getattr(found, "note", "")))
    assert note(grown) == f'no consumer holds a message of the queue "{name}"'


async def test_amqp_tells_at_the_first_read(broker, rabbit):
    pytest.importorskip("aiormq", reason="needs the extra amqp")
    name, connection = await broker.declare(), await asyncio.to_thread(broker.connect)
    await broker.publish(name, 3)
    login = {"username": READER.name, "password": READER.password}
    adapter = source(broker, rabbit, url=broker.amqp_url, source="amqp", **login)
    asked = [testing.external(READY, f"queue={name}")]
    try:
        [idle] = await adapter.answer(asked)
        assert note(idle) == f'no consumer holds a message of the queue "{name}"'
        await asyncio.to_thread(next, connection.consume(name))
        [served] = await adapter.answer(asked)
        assert (served.values, note(served)) == ((2_000,), "")
    finally:
        await asyncio.to_thread(connection.close)
        await adapter.aclose()


def reads(*lengths: int | None, unacked: int | None = 0) -> Sequence[str]:
    """Returns the notes of reads of one queue, a period apart."""
    clock = ManualClock()
    seen = Unconsumed(clock.monotonic)
    found = []
    for length in lengths:
        read = msgspec.structs.replace(queue(consumers=None), messages_ready=length, messages_unacknowledged=unacked)
        found.append(seen.note([read]))
        clock.advance(PERIOD)
    return found


@pytest.mark.parametrize(
    ("lengths", "told"),
    [
        ((5, 5, 6), [False, True, True]),
        ((5, 4, 3), [False, False, False]),  # as of consumers without acknowledgements
        ((5, 4, 4), [False, False, True]),
        ((5, 0, 5), [False, False, False]),
        ((5, None, 5), [False, False, False]),
    ],
)
def test_messages_that_get_fewer_are_taken(lengths: Sequence[int | None], told: list[bool]) -> None:
    assert [bool(each) for each in reads(*lengths)] == told


def test_unknown_counts_tell_nothing() -> None:
    assert reads(5, 5, 5, unacked=None) == ["", "", ""]

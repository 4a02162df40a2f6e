"""Queues read over AMQP, one connection and one channel a vhost."""

import sys

import pytest

from hpad import testing
from hpad.adapter import AdapterError, Context, ExternalSample
from hpad.lab.servers import ports
from hpad_adapters import rabbitmq

pytestmark = pytest.mark.rabbitmq


@pytest.fixture
async def source(broker, rabbit):
    pytest.importorskip("aiormq", reason="needs the extra hpad[amqp]")
    made: list[rabbitmq.RabbitMQ] = []

    def make(**changed: object) -> rabbitmq.RabbitMQ:
        given = {"url": broker.amqp_url, "source": "amqp", "username": "monitor", "password": "m0nitor:pw/ü"}
        given["request_timeout"] = "60s"
        made.append(rabbitmq.RabbitMQ(rabbitmq.Settings(**(given | changed)), rabbit))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


def ready(*queues: str):
    return [testing.external("queue_messages_ready", f"queue={queue}") for queue in queues]


async def test_what_is_ready_is_told_at_once_and_anew_each_time(broker, source):
    queue = await broker.declare()
    reader = source()
    for count in (0, 2, 5):
        await broker.publish(queue, count - (0, 2, 5)[max(0, (0, 2, 5).index(count) - 1)])
        assert [answer.values for answer in await reader.answer(ready(queue))] == [(count * 1_000,)]


async def test_consumers_hold_messages_out_of_sight_and_the_mode_says_so(broker, source):
    queue = await broker.declare()
    await broker.publish(queue, 5)
    async with broker.holding(queue, 2):
        [count] = await source().answer(ready(queue))
        [refused, consumers] = await source().answer(
            [testing.external("it", f"queue={queue}"), testing.external("it", f"queue={queue},mode=consumers")]
        )
    assert (count.values, consumers.values) == ((3_000,), (0,))
    assert "AMQP reports ready messages and consumers only" in refused.message


async def test_a_missing_queue_costs_the_others_nothing(broker, source):
    queue = await broker.declare()
    await broker.declare("a/b", "it")
    reader = source(vhosts={"other": "a/b"})
    for _ in range(2):
        answers = await reader.answer(
            [*ready("nowhere", queue, "gone"), testing.external("it", "queue=it,vhost=other,mode=ready")]
        )
        assert [type(answer) for answer in answers] == [AdapterError, ExternalSample, AdapterError, ExternalSample]
        assert f'queue "nowhere" does not exist in vhost "/" of rabbitmq at {broker.amqp_url}' in answers[0].message


async def test_one_connection_a_vhost_whatever_the_queues(broker, source):
    names = [await broker.declare() for _ in range(10)]
    reader = source()
    for _ in range(3):
        answers = await reader.answer(ready(*names, "gone"))
        assert [type(answer) for answer in answers] == [ExternalSample] * 10 + [AdapterError]
    assert len(reader._reader._connections) == 1


async def test_a_user_without_rights_on_the_management_api_reads_by_amqp(broker, source, rabbit):
    """The tag "monitoring" is for the management API: a plain user of the vhost has no other way to the counts."""
    queue = await broker.declare()
    await broker.publish(queue, 3)
    user = {"username": "plain", "password": "plain-pw", "request_timeout": "60s"}
    [refused] = await rabbitmq.RabbitMQ(rabbitmq.Settings(url=broker.url, **user), rabbit).answer(ready(queue))
    [answer] = await source(**user).answer(ready(queue))
    assert 'it needs the tag "monitoring"' in refused.message
    assert answer.values == (3_000,)


async def test_refusals_are_told_apart(broker, source):
    dead = f"amqp://127.0.0.1:{ports.free(1)[0]}"
    [wrong] = await source(password="hunter2").answer(ready("q"))
    [vhost] = await source(vhost="gone").answer(ready("q"))
    [nobody] = await source(url=dead).answer(ready("q"))
    [pattern] = await source(patterns={"all": ".*"}).answer([testing.external("it", "queue_regex=all,mode=ready")])
    assert "refused the user: wrong user name or password" in wrong.message
    assert "hunter2" not in wrong.message
    assert 'vhost "gone"' in vhost.message
    assert nobody.message.startswith(f"rabbitmq at {dead} cannot be used over AMQP: it refused the connection")
    assert "AMQP cannot list queues" in pattern.message


async def test_of_several_nodes_one_that_answers_is_taken(broker, source):
    queue = await broker.declare()
    dead = f"amqp://127.0.0.1:{ports.free(1)[0]}"
    [answer] = await source(url=[dead, broker.amqp_url]).answer(ready(queue))
    assert answer.values == (0,)


async def test_certificates_are_shown_and_checked(broker, source):
    queue = await broker.declare()
    given = {"url": broker.amqps_url, "ca": broker.ca, "cert": broker.client}
    for named in ({}, {"server_name": "broker.example.com"}):
        [answer] = await source(**given, **named).answer(ready(queue))
        assert answer.values == (0,)
    for wrong in ({"server_name": "other.example.com"}, {"ca": ""}):
        [answer] = await source(**(given | wrong)).answer(ready(queue))
        assert isinstance(answer, AdapterError)
        assert answer.message.startswith(f"rabbitmq at {broker.amqps_url} ")
        assert "has a certificate that is not trusted (" in answer.message


async def test_the_contract_is_kept(broker, source):
    queue = await broker.declare()
    answers = await testing.check_adapter(source(), ready(queue, "nowhere"))
    assert [type(answer) for answer in answers] == [ExternalSample, AdapterError]


async def test_without_the_extra_the_source_says_what_to_install(rabbit: Context, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiormq", None)
    with pytest.raises(AdapterError, match=r"pip install 'hpad\[amqp\]'"):
        rabbitmq.RabbitMQ(rabbitmq.Settings(url="amqp://rabbitmq", source="amqp"), rabbit)

"""Queues read over AMQP, one connection and one channel per vhost."""

import asyncio
import sys

import pytest
from support.brokers import PATIENT, READER
from support.http_stub import relay

from hpad import testing
from hpad.adapter import AdapterError, Context, ExternalSample
from hpad.adapter_http import OAuth2
from hpad.lab.servers import ports
from hpad_adapters import rabbitmq

pytestmark = pytest.mark.rabbitmq
SETTLED = 180.0


@pytest.fixture
async def source(broker, rabbit):
    pytest.importorskip("aiormq", reason="needs the extra amqp")
    made: list[rabbitmq.RabbitMQ] = []

    def make(**changed: object) -> rabbitmq.RabbitMQ:
        options = {"url": broker.amqp_url, "source": "amqp", "username": READER.name, "password": READER.password}
        options |= PATIENT
        made.append(rabbitmq.RabbitMQ(rabbitmq.Settings(**(options | changed)), rabbit))
        return made[-1]

    yield make
    for each in made:
        await each.aclose()


def ready(*queues: str):
    return [testing.external("queue_messages_ready", f"queue={queue}") for queue in queues]


async def test_each_answer_is_the_present_count(broker, source):
    queue = await broker.declare()
    reader = source()
    for published, count in ((0, 0), (2, 2), (3, 5)):
        await broker.publish(queue, published)
        assert [answer.values for answer in await reader.answer(ready(queue))] == [(count * 1_000,)]


async def test_unacknowledged_messages_are_not_visible_over_amqp(broker, source):
    queue = await broker.declare()
    await broker.publish(queue, 5)
    async with broker.holding(queue, 2):
        [count] = await source().answer(ready(queue))
        [refused, consumers] = await source().answer(
            [testing.external("it", f"queue={queue}"), testing.external("it", f"queue={queue},mode=consumers")]
        )
    assert (count.values, consumers.values) == ((3_000,), (0,))
    assert "AMQP reports ready messages and consumers only" in refused.message


async def test_a_missing_queue_does_not_fail_the_others(broker, source):
    queue = await broker.declare()
    await broker.declare("a/b", "it")
    reader = source(vhosts={"other": "a/b"})
    for _ in range(2):
        answers = await reader.answer(
            [*ready("nowhere", queue, "gone"), testing.external("it", "queue=it,vhost=other,mode=ready")]
        )
        assert [type(answer) for answer in answers] == [AdapterError, ExternalSample, AdapterError, ExternalSample]
        assert f'queue "nowhere" does not exist in vhost "/" of rabbitmq at {broker.amqp_url}' in answers[0].message


async def test_an_exclusive_queue_fails_alone_in_the_words_of_the_broker(broker, source):
    """Its neighbours are read, before and after it, and the connection stays open."""
    aiormq, names = pytest.importorskip("aiormq"), [await broker.declare(name=f"beside-{each}") for each in "az"]
    admin = broker.server.admin
    owner = await aiormq.connect(f"amqp://{admin.name}:{admin.password}@127.0.0.1:{broker.server.amqp_port}/")
    try:
        await (await owner.channel()).queue_declare("beside-m", exclusive=True)
        reader = source()
        for _ in range(2):
            locked, *others = await reader.answer(ready("beside-m", *names))
            assert [answer.values for answer in others] == [(0,), (0,)]
            assert isinstance(locked, AdapterError)
            assert locked.blame == "spec"
            assert 'queue "beside-m" in vhost "/" of rabbitmq at' in locked.message
            assert (
                "cannot be read: the broker answers RESOURCE_LOCKED - cannot obtain exclusive access" in locked.message
            )
    finally:
        await owner.close()


async def test_all_queues_of_a_vhost_share_one_connection(broker, source):
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await relay(reader, writer, "127.0.0.1", broker.server.amqp_port)

    names = [await broker.declare() for _ in range(10)]
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        reader = source(url=f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(3):
            answers = await reader.answer(ready(*names, "gone"))
            assert [type(answer) for answer in answers] == [ExternalSample] * 10 + [AdapterError]
        await reader.aclose()
    assert connections == 1


async def test_a_user_without_rights_on_the_management_api_reads_by_amqp(broker, source, rabbit):
    """The management API requires the tag "monitoring"; AMQP does not."""
    queue = await broker.declare()
    await broker.publish(queue, 3)
    user = {"username": "plain", "password": "plain-pw", **PATIENT}
    [refused] = await rabbitmq.RabbitMQ(rabbitmq.Settings(url=broker.url, **user), rabbit).answer(ready(queue))
    [answer] = await source(**user).answer(ready(queue))
    assert 'it needs the tag "monitoring"' in refused.message
    assert answer.values == (3_000,)


async def test_each_refusal_has_its_own_error(broker, source):
    dead = f"amqp://127.0.0.1:{ports.free(1)[0]}"
    [wrong] = await source(password="hunter2").answer(ready("q"))
    [vhost] = await source(vhost="gone").answer(ready("q"))
    [refused] = await source(url=dead).answer(ready("q"))
    listing = [testing.external("it", "queue_regex=all,mode=ready"), *ready(await broker.declare())]
    [pattern, named] = await source(patterns={"all": ".*"}).answer(listing)
    assert "refused the user: wrong user name or password" in wrong.message
    assert "hunter2" not in wrong.message
    assert 'vhost "gone"' in vhost.message
    assert refused.message.startswith(f"rabbitmq at {dead} cannot be used over AMQP: it refused the connection")
    assert "AMQP cannot list queues" in pattern.message
    assert named.values == (0,)


async def test_a_refused_token_is_not_used_again(source, stub):
    stub.answers({"access_token": "revoked", "expires_in": 3600})
    oauth2 = OAuth2(token_url=stub.url, client_id="me", client_secret="x")
    reader = source(username="", password="", oauth2=oauth2)
    for _ in range(2):
        [refused] = await reader.answer(ready("q"))
        assert "refused the user" in refused.message
    assert len(stub.requests) == 2


async def test_of_several_nodes_the_first_that_answers_is_used(broker, source):
    queue = await broker.declare()
    dead = f"amqp://127.0.0.1:{ports.free(1)[0]}"
    [answer] = await source(url=[dead, broker.amqp_url]).answer(ready(queue))
    assert answer.values == (0,)


async def test_certificates_are_sent_and_verified(broker, source):
    queue = await broker.declare()
    options = {"url": broker.amqps_url, "ca": broker.ca, "cert": broker.client}
    for named in ({}, {"server_name": "broker.example.com"}):
        [answer] = await source(**options, **named).answer(ready(queue))
        assert answer.values == (0,)
    for wrong in ({"server_name": "other.example.com"}, {"ca": ""}):
        [answer] = await source(**(options | wrong)).answer(ready(queue))
        assert isinstance(answer, AdapterError)
        assert answer.message.startswith(f"rabbitmq at {broker.amqps_url} ")
        assert "has a certificate that is not trusted (" in answer.message


async def test_the_adapter_keeps_the_contract(broker, source):
    queue = await broker.declare()
    answers = await testing.check_adapter(source(), ready(queue, "nowhere"))
    assert [type(answer) for answer in answers] == [ExternalSample, AdapterError]


async def test_the_error_without_the_extra_names_the_package(rabbit: Context, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiormq", None)
    with pytest.raises(AdapterError, match=r"pip install '\.\[amqp\]'"):
        rabbitmq.RabbitMQ(rabbitmq.Settings(url="amqp://rabbitmq", source="amqp"), rabbit)

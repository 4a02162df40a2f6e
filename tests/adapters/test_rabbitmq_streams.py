"""The lag of groups of consumers of streams, on a real broker and on nodes whose answers a test sets."""

import asyncio
import struct

import msgspec
import pytest
from aiohttp import web
from support import stream_client
from support.brokers import PATIENT
from support.stream_client import (
    LOGIN,
    METADATA,
    OPEN,
    PARTITIONS,
    QUERY,
    SUBSCRIBE,
    UNSUBSCRIBE,
    answered,
    chunk,
    node,
    serving,
)

from hpad import testing
from hpad.adapter import AdapterError, Member
from hpad.lab.servers import ports
from hpad_adapters.rabbitmq import RabbitMQ, Settings
from hpad_adapters.rabbitmq.metric import OwnQueues
from hpad_adapters.rabbitmq.stream_protocol import NO_RIGHT

broker_test = pytest.mark.rabbitmq


@pytest.fixture
def source(rabbit):
    def make(stream_url: object, **changed: object) -> RabbitMQ:
        options = {"username": "hpad", "password": "hpad-lab", "url": "http://127.0.0.1:1", **PATIENT}
        return RabbitMQ(msgspec.convert({**options, "stream_url": stream_url, **changed}, Settings), rabbit)

    return make


def lag(stream: str, group: str = "app"):
    return testing.external("stream_lag", f"stream={stream},group={group}")


async def values(adapter: RabbitMQ, *queries):
    return [each.message if isinstance(each, AdapterError) else each.values for each in await adapter.answer(queries)]


async def store(broker, stream: str, offset: int, group: str = "app") -> None:
    await asyncio.to_thread(stream_client.store, broker.stream_port, stream, group, offset)


async def super_stream(broker, name: str, partitions: int) -> None:
    streams = [f"{name}-{number}" for number in range(partitions)]
    for stream in streams:
        await broker.declare(name=stream, kind="stream")
    exchange = {"name": name, "vhost": "/", "type": "direct", "durable": True, "auto_delete": False, "internal": False}
    bindings = [
        {"source": name, "vhost": "/", "destination": stream, "destination_type": "queue", "routing_key": stream}
        | {"arguments": {"x-stream-partition-order": number}}
        for number, stream in enumerate(streams)
    ]
    await broker.define(exchanges=[exchange | {"arguments": {"x-super-stream": True}}], bindings=bindings)


@broker_test
async def test_the_lag_is_what_lies_behind_the_stored_offset_also_without_consumers(broker, source):
    stream = await broker.declare(kind="stream")
    adapter = source(broker.stream_url)
    await broker.publish(stream, 3)
    await store(broker, stream, 0)
    await store(broker, stream, 2, group="done")
    # Stored offsets take offsets of the stream, too, and are not work of any group.
    assert await values(adapter, lag(stream), lag(stream, "done")) == [(2_000,), (0,)]
    await broker.publish(stream, 1)
    await store(broker, stream, 1)
    await broker.publish(stream, 2)
    assert await values(adapter, lag(stream), lag(stream, "done")) == [(4_000,), (3_000,)]


@broker_test
async def test_the_workers_of_a_goal_are_no_more_than_partitions(broker, source):
    stream = await broker.declare(kind="stream")
    adapter = source(broker.stream_url, offset_reset_policy="earliest")
    goal = f"stream={stream},group=app,goal=60s,service_time="
    few, many = (testing.external("stream_workers_to_clear", goal + each) for each in ("1s", "1m"))
    assert await values(adapter, few, many) == [(0,), (0,)]
    await broker.publish(stream, 5)
    assert await values(adapter, few, many) == [(1_000,), (1_000,)]


@broker_test
async def test_a_group_without_an_offset_is_never_taken_for_one_without_lag(broker, source):
    stream = await broker.declare(kind="stream")
    assert await values(source(broker.stream_url), lag(stream)) == [(0,)]
    await broker.publish(stream, 3)
    [refused] = await values(source(broker.stream_url), lag(stream))
    assert refused.startswith(
        f'group "app" has stored no offset in stream "{stream}", or the message there was removed ('
    )
    for policy, count in (("earliest", 3_000), ("latest", 1_000)):
        assert await values(source(broker.stream_url, offset_reset_policy=policy), lag(stream)) == [(count,)]


@broker_test
async def test_the_lag_of_a_super_stream_is_that_of_its_partitions(broker, source):
    await super_stream(broker, "invoices", 2)
    for number, count in ((0, 3), (1, 2)):
        await broker.publish(f"invoices-{number}", count)
        await store(broker, f"invoices-{number}", 0)
    assert await values(source(broker.stream_url), lag("invoices")) == [(2_000, 1_000)]
    work = testing.by_pod(lag("invoices"), [Member("pod", "10.0.0.1")])
    [refused] = await values(source(broker.stream_url), work)
    assert "does not know which pod works on one: leave out hpad.io/idle-first and hpad.io/keep-busy" in refused


@broker_test
async def test_what_is_no_stream_fails_with_the_reason_and_alone(broker, source):
    stream, queue = await broker.declare(kind="stream"), await broker.declare()
    found = await values(source(broker.stream_url), lag(stream), lag(queue), lag("nothing"))
    absent = 'vhost "/" has no stream and no super stream "{}"'
    assert found == [(0,), absent.format(queue), absent.format("nothing")]
    queues = source("", url=broker.url)
    [refused] = await values(queues, testing.external("queue_messages", f"queue={stream}"))
    assert "is a stream: it keeps messages after they were read" in refused
    assert "scale by stream_lag or stream_workers_to_clear" in refused


@broker_test
async def test_a_refused_user_and_another_server_are_told_apart(broker, source):
    stream = await broker.declare(kind="stream")
    await broker.publish(stream, 1)
    (closed,) = ports.free(1)
    monitor = {"username": "monitor", "password": "m0nitor:pw/ü"}
    wrong = (
        (source(broker.stream_url, **monitor), f'stream "{stream}" in vhost "/": the user has no permission to read'),
        (source(broker.stream_url, password="no"), "refuses the user: wrong user name or password"),
        (source(broker.stream_url, vhost="none"), "refuses the user: the user has no permission on the vhost, or"),
        (source(f"rabbitmq-stream://127.0.0.1:{closed}"), f"rabbitmq_stream at rabbitmq-stream://127.0.0.1:{closed} "),
        (source(broker.amqp_url.replace("amqp", "rabbitmq-stream")), "a frame of"),
    )
    for adapter, error in wrong:
        [message] = await values(adapter, lag(stream))
        assert error in message


@broker_test
async def test_by_tls_the_broker_is_verified_and_sees_the_certificate_of_hpad(broker, source):
    stream = await broker.declare(kind="stream")
    trusting = {"ca": broker.ca, "cert": broker.client}
    assert await values(source(broker.stream_tls_url, **trusting), lag(stream)) == [(0,)]
    for changed, error in (
        ({"cert": broker.client}, "has a certificate that is not trusted"),
        (trusting | {"server_name": "other"}, "has a certificate that is not trusted"),
    ):
        [message] = await values(source(broker.stream_tls_url, **changed), lag(stream))
        assert error in message


def holding(first: int, records: int, stored: int, data: int = 10):
    """A node with one chunk."""

    def answer(key: int, content: bytes) -> list[bytes]:
        if key == SUBSCRIBE:
            return [answered(key, content), chunk(first, records, data)]
        return [answered(key, content, struct.pack(">Q", stored))] if key == QUERY else []

    return answer


async def test_each_stream_is_read_from_its_leader(source):
    answers = holding(first=100, records=50, stored=139)
    async with serving(node(answers, host="b", leader="a")) as follower, serving(node(answers, host="a")) as leader:
        assert await values(source([follower, leader]), lag("invoices")) == [(10_000,)]
        [message] = await values(source(follower), lag("invoices"))
    assert message == (
        'the leader of stream "invoices" is a:5552, which no address of stream_url is: write one for each node'
    )


async def test_a_stream_that_the_user_may_not_read_is_a_fault_of_the_spec(source):
    """RabbitMQ refuses its offsets, and from 4.3 on its leader as well."""

    def without_leader(key: int, content: bytes) -> list[bytes]:
        if key != METADATA:
            return []
        stream = content[4:8] + stream_client.text("invoices") + struct.pack(">HHI", NO_RIGHT, 0, 0)
        return [stream_client.frame(key | stream_client.ANSWER, content[:4] + bytes(4) + stream)]

    def without_offsets(key: int, content: bytes) -> list[bytes]:
        return [answered(key, content, code=NO_RIGHT)] if key == QUERY else []

    refusal = 'stream "invoices" in vhost "/": the user has no permission to read the stream'
    for answers in (without_offsets, without_leader):
        async with serving(node(answers)) as url:
            assert await source(url).answer([lag("invoices")]) == [AdapterError(refusal, "spec")]


async def test_a_refused_token_is_replaced(source, stub):
    tokens, answers = iter(("old", "new")), holding(first=100, records=50, stored=139)

    async def grant(request):
        return web.json_response({"access_token": next(tokens), "expires_in": 3600})

    def refusing(key: int, content: bytes) -> list[bytes]:
        return [answered(key, content, code=8)] if key == LOGIN and b"old" in content else answers(key, content)

    stub.handler = grant
    login = {"oauth2": {"token_url": stub.url, "client_id": "me", "client_secret": "x"}, "username": "", "password": ""}
    async with serving(node(refusing)) as url:
        adapter = source(url, **login)
        assert "refuses the user" in (await values(adapter, lag("invoices")))[0]
        assert await values(adapter, lag("invoices")) == [(10_000,)]


async def test_a_node_that_hangs_is_asked_last_from_then_on(source):
    asked: list[int] = []

    def hanging(key: int, content: bytes) -> list[bytes]:
        asked.append(key)
        return []

    answers = holding(first=100, records=50, stored=139)
    async with serving(hanging) as silent, serving(node(answers)) as leader:
        adapter = source([silent, leader], request_timeout="7s")  # for a connection the half of it
        for _ in range(2):
            assert await values(adapter, lag("invoices")) == [(10_000,)]
    assert asked.count(stream_client.PROPERTIES) == 1


def listed(key: int, request: bytes, count: int) -> bytes:
    return answered(key, request, struct.pack(">I", count) + bytes(4 * count))


def many_partitions(key: int, request: bytes) -> list[bytes]:
    if key == METADATA:  # it knows no stream
        return [stream_client.frame(key | stream_client.ANSWER, request[:4] + bytes(8))]
    return [answered(key, request, struct.pack(">I", 1001) + bytes(2002))] if key == PARTITIONS else []


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (holding(0, 5, stored=9), 'has stored offset 9 in stream "invoices", which is beyond its last message'),
        (holding(0, 5, stored=0, data=5_000), "a chunk of 5049 bytes (max_bytes: 4096)"),
        (lambda key, _: [stream_client.frame(UNSUBSCRIBE, b"")] if key == QUERY else [], "did not answer within"),
        (lambda key, content: [answered(key, b"\0\0\0\7")] if key == QUERY else [], "an answer to request 7, not"),
        (lambda key, content: [answered(key, content)] if key == QUERY else [], "an answer that ends too early"),
        (lambda key, content: [b"\xff" * 100] if key == QUERY else [], "a frame of 4294967295 bytes"),
        (lambda key, _: [stream_client.frame(0x17, b"") * 256] if key == QUERY else [], "more than 256 frames before"),
        (lambda key, content: [listed(key, content, 10_001)] if key == OPEN else [], "an array of 10001 elements"),
        (many_partitions, "an array of 1001 elements in 2002 bytes (at most 1000)"),
        (lambda key, _: [stream_client.frame(0x16, b"\0\0\0\1\0\1" + stream_client.text("stop"))], "closed the"),
    ],
)
async def test_what_the_protocol_does_not_allow_is_an_error(source, answers, error):
    async with serving(node(answers)) as url:
        timeout = "1s" if error == "did not answer within" else "60s"
        [message] = await values(source(url, max_bytes=4_096, request_timeout=timeout), lag("invoices"))
    assert error in message


@pytest.mark.parametrize(
    ("name", "selector", "error"),
    [
        ("stream_lag", "group=app", "no stream: write both, such as matchLabels: {stream: invoices, group: billing}"),
        ("stream_lag", "stream=a", "no group: write both"),
        ("stream_lag", "stream=a,group=app,queue=a", '"queue" is not a parameter of metrics of streams'),
        ("stream_lag", "stream=a,group=app,goal=60s", '"goal" belongs to workers_to_clear, not to lag'),
        ("stream_lag", "stream in (a,b),group=app", "write one value, such as stream=invoices"),
        ("stream_workers_to_clear", "stream=a,group=app,service_time=1s", "goal: is missing"),
        ("stream_workers_to_clear", "stream=a,group=app,goal=60s", "service_time: is missing; write how long"),
        ("queue_messages", "stream=a", '"stream" is not a parameter of metrics of queues'),
        ("ours", "stream=a", '"stream" is set for this metric by hpad\'s configuration'),
    ],
)
async def test_a_wrong_selector_is_answered_with_the_right_form(source, name, selector, error):
    adapter = source("rabbitmq-stream://127.0.0.1:1", metrics={"ours": {"stream": "a", "group": "app"}})
    [message] = await values(adapter, testing.external(name, selector))
    assert error in message


async def test_an_autoscaler_names_streams_within_what_the_settings_offer(source):
    confined = source("rabbitmq-stream://127.0.0.1:1", queues={"mail": "tasks:mail"}, only_queues=True)
    for stream, error in (("other", 'the queue "other" is not one that hpad'), ("mail", "refused the connection")):
        own = testing.own_query(OwnQueues(stream=stream, group="app"))
        assert error in (await values(confined, own))[0]
    with pytest.raises(ValueError, match="stream: write both stream and group"):
        OwnQueues(stream="mail")


async def test_without_an_address_of_the_plugin_the_error_says_what_to_write(source):
    [message] = await values(source(""), lag("invoices"))
    assert "write stream_url in hpad's configuration of the source, such as stream_url: \"rabbitmq-stream://" in message


def test_settings_that_fit_no_stream_are_refused():
    for changed, error in (
        ({"stream_url": "http://a:5552"}, "stream_url: "),
        ({"stream_url": "rabbitmq-stream://a/vhost"}, "stream_url: ends in a path"),
        ({"metrics": {"it": {"stream": "a", "queue": "b"}}}, "write only one of queue and stream"),
        ({"metrics": {"it": {"stream": "a", "mode": "ready"}}}, "mode: of a stream there are lag and workers_to_clear"),
        ({"metrics": {"it": {"stream": "a", "aggregate": "max"}}}, "aggregate: has no effect on a stream"),
        ({"metrics": {"it": {"queue": "a", "offset_reset_policy": "latest"}}}, "offset_reset_policy: belongs to"),
    ):
        with pytest.raises(ValueError, match=error):
            msgspec.convert({"url": "http://127.0.0.1:1"} | changed, Settings)

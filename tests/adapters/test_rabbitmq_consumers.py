"""What the consumers of each pod hold: by address, by consumer tag, and never zero where it is not known."""

import asyncio
import functools
import json
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, Member, PodSample, Query
from hpad.lab.demo.workloads import amqp
from hpad.lab.servers import ports
from hpad_adapters import rabbitmq

MEMBERS = (
    Member("job-a", "10.0.0.1"),
    Member("job-a-2", "10.0.0.2"),
    Member("job-b", "10.0.0.3"),
    Member("job-c", "10.0.0.4"),
)


def adapter(url: str, context: Context, **changed: Any) -> rabbitmq.RabbitMQ:
    options = {"url": url, "username": "monitor", "password": "m0nitor:pw/ü", **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), context)


def by_pod(selector: str = "queue=jobs", members: Sequence[Member] = MEMBERS) -> Query:
    return testing.by_pod(testing.external("queue_messages", selector), members)


def consumer(channel: str, *, peer: str = "", tag: str = "", queue: str = "jobs", ack: bool = True) -> dict[str, Any]:
    details = {"name": channel, "peer_host": peer}
    return {
        "queue": {"name": queue, "vhost": "/"},
        "consumer_tag": tag,
        "ack_required": ack,
        "channel_details": details,
    }


def channels(**held: int | None) -> list[dict[str, Any]]:
    return [{"name": name} | ({} if n is None else {"messages_unacknowledged": n}) for name, n in held.items()]


def broker_of(
    consumers: Any, listed: Any, unacknowledged: int | None = 0
) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    """A management API with these consumers and channels, and one queue that has this number of messages in hand."""
    counts = {"messages": 9, "messages_ready": 4, "messages_unacknowledged": unacknowledged}
    queue = {"name": "jobs", "vhost": "/", "type": "classic", "state": "running"}
    known = {name: count for name, count in counts.items() if unacknowledged is not None}

    async def answer(request: web.BaseRequest) -> web.Response:
        if "/consumers" in request.path:
            return web.json_response(consumers)
        if "/channels" in request.path:
            return web.json_response(listed)
        path = request.raw_path.partition("?")[0]
        if path == "/api/queues/%2F/jobs":
            return web.json_response(queue | known)
        if path.startswith("/api/queues/%2F/"):
            return web.json_response({"error": "Object Not Found", "reason": "Not Found"}, status=404)
        return web.json_response({"items": [queue | known], "page": 1, "page_count": 1, "filtered_count": 1})

    return answer


async def asked(url: str, context: Context, query: Query | None = None, **settings: Any) -> Answer:
    return (await adapter(url, context, **settings).answer([query or by_pod()]))[0]


def values(answer: Answer) -> dict[str, int]:
    assert isinstance(answer, PodSample), answer
    return {name: value.value // 1000 for name, value in sorted(answer.values.items())}


@pytest.mark.rabbitmq
async def test_real_consumers_by_address_and_by_tag(
    broker: Any, rabbit: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One consumer connects from another address of loopback, one names its pod in its tag, and one pod has none."""
    queue, connections = await broker.declare(), list[amqp.Connection]()

    def consume(address: str, tag: str) -> None:
        """Fetches one message, and acknowledges none."""
        with monkeypatch.context() as patch:
            patch.setattr(
                amqp.socket,
                "create_connection",
                functools.partial(socket.create_connection, source_address=(address, 0)),
            )
            connections.append(broker.connect())
        next(connections[-1].consume(queue, tag))

    members = [Member("job-a", "127.0.0.2"), Member("job-b", "127.0.0.3"), Member("job-c"), Member("job-ab")]
    query, expected = by_pod(f"queue={queue}", members), {"job-a": 1, "job-ab": 0, "job-b": 0, "job-c": 1}
    made = adapter(broker.url, rabbit)
    found: dict[str, int] = {}
    await broker.publish(queue, 2)
    try:
        await asyncio.to_thread(consume, "127.0.0.2", "")
        await asyncio.to_thread(consume, "127.0.0.1", "x.job-c.1")
        async with asyncio.timeout(120):
            while found != expected:
                await asyncio.sleep(0.3)
                (answer,) = await made.answer([query])
                if isinstance(answer, AdapterError):  # new consumers are listed later than counts, their channels last
                    assert "lists no" in answer.message
                    continue
                found = values(answer)
                # Before the consumers are listed nothing is known. A channel that is a moment old may still be reported
                # as it was when it was opened, with nothing to acknowledge.
                assert all(amount in {0, expected[pod]} for pod, amount in found.items())
        plain = testing.external("queue_messages", f"queue={queue}")
        work, total, missing, _ = await testing.check_adapter(made, [query, plain, by_pod("queue=nowhere"), query])
        assert values(work) == expected
        assert getattr(total, "values", None) == (2000,)
        assert isinstance(missing, AdapterError)
    finally:
        for each in connections:
            await asyncio.to_thread(each.close)


@pytest.mark.parametrize(
    ("tag", "pod"),
    [
        ("job-a", "job-a"),
        ("ctag1.job-a@host", "job-a"),
        ("celery@job-a-2-1", "job-a-2"),
        ("xjob-a", None),
        ("job-ab", None),
        ("None1", None),
        ("", None),
    ],
)
async def test_the_longest_name_in_a_tag_counts(stub: Any, context: Context, tag: str, pod: str | None) -> None:
    stub.handler = broker_of([consumer("c", peer="192.168.0.1", tag=tag)], channels(c=3), 4)
    assert values(await asked(stub.url, context)) == ({} if pod is None else {pod: 3})


async def test_an_address_that_pods_share_names_none_of_them(stub: Any, context: Context) -> None:
    stub.handler = broker_of(
        [consumer("c", peer="10.0.0.9"), consumer("d", peer="10.0.0.9", tag="b")], channels(c=1, d=2), 3
    )
    members = [Member("a", "10.0.0.9"), Member("b", "10.0.0.9")]
    assert values(await asked(stub.url, context, by_pod(members=members))) == {"b": 2}


async def test_several_consumers_of_a_pod_and_of_a_channel(stub: Any, context: Context) -> None:
    twice = [consumer("c", peer="10.0.0.1", tag="1"), consumer("c", peer="10.0.0.1", tag="2")]
    stub.handler = broker_of(
        [*twice, consumer("d", peer="10.0.0.1"), consumer("e", peer="10.0.0.3")], channels(c=3, d=4, e=0), 7
    )
    assert values(await asked(stub.url, context)) == {"job-a": 7, "job-a-2": 0, "job-b": 0, "job-c": 0}


@pytest.mark.parametrize(
    ("consumers", "held", "total", "known"),
    [
        # A consumer that is not listed yet holds one of the messages: any pod without a consumer may be its pod.
        ([consumer("c", peer="10.0.0.1")], {"c": 1}, 2, {"job-a": 1}),
        # A proxy hides the address of a pod, which may be any one of those without a consumer.
        ([consumer("c", peer="10.0.0.1"), consumer("d", peer="192.168.0.1")], {"c": 1, "d": 1}, 2, {"job-a": 1}),
        # Without acknowledgements the broker does not know what a consumer works on.
        ([consumer("c", peer="10.0.0.1", ack=False)], {"c": 0}, 0, {"job-a-2": 0, "job-b": 0, "job-c": 0}),
        ([consumer("c", peer="192.168.0.1", ack=False)], {"c": 0}, 0, {}),
        # A channel without statistics, beside another one of the same pod.
        (
            [consumer("c", peer="10.0.0.1"), consumer("d", peer="10.0.0.1")],
            {"c": 1, "d": None},
            1,
            {"job-a-2": 0, "job-b": 0, "job-c": 0},
        ),
        # Messages of another queue on the same channel are not those that a consumer which is not listed yet may hold.
        (
            [consumer("c", peer="10.0.0.1"), consumer("c", peer="10.0.0.1", queue="other")],
            {"c": 5},
            3,
            {"job-a": 5},
        ),
        # Consumers of other queues.
        (
            [consumer("c", peer="10.0.0.1", queue="other")],
            {"c": 5},
            0,
            dict.fromkeys(("job-a", "job-a-2", "job-b", "job-c"), 0),
        ),
        (
            [{"queue": {"name": "jobs"}, "channel_details": []}, consumer("c", peer="10.0.0.1")],
            {"c": 2},
            2,
            {"job-a": 2},
        ),
    ],
)
async def test_what_is_not_known_is_left_out(
    stub: Any, context: Context, consumers: Any, held: dict[str, int | None], total: int, known: dict[str, int]
) -> None:
    stub.handler = broker_of(consumers, channels(**held), total)
    assert values(await asked(stub.url, context)) == known


@pytest.mark.parametrize(
    ("consumers", "listed", "total", "text"),
    [
        ([consumer("c")], [], 1, "its user needs the tag monitoring, unless the consumers are a few seconds old"),
        ([], [], None, 'has not counted the messages of queue "jobs"'),
        ({"error": "no"}, [], 0, "a list of consumers"),
    ],
)
async def test_faults_are_errors(
    stub: Any, context: Context, consumers: Any, listed: Any, total: int | None, text: str
) -> None:
    stub.handler = broker_of(consumers, listed, total)
    answer = await asked(stub.url, context)
    assert isinstance(answer, AdapterError)
    assert text in answer.message


@pytest.mark.parametrize("odd", [-1, "3", "", 1.5, True, None])
async def test_an_odd_count_of_a_channel_spoils_no_other_pod(stub: Any, context: Context, odd: object) -> None:
    consumers = [consumer("c", peer="10.0.0.1"), consumer("d", peer="10.0.0.3")]
    nameless = {"name": None, "messages_unacknowledged": 7}
    stub.handler = broker_of(consumers, [{"name": "c", "messages_unacknowledged": odd}, nameless, *channels(d=2)], 5)
    assert values(await asked(stub.url, context)) == {"job-b": 2}


async def test_a_consumer_without_address_and_tag_spoils_no_pod(stub: Any, context: Context) -> None:
    hidden = consumer("c") | {"consumer_tag": None, "channel_details": {"name": "c", "peer_host": None}}
    stub.handler = broker_of([hidden, consumer("d", peer="10.0.0.3")], channels(c=3, d=2), 5)
    assert values(await asked(stub.url, context)) == {"job-b": 2}


async def test_consumers_that_are_not_listed_are_an_error_while_messages_are_held(stub: Any, context: Context) -> None:
    """RabbitMQ lists no consumer to a user with the tag "management" alone."""
    stub.handler = broker_of([], [], 3)
    answer = await asked(stub.url, context)
    assert isinstance(answer, AdapterError)
    assert "lists no consumer of the queue, and 3 of its messages are unacknowledged: its user needs" in answer.message
    assert answer.message.endswith("a few seconds old, or were cancelled, or pods fetch by basic.get")
    stub.handler = broker_of([], [], 0)
    assert values(await asked(stub.url, context)) == {member.name: 0 for member in MEMBERS}


async def test_a_missing_queue_is_an_error(stub: Any, context: Context) -> None:
    stub.handler = broker_of([consumer("c", peer="10.0.0.1", queue="gone")], channels(c=0))
    answer = await asked(stub.url, context, by_pod("queue in (jobs,gone)"))
    assert isinstance(answer, AdapterError)
    assert 'no queue "gone" in vhost "/"' in answer.message
    assert answer.blame == "spec"


async def test_a_refused_user_a_slow_server_and_one_that_is_down(stub: Any, context: Context) -> None:
    stub.answers(json.dumps({"error": "not_authorised", "reason": "Login failed"}), status=401)
    answer = await asked(stub.url, context)
    assert "wrong user name or password" in getattr(answer, "message", "")

    async def hang(request: web.BaseRequest) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    stub.handler = hang
    answer = await asked(stub.url, context, request_timeout="200ms")
    assert isinstance(answer, AdapterError)
    [port] = ports.free(1)
    assert isinstance(await asked(f"http://127.0.0.1:{port}", context), AdapterError)


async def test_each_vhost_is_read_once_for_all_queries(stub: Any, context: Context) -> None:
    stub.handler = broker_of([consumer("c", peer="10.0.0.1")], channels(c=1), 1)
    made = adapter(stub.url, context)
    plain = testing.external("queue_messages", "queue=jobs")
    answers = await made.answer([by_pod(), plain, by_pod(members=MEMBERS[:1])])
    assert [len(values(answers[0])), len(values(answers[2]))] == [4, 1]
    assert not isinstance(answers[1], PodSample | AdapterError)
    assert sum("/consumers" in request.path for request in stub.requests) == 1


async def test_amqp_does_not_know_consumers(context: Context) -> None:
    answer = await asked("amqp://127.0.0.1:1", context, source="amqp")
    assert isinstance(answer, AdapterError)
    assert (answer.blame, "needs the management API" in answer.message) == ("spec", True)

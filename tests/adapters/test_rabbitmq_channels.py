"""Which pods are busy, of a broker that keeps no statistics: how many channels hold messages, and who is connected."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from support.brokers import PATIENT
from support.http_stub import Stub

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, Member, PodSample
from hpad.lab.demo.workloads import amqp
from hpad.lab.servers import ports, rabbitmq
from hpad_adapters.exposition import ExposedSample
from hpad_adapters.rabbitmq import RabbitMQ
from hpad_adapters.rabbitmq.channels import SETTLED_SECONDS, ChannelHistory, ListedConnection, without_connection
from hpad_adapters.rabbitmq.plugin import PREFIX, NodeMetrics

MEMBERS = tuple(Member(f"job-{name}", f"10.0.0.{place}") for place, name in enumerate("abcd", 1))
FAMILY = {"delivered": "delivered_ack_total", "acked": "acked_total", "unseen": "delivered_total"}
Row = tuple[str, str, int]


def node(name: str, held: dict[str, float], **counted: Sequence[Row]) -> NodeMetrics:
    """What a node says: the unacknowledged messages of its channels, and counters of (channel, queue, number)."""
    series = {"channel_messages_unacked": [ExposedSample({"channel": each}, count) for each, count in held.items()]}
    for what, rows in counted.items():
        series[f"channel_messages_{FAMILY[what]}"] = [
            ExposedSample({"channel": channel, "vhost": "/", "queue": queue}, count) for channel, queue, count in rows
        ]
    return NodeMetrics(name, {f"{PREFIX}{key}": samples for key, samples in series.items()}, frozenset())


def counts(channel: str, delivered: int, acked: int, queue: str = "jobs") -> dict[str, list[Row]]:
    return {"delivered": [(channel, queue, delivered)], "acked": [(channel, queue, acked)]}


@pytest.mark.parametrize(
    ("nodes", "first", "settled"),
    [
        ([node("a", {"1": 3}, **counts("1", 5, 2))], 1, 1),
        # Of another node, the same process is another channel.
        ([node("a", {"1": 2}, **counts("1", 2, 0)), node("b", {"1": 1}, **counts("1", 2, 1))], 2, 2),
        # It has just acknowledged what it is still said to hold.
        ([node("a", {"1": 3, "2": 1}, delivered=[("1", "jobs", 3), ("2", "jobs", 1)], acked=[("2", "jobs", 1)])], 1, 1),
        # It has rejected messages, or has got some that it is not said to hold yet.
        ([node("a", {"1": 0, "2": 3}, delivered=[("1", "jobs", 4), ("2", "jobs", 3)])], 2, 1),
        # It has got messages of another queue as well: one that it is said to hold may be of that.
        ([node("a", {"1": 3}, delivered=[("1", "jobs", 3), ("1", "mail", 2)])], 1, 3),
        ([node("a", {"1": 3}, **counts("1", 3, 0, "mail"))], 3, 3),
        # Its messages need no acknowledgement.
        ([node("a", {"1": 0, "2": 0, "3": 0}, unseen=[("1", "jobs", 9), ("2", "jobs", 0), ("3", "mail", 1)])], 4, 4),
        # It has closed.
        ([node("a", {}, **counts("1", 3, 0), unseen=[("2", "jobs", 1)])], 3, 3),
        # A quorum queue whose leader moved: the counters begin anew.
        ([node("a", {"1": 1}, **counts("1", 0, 1))], 3, 3),
        ([node("a", {"1": float("nan")}, **counts("1", 1, 0))], 3, 3),
    ],
)
def test_channels_that_hold_messages(nodes: Sequence[NodeMetrics], first: int, settled: int) -> None:
    """The most busy channels while three messages are unacknowledged: at first, and when nothing changes for 10 s."""
    now = [100.0]
    history = ChannelHistory(lambda: now[0])
    for seconds, most in ((0.0, first), (SETTLED_SECONDS - 0.1, first), (0.1, settled)):
        now[0] += seconds
        found = history.channels(nodes).holding(lambda vhost, queue: (vhost, queue) == ("/", "jobs"))
        assert found.most(3) == most


def test_a_delivery_makes_what_a_channel_is_said_to_hold_old_again() -> None:
    now = [100.0]
    history = ChannelHistory(lambda: now[0])
    busy: list[int] = []
    for delivered in (4, 4, 5, 5):
        found = history.channels([node("a", {"1": 0}, **counts("1", delivered, 1))])
        busy.append(found.holding(lambda vhost, queue: True).channels)
        now[0] += 15
    assert busy == [1, 0, 1, 0]


def connection(peer: str, user: str = "worker") -> ListedConnection:
    return ListedConnection(f"{peer}:41234 -> 10.0.9.9:5672", "/", user)


@pytest.mark.parametrize(
    ("connections", "idle"),
    [
        ([connection("10.0.0.1"), connection("10.0.0.3"), connection("10.7.7.7", "shop")], ["job-b", "job-d"]),
        # A proxy, or a node, may hide the address of one of the pods without a connection.
        ([connection("10.0.0.1"), connection("10.7.7.7")], []),
        ([connection("10.7.7.7")], []),
        ([connection("10.0.0.1"), connection("10.0.0.2", "other")], []),
        ([connection("10.0.0.1"), ListedConnection("direct", "/", "worker")], []),
        ([], []),
    ],
)
def test_pods_without_a_connection(connections: Sequence[ListedConnection], idle: list[str]) -> None:
    assert without_connection(MEMBERS, connections) == idle


def test_pods_without_an_address_of_their_own_may_be_connected() -> None:
    members = [
        Member("a", "10.0.0.1"),
        Member("b", "10.0.0.1"),
        Member("c"),
        Member("d", "fd00::1"),
        Member("e", "::2"),
    ]
    assert without_connection(members, [connection("[fd00::1]")]) == ["e"]


class Quiet:
    """A broker of two nodes without statistics; each holds messages in one channel."""

    def __init__(self, stub: Stub) -> None:
        self.url = stub.url
        self.unacknowledged: int | None = 2
        self.held = 1
        self.down = ""
        self.kept: object = False
        self.connections = [connection("10.0.0.1"), connection("10.0.0.2"), connection("10.0.0.3")]
        stub.handler = self.handle

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        name = request.path[1]
        if request.path.endswith("/metrics"):
            return web.Response(text='erlang_vm_dist_node_state{peer="rabbit@b"} 3\n')
        if request.path.endswith("/metrics/detailed"):
            return web.Response(status=500 if name == self.down else 200, text=self.metrics(name))
        answers: dict[str, Any] = {
            "/api/overview": {"rates_mode": "basic", "disable_stats": not self.kept},
            "/api/nodes": [{"name": f"rabbit@{each}", "running": True} for each in "ab"],
            "/api/connections": [msgspec.structs.asdict(each) for each in self.connections],
            "/api/queues///jobs": self.queue(),
            "/api/queues//": {"items": [self.queue()], "page": 1, "page_count": 1, "filtered_count": 1},
        }
        found = answers.get(request.path)
        if found is None:
            refused = {"error": "bad_request", "reason": "Stats in management UI are disabled on this node"}
            return web.json_response(refused, status=400)
        return web.json_response(found)

    def queue(self) -> dict[str, Any]:
        held = self.unacknowledged
        counts = {} if held is None else {"messages": 9, "messages_ready": 9 - held, "messages_unacknowledged": held}
        return {"name": "jobs", "vhost": "/", "type": "classic", "state": "running"} | counts

    def metrics(self, name: str) -> str:
        queue = 'vhost="/",queue="jobs"'
        lines = [
            f'rabbitmq_identity_info{{rabbitmq_node="rabbit@{name}"}} 1',
            f'{PREFIX}channel_messages_unacked{{channel="<0.7.0>"}} {self.held}',
            f'{PREFIX}channel_messages_delivered_ack_total{{channel="<0.7.0>",{queue}}} 5',
            f'{PREFIX}channel_messages_acked_total{{channel="<0.7.0>",{queue}}} {5 - self.held}',
            f"{PREFIX}queue_messages_unacked{{{queue}}} {self.unacknowledged}",
        ]
        return "\n".join(lines[: 4 if name == "b" or self.unacknowledged is None else 5]) + "\n"

    async def ask(self, context: Context, **settings: Any) -> Answer:
        nodes = [f"{self.url}/{name}" for name in "ab"]
        options = {"url": self.url, "source": "auto", "metrics_url": nodes, **PATIENT} | settings
        query = testing.by_pod(testing.external("queue_messages", "queue=jobs"), MEMBERS)
        return (await testing.check_adapter(RabbitMQ(RabbitMQ.Settings(**options), context), [query]))[0]


@pytest.fixture
async def quiet(stub: Stub) -> Quiet:
    return Quiet(stub)


def known(answer: Answer) -> tuple[list[str], int | None]:
    """The pods that are idle, and how many are busy at most."""
    assert isinstance(answer, PodSample), answer
    assert {each.value for each in answer.values.values()} <= {0}
    return sorted(answer.values), answer.most_busy


async def test_the_number_of_busy_pods_and_the_pods_without_a_connection(quiet: Quiet, context: Context) -> None:
    assert known(await quiet.ask(context)) == (["job-d"], 2)
    quiet.unacknowledged = 3
    assert known(await quiet.ask(context)) == (["job-d"], 3)
    quiet.unacknowledged = quiet.held = 0
    assert known(await quiet.ask(context)) == (["job-a", "job-b", "job-c", "job-d"], 0)


async def test_a_pod_may_have_a_connection_that_statistics_lack(quiet: Quiet, context: Context) -> None:
    """RabbitMQ 4.3 lists connections from statistics, also at a node without: those of the nodes that keep them."""
    quiet.connections = [msgspec.structs.replace(each, peer_host=each.peer) for each in quiet.connections]
    assert known(await quiet.ask(context)) == ([], 2)
    quiet.unacknowledged = quiet.held = 0
    assert known(await quiet.ask(context)) == (["job-a", "job-b", "job-c", "job-d"], 0)


async def test_the_plugin_alone_knows_no_connections(quiet: Quiet, context: Context) -> None:
    nodes = [f"{quiet.url}/{name}" for name in "ab"]
    assert known(await quiet.ask(context, source="prometheus", url=nodes, metrics_url=[])) == ([], 2)


@pytest.mark.parametrize(
    ("changed", "settings", "text"),
    [
        ({}, {"source": "management", "metrics_url": []}, "write source: auto, and its plugin rabbitmq_prometheus"),
        ({}, {"source": "management", "metrics_url": []}, "an http-json metric with pods: each"),
        ({"down": "b"}, {}, "node rabbit@b of the cluster is not read"),
        ({"unacknowledged": None}, {}, "has not counted the messages"),
        ({"kept": True}, {}, "Stats in management UI are disabled on this node"),
    ],
)
async def test_what_is_not_known_is_an_error(
    quiet: Quiet, context: Context, changed: dict[str, Any], settings: dict[str, Any], text: str
) -> None:
    for name, value in changed.items():
        setattr(quiet, name, value)
    answer = await quiet.ask(context, **settings)
    assert isinstance(answer, AdapterError)
    assert text in answer.message


WORKER = rabbitmq.User("worker", "worker-pw", (), ("/",))
PODS = tuple(Member(f"job-{name}", f"127.0.0.{place}") for place, name in enumerate("abcd", 11))


class WithoutStatistics:
    """A real broker whose statistics are off, with a queue that has five messages."""

    def __init__(self) -> None:
        [metrics_port] = ports.free(1)
        self.metrics_url = f"http://127.0.0.1:{metrics_port}"
        self.server = rabbitmq.RabbitMQServer(
            users=(WORKER,),
            queues=(rabbitmq.Queue("jobs"),),
            plugins=("rabbitmq_prometheus",),
            configuration=(
                "prometheus.tcp.ip = 127.0.0.1",
                f"prometheus.tcp.port = {metrics_port}",
                "management_agent.disable_metrics_collector = true",
            ),
        )

    @property
    def settings(self) -> dict[str, Any]:
        admin = self.server.admin
        login = {"username": admin.name, "password": admin.password, **PATIENT}
        return login | {"source": "auto", "url": self.server.management_url, "metrics_url": self.metrics_url}

    def publish(self, count: int) -> None:
        """Publishes messages. The broker may drop those that it has not read when the connection is closed."""
        with contextlib.closing(amqp.Connection(self.url(self.server.admin), 60.0)) as publisher:
            publisher.publish("jobs", [b"work"] * count)
            publisher.count("jobs")  # answered after all that was sent before

    async def lists_connections(self, context: Context) -> bool:
        """Returns whether the management API lists those that are open, which may take it a moment."""
        admin = self.server.admin
        login = {"Authorization": aiohttp.encode_basic_auth(admin.name, admin.password)}
        for _ in range(10):
            async with context.http.get(f"{self.server.management_url}/api/connections", headers=login) as response:
                if await response.json():
                    return True
            await asyncio.sleep(0.5)
        return False

    def url(self, user: rabbitmq.User) -> str:
        return f"amqp://{user.name}:{user.password}@127.0.0.1:{self.server.amqp_port}/"


@pytest.fixture
def without_statistics() -> Iterator[WithoutStatistics]:
    """Starts it."""
    if not rabbitmq.RabbitMQServer.installed():
        pytest.skip(rabbitmq.ABSENT)
    broker = WithoutStatistics()
    asyncio.run(broker.server.start())
    broker.publish(5)
    yield broker
    asyncio.run(broker.server.stop())


@pytest.mark.rabbitmq
async def test_a_real_broker_without_statistics(
    without_statistics: WithoutStatistics, rabbit: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods fetch three, two and no messages, one is not connected. Never are fewer said to be busy than really are.

    RabbitMQ 4.3 lists no connections without statistics, so that no pod is known to have none.
    """
    source = RabbitMQ(RabbitMQ.Settings(**without_statistics.settings), rabbit)
    query = testing.by_pod(testing.external("queue_messages", "queue=jobs"), PODS)
    everyone = [member.name for member in PODS]
    connections_listed = True

    async def until(idle: list[str], busy: int) -> None:
        # A busy broker may list them later, too.
        expected = [(idle, busy)] if connections_listed or not busy else [(idle, busy), ([], busy)]
        async with asyncio.timeout(120):
            while True:
                names, most = known((await source.answer([query]))[0])
                assert most is not None
                assert most >= busy
                if (names, most) in expected:
                    return
                await asyncio.sleep(0.3)

    def consume(member: Member, messages: int) -> tuple[amqp.Connection, Iterator[amqp.Delivery]]:
        with monkeypatch.context() as patch:
            address = functools.partial(socket.create_connection, source_address=(member.address, 0))
            patch.setattr(socket, "create_connection", address)
            connection = amqp.Connection(without_statistics.url(WORKER), 60.0)
        deliveries = connection.consume("jobs", prefetch=messages)
        return connection, deliveries

    a, of_a = await asyncio.to_thread(consume, PODS[0], 3)
    first = await asyncio.to_thread(lambda: [next(of_a) for _ in range(3)])
    b, of_b = await asyncio.to_thread(consume, PODS[1], 3)
    await asyncio.to_thread(lambda: [next(of_b) for _ in range(2)])
    c, of_c = await asyncio.to_thread(consume, PODS[2], 1)
    waiting = asyncio.create_task(asyncio.to_thread(next, of_c))
    try:
        connections_listed = await without_statistics.lists_connections(rabbit)
        await until(["job-d"], 2)
        for each in first:
            await asyncio.to_thread(a.ack, each)
        await asyncio.to_thread(a.close)
        await until(["job-a", "job-d"], 1)
        await asyncio.to_thread(b.close)  # its messages go to the third pod, one after the other
        await until(["job-a", "job-b", "job-d"], 1)
        await asyncio.to_thread(c.ack, await waiting)
        await asyncio.to_thread(c.ack, await asyncio.to_thread(next, of_c))
        await until(everyone, 0)
    finally:
        await asyncio.to_thread(c.close)  # or the thread that waits for a message would outlive a failure

"""Queues by the plugin of two nodes: what is whole although a node is missing, and what is not."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from support import http_stub
from support.brokers import PATIENT
from support.http_stub import Stub

from hpad import testing
from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq import Metric, Mode, RabbitMQ

COUNTED = 'rabbitmq_detailed_queue_{}{{vhost="/",queue="{}"}} {}'
MEMBER = 'rabbitmq_detailed_raft_term{}{{vhost="/",queue="quorum"}} 1'
BY_QUEUE = "# TYPE rabbitmq_detailed_queue_messages_acked_total counter"


def queue(name: str, ready: int, unacked: int = 0, consumers: int = 1, reductions: int = 77) -> list[str]:
    counts = {"messages_ready": ready, "messages_unacked": unacked, "messages": ready + unacked, "consumers": consumers}
    return [
        COUNTED.format(key, name, count) for key, count in {**counts, "process_reductions_total": reductions}.items()
    ]


class Cluster:
    """Nodes whose lines a test sets; `down` are those that do not answer, `running` those of the management API."""

    def __init__(self, stub: Stub, clock: http_stub.SetClock) -> None:
        self.stub, self.clock = stub, clock
        self.lines: dict[str, list[str]] = {"a": [], "b": []}
        self.members: list[str] = []
        self.down: set[str] = set()
        self.peers = {"a": ["b", "rabbitmqcli-7-rabbit"], "b": ["a"]}
        self.running = ["a", "b"]
        self.kept = False
        self.silent: set[str] = set()
        """Nodes that keep no statistics, where others do."""
        self.unlisted = 0
        """The status with which a list of nodes is refused, if any."""
        self.unreachable = 0
        self.totals: list[dict[str, object]] = []
        self.paths: list[str] = []
        stub.handler = self.handle

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.paths.append(request.path)
        if request.path.startswith("/api"):
            return self.managed(request)
        node = request.path[1]
        if node in self.down:
            return await http_stub.hang_up(request)
        if request.path.endswith("/metrics"):
            peers = [f'erlang_vm_dist_node_state{{peer="rabbit@{each}"}} 3' for each in self.peers[node]]
            peers = [line.replace("rabbit@rabbitmqcli", "rabbitmqcli") for line in peers]
            return text(*peers, f"rabbitmq_unreachable_cluster_peers_count {self.unreachable}")
        lines = self.members if "ra_metrics" in request.path_qs else self.lines[node]
        return text(BY_QUEUE, *lines, f'rabbitmq_identity_info{{rabbitmq_node="rabbit@{node}"}} 1')

    def managed(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/api/overview":
            return web.json_response({"rates_mode": "basic", "disable_stats": not self.kept})
        if request.path == "/api/nodes" and self.unlisted:
            return web.Response(status=self.unlisted)
        if request.path == "/api/nodes":
            modes = {node: {"rates_mode": "basic"} for node in "ab" if self.kept and node not in self.silent}
            running = {node: {"running": node in self.running} for node in "ab"}
            return web.json_response(
                [{"name": f"rabbit@{node}", **running[node], **modes.get(node, {})} for node in "ab"]
            )
        if request.path == "/api/queues/%2F" or request.path == "/api/queues//":
            count = len(self.totals)
            return web.json_response({"items": self.totals, "page_count": 1, "filtered_count": count})
        return web.json_response(self.totals[0])


def text(*lines: str) -> web.Response:
    return web.Response(text="\n".join((*lines, "")))


class Source:
    """The adapter on these nodes, five seconds apart between two questions."""

    def __init__(self, adapter: RabbitMQ, clock: http_stub.SetClock) -> None:
        self._adapter, self._clock = adapter, clock

    async def explain(self, name: str) -> str:
        return await self._adapter.explain(testing.external(name, "queue=orders"))

    async def ask(self, name: str, queues: str = "queue=orders") -> float | str:
        """Returns the sum of the values, or the error."""
        [found] = await self.ask_all(name, queues)
        return found

    async def ask_all(self, name: str, *queues: str) -> list[float | str]:
        """Asks for several in one call."""
        answers = await self._adapter.answer([testing.external(name, each) for each in queues])
        self._clock.seconds += 5
        return [each.message if isinstance(each, AdapterError) else sum(each.values) / 1000 for each in answers]


NAMES: tuple[Mode, ...] = ("publish_rate", "consumers", "growth")
MODES = {mode: Metric(mode=mode) for mode in NAMES}
OPTIONS = {"metrics": MODES, "patterns": {"all": ".*"}, **PATIENT}


@pytest.fixture
async def cluster(stub: Stub) -> Cluster:
    return Cluster(stub, http_stub.SetClock())


@pytest.fixture
async def source(cluster: Cluster) -> AsyncIterator[Source]:
    """By the plugin of both nodes alone."""
    async with testing.context("rabbit", clock=cluster.clock) as context:
        urls = [f"{cluster.stub.url}/{node}" for node in "ab"]
        yield Source(RabbitMQ(RabbitMQ.Settings(url=urls, source="prometheus", **OPTIONS), context), cluster.clock)


@pytest.fixture
async def auto(cluster: Cluster) -> AsyncIterator[Source]:
    """By the management API, and the plugin of both nodes."""
    async with testing.context("rabbit", clock=cluster.clock) as context:
        urls = [f"{cluster.stub.url}/{node}" for node in "ab"]
        settings = RabbitMQ.Settings(url=cluster.stub.url, source="auto", metrics_url=urls, **OPTIONS)
        yield Source(RabbitMQ(settings, context), cluster.clock)


def moved(count: int) -> list[str]:
    """As many messages are published and delivered."""
    exchange = 'rabbitmq_detailed_queue_exchange_messages_published_total{vhost="/",exchange="",queue="orders"}'
    return [f"{exchange} {count}", COUNTED.format("messages_delivered_total", "orders", count)]


async def test_counts_of_one_node_and_rates_of_all(cluster: Cluster, source: Source) -> None:
    cluster.lines = {"a": queue("orders", 3, unacked=2, consumers=4), "b": moved(10)}
    assert await source.ask("queue_messages") == 5
    assert await source.ask("consumers") == 4


async def test_counts_are_whole_without_the_other_node(cluster: Cluster, source: Source) -> None:
    cluster.lines["a"], cluster.down = queue("orders", 3), {"b"}
    assert await source.ask("queue_messages") == 3
    for name, queues in (("publish_rate", "queue=orders"), ("queue_messages", "queue_regex=all"), *ABSENT):
        assert "/b closed the connection without an answer" in str(await source.ask(name, queues))


ABSENT = [("queue_messages", "queue=gone")]


async def test_a_queue_of_a_node_that_is_not_read_fails_alone(cluster: Cluster, source: Source) -> None:
    cluster.lines["a"], cluster.down = queue("orders", 3), {"b"}
    orders, gone = await source.ask_all("queue_messages", "queue=orders", "queue=gone")
    assert orders == 3
    assert "/b closed the connection without an answer" in str(gone)


async def test_a_node_that_is_not_asked_is_named(cluster: Cluster, source: Source) -> None:
    cluster.lines["a"] = queue("orders", 3)
    cluster.peers["a"].append("c")
    for name, queues in (("growth", "queue=orders"), ("queue_messages", "queue_regex=all"), *ABSENT):
        assert "node rabbit@c of the cluster is not read" in str(await source.ask(name, queues))
    assert await source.ask("queue_messages") == 3
    assert cluster.paths.count("/a/metrics") == 1


async def test_nodes_that_are_not_reached_are_no_zero(cluster: Cluster, source: Source) -> None:
    cluster.lines["a"], cluster.unreachable = queue("orders", 3), 2
    assert "2 nodes of the cluster are not reached by rabbit@a" in str(await source.ask("growth"))


@pytest.mark.parametrize("ending", ["_total", ""], ids=["RabbitMQ 4.0", "RabbitMQ 4.2"])
async def test_a_quorum_queue_that_no_leader_counts_is_neither_absent_nor_zero(
    cluster: Cluster, source: Source, ending: str
) -> None:
    cluster.lines["a"], cluster.members = [*queue("quorum", 3), *queue("orders", 1)], [MEMBER.format(ending)]
    assert await source.ask("queue_messages", "queue_regex=all") == 4
    cluster.lines["a"] = queue("orders", 1)
    for selector in ("queue_regex=all", "queue=quorum", "queue_regex=all"):
        assert "has no messages: its leader has not counted yet" in str(await source.ask("queue_messages", selector))
    cluster.lines["b"] = queue("quorum", 3)
    assert await source.ask("queue_messages", "queue_regex=all") == 4
    cluster.lines["b"], cluster.members = [], []
    assert await source.ask("queue_messages", "queue_regex=all") == 1
    assert "does not exist" in str(await source.ask("queue_messages", "queue=quorum"))


async def test_what_two_nodes_count_is_no_number(cluster: Cluster, source: Source) -> None:
    cluster.lines = {"a": queue("orders", 3), "b": queue("orders", 5)}
    assert "two nodes of the cluster count it" in str(await source.ask("queue_messages"))


@pytest.mark.parametrize("name", ['a"b', 'a",queue="orders', r"or\ders", 'orders"} 7'])
async def test_a_name_that_rabbitmq_3_leaves_as_it_is_spoils_no_other_queue(
    cluster: Cluster, source: Source, name: str
) -> None:
    cluster.lines["a"] = [*queue(name, 9), *queue("orders", 3)]
    assert await source.ask("queue_messages") == 3
    for queues in ("queue_regex=all", "queue=gone"):
        assert "rabbit@a writes the name of a queue so that it cannot be read" in str(
            await source.ask("queue_messages", queues)
        )


async def test_a_stream_is_no_backlog(cluster: Cluster, source: Source) -> None:
    cluster.lines["a"] = queue("orders", 3, reductions=0)
    assert "is a stream" in str(await source.ask("queue_messages"))


async def test_too_many_queues_are_refused(cluster: Cluster) -> None:
    cluster.lines["a"] = queue("orders", 3) + queue("mail", 4)
    async with testing.context("rabbit", clock=cluster.clock) as context:
        options = {"url": f"{cluster.stub.url}/a", "source": "prometheus", "max_queues": 1, **OPTIONS}
        limited = Source(RabbitMQ(RabbitMQ.Settings(**options), context), cluster.clock)
        assert "more than 1 queues to read (max_queues)" in str(await limited.ask("queue_messages", "queue_regex=all"))


async def test_as_many_vhosts_are_remembered_as_queues(cluster: Cluster) -> None:
    """HPAs choose the names of vhosts."""
    async with testing.context("rabbit", clock=cluster.clock) as context:
        urls = [f"{cluster.stub.url}/{node}" for node in "ab"]
        adapter = RabbitMQ(RabbitMQ.Settings(url=urls, source="prometheus", max_queues=3, **OPTIONS), context)
        source = Source(adapter, cluster.clock)
        for number in range(9):
            await source.ask("queue_messages", f"queue_regex=all,vhost=v{number}")
        assert 0 < len(adapter._reader._listed) <= 4


async def test_auto_takes_rates_from_the_nodes_that_run(cluster: Cluster, auto: Source) -> None:
    cluster.totals = [{"name": "orders", "vhost": "/", "type": "classic", "state": "running", **COUNTS}]
    cluster.lines = {"a": queue("orders", 3), "b": moved(10)}
    assert await auto.ask("queue_messages") == 9
    assert "has no rates yet: hpad has read its counters for 0s" in str(await auto.ask("publish_rate"))
    cluster.clock.seconds += 5
    cluster.lines["b"] = moved(30)
    assert await auto.ask("publish_rate") == 2.0
    assert (await auto.explain("publish_rate")).endswith("because the broker keeps no statistics")
    assert await auto.ask("consumers") == 1
    cluster.down = {"b"}
    assert "node rabbit@b of the cluster is not read" in str(await auto.ask("publish_rate"))
    cluster.running = ["a"]
    assert await auto.ask("consumers") == 1


async def test_auto_asks_no_plugin_where_statistics_are_kept(cluster: Cluster, auto: Source) -> None:
    cluster.kept = True
    cluster.totals = [{"name": "orders", "vhost": "/", "type": "classic", "state": "running", "consumers": 7, **COUNTS}]
    assert await auto.ask("consumers") == 7
    assert (await auto.explain("consumers")).endswith("with the statistics of the management API")
    assert not [path for path in cluster.paths if path.endswith("detailed")]


async def test_auto_takes_the_plugin_as_soon_as_statistics_are_turned_off(cluster: Cluster, auto: Source) -> None:
    cluster.kept = True
    kept = {"name": "orders", "vhost": "/", "type": "classic", "state": "running", "consumers": 7, **COUNTS}
    cluster.totals, cluster.lines["a"] = [kept], queue("orders", 9, consumers=8)
    assert await auto.ask("consumers") == 7
    cluster.kept = False
    del kept["consumers"]
    assert await auto.ask("consumers") == 8


async def test_statistics_of_some_nodes_only_are_not_used(cluster: Cluster, auto: Source) -> None:
    """RabbitMQ says nothing of it: 4.3.6 lacked the rate of a publisher that was connected to a node without."""
    cluster.kept, cluster.silent = True, {"b"}
    cluster.totals = [{"name": "orders", "vhost": "/", "type": "classic", "state": "running", "consumers": 7, **COUNTS}]
    cluster.lines = {"a": queue("orders", 9, consumers=8), "b": []}
    assert await auto.ask("consumers") == 8
    async with testing.context("rabbit", clock=cluster.clock) as context:
        management = Source(RabbitMQ(RabbitMQ.Settings(url=cluster.stub.url, **OPTIONS), context), cluster.clock)
        assert await management.ask("queue_messages") == 9
        refused = await management.ask("consumers")
    assert str(refused).startswith("rabbit@b of rabbitmq at ")
    assert "keeps no statistics, so that a part of the numbers is unknown: let all nodes keep them" in str(refused)
    assert str(refused).endswith("; a node that has just started has none for some seconds")  # five, of RabbitMQ 3.10
    cluster.running = ["a"]
    assert await auto.ask("consumers") == 7


@pytest.mark.parametrize(("status", "asked"), [(401, 1), (404, 2), (500, 2)])
async def test_a_list_of_nodes_that_fails_is_asked_for_again(cluster: Cluster, status: int, asked: int) -> None:
    """The next one may tell that a node keeps no statistics, except to a user who may not list nodes."""
    cluster.kept, cluster.unlisted = True, status
    cluster.totals = [{"name": "orders", "vhost": "/", "type": "classic", "state": "running", "consumers": 7, **COUNTS}]
    async with testing.context("rabbit", clock=cluster.clock) as context:
        management = Source(RabbitMQ(RabbitMQ.Settings(url=cluster.stub.url, **OPTIONS), context), cluster.clock)
        assert [await management.ask("consumers") for _ in range(2)] == [7, 7]
    assert cluster.paths.count("/api/nodes") == asked


COUNTS = {"messages": 9, "messages_ready": 9, "messages_unacknowledged": 0}

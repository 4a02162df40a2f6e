"""Nodes that stop and start, and vhosts too large for one list: a backlog must never appear smaller than it is.

The stub answers as RabbitMQ 3.10 does in a cluster of three nodes, one of which is killed.
"""

import asyncio

import aiohttp
import pytest
from aiohttp import web
from support import http_stub
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad.lab.servers import ports
from hpad.lab.servers import rabbitmq as servers
from hpad_adapters import rabbitmq

NONE = {"messages": 0, "messages_ready": 0, "messages_unacknowledged": 0}
FIVE = {"messages": 5, "messages_ready": 5, "messages_unacknowledged": 0}
SETTLED = 600.0
"""Seconds: on a busy machine a broker may answer a few requests only after their timeout of a minute."""


def adapter(url: str | list[str], context: Context, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": url, "username": "hpad", "password": "hpad-lab", **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), context)


async def asked(source: rabbitmq.RabbitMQ, *selectors: str) -> list[Answer]:
    return await source.answer([testing.external("queue_messages", selector) for selector in selectors])


def total(answer: Answer) -> int:
    assert isinstance(answer, ExternalSample), answer
    return sum(answer.values)


class Cluster:
    """Answers lists and single queues from the totals and statistics of a test."""

    def __init__(self, totals: dict[str, dict[str, object]], statistics: dict[str, dict[str, object]]) -> None:
        self.totals = totals
        self.statistics = statistics

    async def __call__(self, request: web.Request) -> web.Response:
        counted = "disable_stats" in request.query
        name = request.path.removeprefix("/api/queues//").strip("/")
        if not name:
            queues = self.totals if counted else self.statistics
            items = [{"name": each, "vhost": "/", **fields} for each, fields in queues.items()]
            return web.json_response({"items": items, "page_count": 1, "filtered_count": len(items)})
        fields = self.totals.get(name, {}) if counted else self.statistics.get(name, {})
        if not fields or fields.get("state") == "down":
            return web.json_response({"error": "Object Not Found", "reason": "Not Found"}, status=404)
        if counted:  # of a single queue RabbitMQ 3.10 gives no totals
            return web.json_response({"name": name, "vhost": "/", "type": fields["type"], "state": "live"})
        return web.json_response({"name": name, "vhost": "/", **fields})


@pytest.mark.rabbitmq
@pytest.mark.skipif(not servers.RabbitMQServer.installed(), reason=servers.ABSENT)
async def test_a_backlog_is_never_zero_after_a_restart_of_the_broker(rabbit):
    """The totals of a quorum queue are zero until its new leader has counted, in the plugin's answers as well."""
    [port] = ports.free(1)
    at = ("prometheus.tcp.ip = 127.0.0.1", f"prometheus.tcp.port = {port}")
    async with servers.RabbitMQServer(plugins=("rabbitmq_prometheus",), configuration=at) as server:
        api = f"{server.management_url}/api"
        login = {"Authorization": aiohttp.encode_basic_auth(server.admin.name, server.admin.password)}
        body = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
        message = {
            "properties": {"delivery_mode": 2},
            "routing_key": "jobs",
            "payload": "x",
            "payload_encoding": "string",
        }
        async with rabbit.http.put(f"{api}/queues/%2F/jobs", json=body, headers=login) as response:
            assert response.status == 201
        for _ in range(5):
            async with rabbit.http.post(
                f"{api}/exchanges/%2F/amq.default/publish", json=message, headers=login
            ) as done:
                assert done.status == 200
        plugin = adapter(f"http://127.0.0.1:{port}", rabbit, source="prometheus")
        sources = (adapter(server.management_url, rabbit), plugin)
        for source in sources:
            await seen_until_five(source)  # the count may rise step by step while the messages arrive
        await server.restart()
        seen = await asyncio.gather(*map(seen_until_five, sources))
    assert all(set(each) <= {5_000, None} for each in seen), seen


async def seen_until_five(source: rabbitmq.RabbitMQ) -> list[int | None]:
    """Returns the values, None for an error, until one is 5,000."""
    seen: list[int | None] = []
    async with asyncio.timeout(SETTLED):
        while 5_000 not in seen:
            [answer] = await asked(source, "queue=jobs")
            seen.append(total(answer) if isinstance(answer, ExternalSample) else None)
            await asyncio.sleep(0.1)
    return seen


@pytest.mark.parametrize(
    ("statistics", "expected"),
    [
        ({"state": "running", **NONE}, 0),
        ({"state": "running", **FIVE}, 5_000),
        ({}, None),
        (NONE, None),
        ({"state": "live"}, 0),
    ],
    ids=["empty", "the leader changed", "not counted yet", "a sum without counts", "a broker without statistics"],
)
async def test_a_quorum_queue_is_empty_only_if_its_statistics_agree(stub, rabbit, statistics, expected):
    quorum = {"type": "quorum"}
    stub.handler = Cluster({"q": {**quorum, "state": "running", **NONE}}, {"q": {**quorum, **statistics}})
    for selector in ("queue=q", "queue in (q,a,b,c,d)"):
        [answer] = await asked(adapter(stub.url, rabbit, on_missing_queue="zero"), selector)
        assert (total(answer) if isinstance(answer, ExternalSample) else None) == expected


async def test_the_growth_of_a_quorum_queue_is_unknown_after_a_move_of_its_leader(stub):
    """RabbitMQ 4.3 said that a backlog of 200 shrank by 18 messages per second, and then grew by 43: it stayed."""
    queue = {"type": "quorum", "state": "running", "consumers": 1, "leader": "rabbit@a", **FIVE}
    stub.handler, clock = Cluster({}, {"q": queue | {"messages_details": {"avg_rate": 2.5}}}), http_stub.SetClock()
    async with testing.context("rabbit", clock=clock) as context:
        source = adapter(stub.url, context, rate_window="30s")

        async def growth() -> int | str:
            [answer] = await source.answer([testing.external("queue_growth", "queue=q")])
            return answer.message if isinstance(answer, AdapterError) else total(answer)

        assert await growth() == 2_500
        stub.handler = Cluster({}, {"q": queue | {"leader": "rabbit@b", "messages_details": {"avg_rate": 0.5}}})
        for seconds in (0, 39):
            clock.seconds = seconds
            assert "has no rates yet: another node leads it for less than 40s" in str(await growth())
        clock.seconds = 41
        assert await growth() == 500
        uncounted = {"messages_details": {"avg_rate": -17.7}, "leader": "rabbit@b", "type": "quorum"}
        stub.handler = Cluster({}, {"q": uncounted, "other": queue})
        [answer, _] = await source.answer(
            [testing.external("queue_growth", f"queue={each}") for each in ("q", "other")]
        )
        assert "its leader has not counted yet" in answer.message


async def test_a_queue_whose_node_is_down_is_not_missing(stub, rabbit):
    down = {"type": "classic", "state": "down"}
    stub.handler = Cluster({"q": down}, {"q": down})
    source = adapter(stub.url, rabbit, on_missing_queue="zero")
    for selector in ("queue=q", "queue=q,mode=consumers", "queue in (q,a,b,c,d)"):
        [answer] = await asked(source, selector)
        assert isinstance(answer, AdapterError)
        assert answer.message.endswith(": the queue is down")
    stub.handler = Cluster({}, {})
    assert [total(answer) for answer in await asked(source, "queue=q")] == [0]


@pytest.mark.parametrize("state", ["down", "stopped", "crashed", "minority"])
async def test_the_counts_of_an_unavailable_queue_are_not_used(stub, rabbit, state):
    """RabbitMQ reports zeros for a quorum queue that has lost its leader and most of its nodes."""
    stub.handler = Cluster({"q": {"type": "quorum", "state": state, **NONE}}, {"q": {"type": "quorum"}})
    source = adapter(stub.url, rabbit, on_missing_queue="zero", metrics={"it": rabbitmq.Metric(queue_regex=".*")})
    for query in ("queue=q", "queue in (q,a,b,c,d)"):
        [answer] = await asked(source, query)
        assert isinstance(answer, AdapterError), answer
    [answer] = await source.answer([testing.external("it")])
    assert isinstance(answer, AdapterError)
    assert answer.message.endswith(f"the queue is {state}")


async def test_a_queue_that_a_list_with_totals_leaves_out_is_not_missing_from_a_sum(stub, rabbit):
    """RabbitMQ leaves out queues that do not answer in time, so patterns are also matched with all names."""
    totals = {"jobs.a": {"type": "classic", "state": "running", **FIVE}}
    everything = {**totals, "jobs.b": {"type": "quorum"}}

    async def listed(request: web.Request) -> web.Response:
        queues = totals if "enable_queue_totals" in request.query else everything
        items = [{"name": name, "vhost": "/", **fields} for name, fields in queues.items()]
        return web.json_response({"items": items, "page_count": 1, "filtered_count": len(items)})

    stub.handler = listed
    source = adapter(stub.url, rabbit, metrics={"jobs": rabbitmq.Metric(queue_regex="jobs[.].*")})
    [answer] = await source.answer([testing.external("jobs")])
    assert isinstance(answer, AdapterError)
    assert '"jobs.b"' in answer.message


async def test_totals_are_read_again_once_a_queue_is_back(stub, rabbit):
    """A broker that keeps no statistics has nothing else."""
    down, live = {"type": "classic", "state": "down"}, {"type": "classic", "state": "live"}
    stub.handler = Cluster({"q": down}, {"q": down})
    source = adapter(stub.url, rabbit, on_missing_queue="zero")
    await asked(source, "queue in (q,a,b,c,d)")
    stub.handler = Cluster({"q": {**down, "state": "running", **FIVE}}, {"q": live})
    assert [total(answer) for answer in await asked(source, "queue in (q,a,b,c,d)")] == [5_000]


@pytest.mark.rabbitmq
async def test_too_many_queues_fail_only_the_queries_that_need_them(broker, rabbit):
    metrics = {"few": rabbitmq.Metric(queue_regex="q000."), "all": rabbitmq.Metric(queue_regex=".*")}
    source = adapter(broker.url, rabbit, vhost="many", max_queues=400, metrics=metrics)
    named = [testing.external("queue_messages", f"queue=q{number:04}") for number in range(500)]
    few, everything, *rest = await source.answer([testing.external("few"), testing.external("all"), *named])
    assert len(few.values) == 10
    assert "more than 400 queues" in everything.message
    assert [answer.message for answer in rest if isinstance(answer, AdapterError)] == []


@pytest.mark.rabbitmq
@pytest.mark.parametrize(
    "name", [".", "..", "a/..", "%2F", "ö(1) [ä]\"'", "x" * 255], ids=["dot", "dots", "above", "escape", "odd", "long"]
)
@pytest.mark.parametrize("source", ["management", "amqp"])
async def test_odd_names_can_be_read(broker, rabbit, source, name):
    if source == "amqp":
        pytest.importorskip("aiormq")
    queue = {"vhost": "/", "name": name, "durable": True, "auto_delete": False, "arguments": {}}
    await broker.define(queues=[queue])
    url = broker.url if source == "management" else broker.amqp_url
    reader = adapter(url, rabbit, source=source, queues={"it": name})
    [answer] = await asked(reader, "queue=it,mode=ready")
    await reader.aclose()
    assert total(answer) == 0


@pytest.mark.parametrize("selector", ["queue=", "queue in (a,)", "queue=a,vhost="])
async def test_an_empty_value_blames_the_spec(stub, rabbit, selector):
    [answer] = await asked(adapter(stub.url, rabbit), selector)
    assert isinstance(answer, AdapterError)
    assert answer.blame == "spec"
    assert "write one value, such as " in answer.message
    assert stub.requests == []

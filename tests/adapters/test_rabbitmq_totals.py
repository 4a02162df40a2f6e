"""Which counts of the management API are believed: zeros of quorum queues, twins, odd values, streams, dead letters."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from support.brokers import PATIENT
from support.http_stub import SetClock

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad_adapters import rabbitmq

RECORDED = Path(__file__).parents[1] / "data" / "rabbitmq" / "quorum_queue_at_a_follower.json"
"""What one node of a cluster (RabbitMQ 4.0.5) answers about a quorum queue whose leader is another node."""
FIVE = {"messages": 5, "messages_ready": 4, "messages_unacknowledged": 1}
NONE = dict.fromkeys(FIVE, 0)
SETTLED = 180.0


def adapter(url: str, context: Context, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": url, "username": "hpad", "password": "hpad-lab", **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), context)


async def asked(source: rabbitmq.RabbitMQ, *selectors: str, name: str = "queue_messages") -> list[Answer]:
    return await source.answer([testing.external(name, selector) for selector in selectors])


def total(answer: Answer) -> int | None:
    """Returns the sum in whole messages, None for an error."""
    return sum(answer.values) // 1_000 if isinstance(answer, ExternalSample) else None


def page(*items: object, **fields: object) -> web.Response:
    return web.json_response({"items": items, "page_count": 1, "filtered_count": len(items)} | fields)


def _named(request: web.BaseRequest) -> str:
    """Returns the name of the queue that is read singly, "" for a list."""
    return request.path.removeprefix("/api/queues//").strip("/")


def one_of(queues: list[dict[str, object]]) -> Callable[[web.BaseRequest], Awaitable[web.Response]]:
    """Returns a handler that answers single reads and lists from these queues."""

    async def answers(request: web.BaseRequest) -> web.Response:
        if request.path == "/api/overview":
            return web.json_response({"rates_mode": "basic", "disable_stats": False})
        name = _named(request)
        if not name:
            return page(*queues)
        absent = web.json_response({"error": "Object Not Found", "reason": "Not Found"}, status=404)
        return next((web.json_response(each) for each in queues if each["name"] == name), absent)

    return answers


def kind(request: web.BaseRequest) -> str:
    """Returns what a request asks for, as the recorded answers are named."""
    if request.path == "/api/overview":
        return "overview"
    shape = "single" if _named(request) else "list"
    if "disable_stats" not in request.query:
        return f"{shape} statistics"
    return f"{shape} totals" if "enable_queue_totals" in request.query else shape


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("statistics: 50 messages, just declared", None),
        ("statistics: 50 messages", 50),
        ("statistics: 50 messages, leader moved, state 1", 50),
        ("statistics: 50 messages, leader moved, state 2", None),
        ("statistics: 50 messages, leader moved, state 3", 50),
        ("statistics: 50 messages, leader moved, state 4", 50),
        ("statistics: empty", 0),
        ("no statistics: 50 messages", 50),
        ("no statistics: 50 messages, leader moved, state 2", 50),
        ("no statistics: empty", 0),
    ],
)
@pytest.mark.parametrize("selector", ["queue=jobs", "queue in (jobs,a,b,c,d)"])
async def test_a_quorum_queue_is_read_alike_at_each_node(stub, rabbit, state, expected, selector):
    answers = json.loads(RECORDED.read_text())[state]

    async def recorded(request: web.BaseRequest) -> web.Response:
        return web.json_response(answers[kind(request)])

    stub.handler = recorded
    [answer] = await asked(adapter(stub.url, rabbit, on_missing_queue="zero"), selector)
    assert total(answer) == expected
    if expected is None:
        assert answer.message.endswith("its leader has not counted yet")


@pytest.mark.parametrize("mode", ["consumers", "drain_time", "growth", "publish_rate"])
async def test_a_broker_without_statistics_is_named(stub, rabbit, mode):
    answers = json.loads(RECORDED.read_text())["no statistics: 50 messages"]

    async def recorded(request: web.BaseRequest) -> web.Response:
        return web.json_response(answers[kind(request)])

    stub.handler = recorded
    [answer] = await asked(adapter(stub.url, rabbit), f"queue=jobs,mode={mode}")
    assert isinstance(answer, AdapterError)
    assert "keeps no statistics (rates_mode, disable_metrics_collector): write source: auto" in answer.message
    assert answer.alive


@pytest.mark.parametrize("selector", ["queue=jobs", "queue in (jobs,a,b,c,d)"])
async def test_without_statistics_a_new_leader_is_believed_once_it_has_counted(stub, selector):
    """Its zero looks like that of an empty queue, which the queue is in the end."""
    answers = json.loads(RECORDED.read_text())
    now = ""

    async def recorded(request: web.BaseRequest) -> web.Response:
        return web.json_response(answers[f"no statistics: {now}"][kind(request)])

    stub.handler, clock, seen = recorded, SetClock(), []
    full, moved, counted, empty = (
        "50 messages",
        "50 messages, leader moved, state 1",
        "50 messages, leader moved, state 2",
        "empty",
    )
    async with testing.context("rabbit", clock=clock) as context:
        source = adapter(stub.url, context, on_missing_queue="zero")
        for at, state in ((0, full), (15, moved), (19, moved), (20, counted), (22, empty), (25, empty)):
            clock.seconds, now = at, state
            [answer] = await asked(source, selector)
            seen.append(total(answer))
    assert seen == [50, None, None, 50, None, 0]


@pytest.mark.parametrize(
    "given", [{"type": "quorum"}, {}, {"type": "of another plugin"}], ids=["quorum", "unsaid", "new"]
)
async def test_one_list_confirms_all_queues_that_seem_empty(stub, rabbit, given):
    """Three queues are read singly at a node that knows the counts of none of them."""

    async def follower(request: web.BaseRequest) -> web.Response:
        name = _named(request)
        if name:
            return web.json_response({"name": name, "vhost": "/", "state": "running", **given, **NONE})
        return page(*({"name": each, "vhost": "/", "state": "running", **given, **FIVE} for each in "abc"))

    stub.handler = follower
    answers = await asked(adapter(stub.url, rabbit), "queue=a", "queue=b", "queue=c")
    assert [total(answer) for answer in answers] == [5, 5, 5]
    assert [kind(request) for request in stub.requests] == ["single totals"] * 3 + ["list totals"]


async def test_no_list_is_read_where_none_seems_empty(stub, rabbit):
    async def leader(request: web.BaseRequest) -> web.Response:
        name = _named(request)
        counts = {"type": "classic", **NONE} if name == "a" else {"type": "quorum", **FIVE}
        return web.json_response({"name": name, "vhost": "/", "state": "running", **counts})

    stub.handler = leader
    answers = await asked(adapter(stub.url, rabbit), "queue=a", "queue=b")
    assert [total(answer) for answer in answers] == [0, 5]
    assert [kind(request) for request in stub.requests] == ["single totals"] * 2


@pytest.mark.parametrize("twin", [FIVE, NONE, {"state": "down"}], ids=["alike", "moved", "down"])
@pytest.mark.parametrize("order", [list, reversed], ids=["first", "last"])
async def test_a_queue_that_a_page_holds_twice_counts_once(stub, rabbit, twin, order):
    """A list asks each node for its own queues, so it may hold one twice while its leader moves."""
    own = {"name": "q", "vhost": "/", "type": "classic", "state": "running"}
    entries = [*order([{**own, **FIVE}, own | twin]), {**own, "name": "p", **FIVE}]

    async def listed(request: web.BaseRequest) -> web.Response:
        return page(*entries)

    stub.handler = listed
    source = adapter(stub.url, rabbit, on_missing_queue="zero", metrics={"all": rabbitmq.Metric(queue_regex="[pq]")})
    [answer] = await source.answer([testing.external("all")])
    assert total(answer) == 10
    assert [total(answer) for answer in await asked(source, "queue in (q,a,b,c,d)")] == [5]


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"messages_ready": -1}, "cannot be read: messages_ready is -1"),
        ({"messages": 1.5, "messages_ready": "7"}, 'cannot be read: messages is 1.5, messages_ready is "7"'),
        ({"messages_ready": {"a" * 99: 0}}, f'cannot be read: messages_ready is {{"{"a" * 38}…'),
        ({"messages_ready": None}, "has no messages_ready"),
        ({"messages": ""}, "has no messages"),
        ({"type": None, "leader": None, "messages": -3}, "cannot be read: messages is -3"),
    ],
    ids=["negative", "two", "long", "null", "empty", "type"],
)
async def test_an_odd_count_is_the_fault_of_its_queue_alone(stub, rabbit, odd, told):
    own = {"vhost": "/", "type": "classic", "state": "running", **FIVE}

    stub.handler = one_of([{"name": "odd", **own, **odd}, *({"name": name, **own} for name in "abc")])
    metrics = {"all": rabbitmq.Metric(queue_regex=".*"), "others": rabbitmq.Metric(queue_regex="[abc]")}
    source = adapter(stub.url, rabbit, metrics=metrics)
    for selectors in (["queue=odd", "queue=a"], ["queue=odd", "queue=a", "queue=b", "queue=c"]):
        bad, *good = await asked(source, *selectors)
        assert isinstance(bad, AdapterError)
        assert re.sub(r" in vhost .*:\d+", "", bad.message).endswith(f'queue "odd" {told}')
        assert [total(answer) for answer in good] == [5] * len(good)
    everything, others = await source.answer([testing.external("all"), testing.external("others")])
    assert (total(everything), total(others)) == (None, 15)
    assert '"odd"' in everything.message


@pytest.mark.parametrize("status", [200, 400, 500, 502])
async def test_a_queue_whose_read_fails_fails_alone(stub, rabbit, status):
    """Two such queues are taken for a fault of the broker, so that a batch waits twice at most."""
    others = one_of([{"name": name, "vhost": "/", "type": "classic", "state": "running", **FIVE} for name in "ab"])

    async def answers(request: web.BaseRequest) -> web.Response:
        return web.Response(text="crash", status=status) if "bad" in _named(request) else await others(request)

    stub.handler = answers
    bad, *good = await asked(adapter(stub.url, rabbit), "queue=bad", "queue=a", "queue=b")
    assert [total(answer) for answer in good] == [5, 5]
    assert isinstance(bad, AdapterError)
    assert 'queue "bad" in vhost "/" of' in bad.message
    assert f"cannot be read: rabbitmq at {stub.url}" in bad.message
    assert bad.blame == "spec"
    asked_before = len(stub.requests)
    failed = await asked(adapter(stub.url, rabbit), "queue=bad", "queue=bad-too", "queue=a")
    assert {total(answer) for answer in failed} == {None}
    assert {answer.blame for answer in failed if isinstance(answer, AdapterError)} != {"spec"}
    assert len(stub.requests) - asked_before <= 3


async def test_an_odd_count_in_statistics_confirms_no_zero(stub, rabbit):
    own = {"name": "q", "vhost": "/", "type": "quorum", "state": "running", "consumers": 1}

    async def answers(request: web.BaseRequest) -> web.Response:
        counts = NONE if "totals" in kind(request) else FIVE | {"messages_ready": -3}
        queue = own | counts
        if request.path == "/api/overview":
            return web.json_response({"rates_mode": "basic", "disable_stats": False})
        return web.json_response(queue) if _named(request) else page(queue)

    stub.handler = answers
    for selector in ("queue=q", "queue in (q,a,b,c,d)"):
        [answer] = await asked(adapter(stub.url, rabbit, on_missing_queue="zero"), selector)
        assert isinstance(answer, AdapterError)
        assert "cannot be read: messages_ready is -3" in answer.message


async def test_a_page_of_more_queues_than_asked_for_is_refused(stub, rabbit):
    """An odd value makes its queue slow to decode, so that there may not be any number of them."""
    stub.handler = one_of([{"name": f"q{number}", "messages": -1} for number in range(501)])
    answers = await asked(adapter(stub.url, rabbit), *(f"queue=q{number}" for number in range(4)))
    assert {answer.message for answer in answers} == {f"rabbitmq at {stub.url} answered 501 queues on a page of 500"}


MODES = ("messages", "ready", "unacked", "consumers", "publish_rate", "growth", "head_age", "drain_time")


async def test_a_stream_is_refused_by_name_and_alone(stub, rabbit):
    own = {"vhost": "/", "state": "running", "consumers": 1, **FIVE}

    stub.handler = one_of([{"name": "log", "type": "stream", **own}, {"name": "jobs", "type": "classic", **own}])
    metrics = {"all": rabbitmq.Metric(queue_regex=".*"), "jobs": rabbitmq.Metric(queue_regex="j.*")}
    source = adapter(stub.url, rabbit, metrics=metrics, on_missing_queue="zero")
    refused = await asked(source, *(f"queue=log,mode={mode}" for mode in MODES), "queue in (log,jobs,a,b)")
    goal = await asked(source, "queue=log,goal=60s", name="queue_workers_to_clear")
    for answer in [*refused, *goal, *await source.answer([testing.external("all")])]:
        assert isinstance(answer, AdapterError)
        assert answer.blame == "spec"
        assert 'queue "log" in vhost "/"' in answer.message
        assert "is a stream: it keeps messages after they were read, so they are no backlog" in answer.message
    assert [total(answer) for answer in await asked(source, "queue=jobs")] == [5]
    assert [total(answer) for answer in await source.answer([testing.external("jobs")])] == [5]


async def test_messages_that_no_consumer_can_get_are_no_tasks(stub, rabbit):
    """RabbitMQ 4.3 adds messages whose retry is delayed: 40 in total, 4 ready and 1 in work."""
    counts = FIVE | {"messages": 40}
    sampled = {
        "messages_unacknowledged_details": {"samples": []},
        "message_stats": {"publish_details": {"samples": []}},
    }
    queue = {"name": "q", "vhost": "/", "type": "quorum", "state": "running", "consumers": 1, **counts, **sampled}
    stub.answers(json.dumps({**queue, "items": [queue], "page_count": 1}))
    source = adapter(stub.url, rabbit, on_missing_queue="zero")
    for selector in ("queue=q", "queue in (q,a,b,c,d)"):
        assert [total(answer) for answer in await asked(source, selector)] == [5]
    workers = await asked(source, "queue=q,goal=20s,service_time=10s", name="queue_workers_to_clear")
    # By hand: one is in work; 4 wait, to be begun within 20 s by workers that take 10 s each: 4 / 20 * 10 = 2.
    assert [total(answer) for answer in workers] == [2]


async def test_a_leader_that_has_not_counted_loses_no_rates(stub, rabbit):
    """The list has its messages already, and the statistics do not have its consumers yet."""
    points = [{"sample": 50 * number, "timestamp": 5_000 * number} for number in range(8)]
    known = {"name": "q", "vhost": "/", "type": "quorum", "state": "running"}
    sampled = {**known, **NONE, "message_stats": {"publish_details": {"samples": points}}}
    listed = {**known, "messages": 50, "messages_ready": 50, "messages_unacknowledged": 0}

    async def moved(request: web.BaseRequest) -> web.Response:
        if request.path == "/api/overview":
            return web.json_response({"rates_mode": "basic", "disable_stats": False})
        answers = {"single statistics": sampled, "single totals": {**known, **NONE}}
        return web.json_response(answers[kind(request)]) if kind(request) in answers else page(listed)

    stub.handler = moved
    [answer] = await asked(adapter(stub.url, rabbit), "queue=q,goal=50s,service_time=1s", name="queue_workers_to_clear")
    # By hand: 50 messages within 50 s take 1 worker at 1 s each, and 10 more a second take 10.
    assert total(answer) == 11


async def eventually(source: rabbitmq.RabbitMQ, done: Callable[[Answer], bool], selector: str, **named: str) -> Answer:
    async with asyncio.timeout(SETTLED):
        while True:
            [answer] = await asked(source, selector, **named)
            if done(answer):
                return answer
            await asyncio.sleep(0.5)


@pytest.mark.rabbitmq
async def test_dead_letters_without_a_target_are_no_tasks(broker, rabbit):
    """A quorum queue keeps them for ever, as neither ready nor unacknowledged."""
    arguments = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "to-nowhere",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
        "x-message-ttl": 15_000,  # the broker counts a quorum queue every five seconds
    }
    exchange = {"name": "to-nowhere", "vhost": "/", "type": "direct", "durable": True, "auto_delete": False}
    queue = {"name": "undeliverable", "vhost": "/", "durable": True, "auto_delete": False, "arguments": arguments}
    await broker.define(exchanges=[{**exchange, "internal": False, "arguments": {}}], queues=[queue])
    await broker.publish("undeliverable", 40)
    source = adapter(broker.url, rabbit)
    await eventually(source, lambda answer: total(answer) == 40, "queue=undeliverable")
    await eventually(source, lambda answer: total(answer) == 0, "queue=undeliverable", name="queue_messages_ready")
    [answer] = await asked(source, "queue=undeliverable")
    assert total(answer) == 0
    reported = json.loads(await source._reader._broker.get("/api/queues/%2F/undeliverable", {}, vhost="/"))
    assert reported["messages"] == 40


@pytest.mark.rabbitmq
async def test_a_real_stream_is_refused_and_its_neighbours_are_not(broker, rabbit):
    stream, jobs = await broker.declare(kind="stream"), await broker.declare()
    await broker.publish(stream, 4)
    await broker.publish(jobs, 2)
    either = {"both": rabbitmq.Metric(queue_regex=f"{stream}|{jobs}")}
    source = adapter(broker.url, rabbit, metrics=either)
    refused, counted = await asked(source, f"queue={stream}", f"queue={jobs}")
    [both] = await source.answer([testing.external("both")])
    assert total(counted) == 2
    for answer in (refused, both):
        assert isinstance(answer, AdapterError)
        assert f'queue "{stream}"' in answer.message
        assert "is a stream" in answer.message

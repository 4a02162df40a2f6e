"""Workers for a goal in seconds, growth and age: by hand, with recorded statistics, and with a real broker."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad_adapters import rabbitmq
from hpad_adapters.rabbitmq.clearing import Clearing, Goal
from hpad_adapters.rabbitmq.queues import Details, Lengths, Point, Queue, Statistics
from hpad_adapters.rabbitmq.service_time import HALF_LIFE, MOST_QUEUES, ServiceTimes

SETTLED = 180.0
GOAL = Goal(60.0)


def counter(*samples: int) -> Details:
    return Details(samples=[Point(sample, 5_000 * index) for index, sample in enumerate(samples)])


def length(*samples: int) -> Lengths:
    """Counts at the times of `counter`: the broker dates them an interval later."""
    return Lengths(samples=[Point(sample, 5_000 * (index + 1)) for index, sample in enumerate(samples)])


def queue(
    *,
    ready: int = 0,
    unacked: int = 0,
    consumers: int | None = 4,
    published: Details | None = None,
    acked: Details | None = None,
    held: Lengths | None = None,
    name: str = "tasks",
) -> Queue:
    """A queue whose samples are five seconds apart."""
    return Queue(
        name,
        "/",
        messages=ready + unacked,
        messages_ready=ready,
        messages_unacknowledged=unacked,
        consumers=consumers,
        message_stats=Statistics(publish_details=published, ack_details=acked),
        messages_unacknowledged_details=held,
    )


def workers(found: Queue, goal: Goal = GOAL) -> float:
    return Clearing().workers(found, goal, "the broker")


BUSY = {"acked": counter(0, 10, 20, 30), "held": length(4, 4, 4, 4)}
"""Four messages in work for 15 s, 30 begun: two seconds each."""


def test_the_service_time_is_the_work_by_the_messages_begun() -> None:
    assert ServiceTimes().learn(queue(**BUSY), 1, 1) == pytest.approx(2.0)


def test_new_consumers_do_not_make_messages_seem_long() -> None:
    """The first messages of 40 new consumers take ten seconds: none is acknowledged in five of them."""
    started = queue(acked=counter(0, 2, 4, 6, 6), held=length(4, 4, 4, 4, 44), consumers=44)
    assert ServiceTimes().learn(started, 1, 1) <= 10.0


def test_of_what_consumers_fetch_ahead_only_a_part_is_worked_on() -> None:
    assert ServiceTimes().learn(queue(acked=counter(0, 10, 20, 30), held=length(16, 16, 16, 16)), 4, 1) == 2.0


def test_the_same_samples_count_once() -> None:
    times = ServiceTimes()
    found = [times.learn(queue(**BUSY), 1, 1) for _ in range(3)]
    longer = queue(acked=counter(0, 10, 20, 30, 35), held=length(4, 4, 4, 4, 4))
    assert found == [2.0] * 3
    assert times.learn(longer, 1, 1) == pytest.approx(80 / 35, rel=0.01)


def test_a_service_time_is_remembered_and_the_past_fades() -> None:
    times = ServiceTimes()
    times.learn(queue(**BUSY), 1, 1)
    assert times.learn(queue(), 1, 1) == 2.0
    late = [Point(0, 10_000_000), Point(5, 10_005_000), Point(10, 10_010_000), Point(15, 10_015_000)]
    assert 10 * HALF_LIFE < 10_000
    slower = queue(
        acked=Details(samples=late), held=Lengths(samples=[Point(4, each.timestamp + 5_000) for each in late])
    )
    assert times.learn(slower, 1, 1) == pytest.approx(4.0, rel=0.01)


def test_a_counter_that_began_anew_is_left_out() -> None:
    restarted = queue(acked=counter(90, 100, 110, 0, 10), held=length(4, 4, 4, 4, 4))
    assert ServiceTimes().learn(restarted, 1, 1) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "young",
    [
        queue(),
        queue(acked=counter(0, 10), held=length(4, 4)),
        queue(acked=counter(0, 10, 20, 30), held=length(0, 0, 0, 0)),
        queue(acked=counter(0, 0, 0, 0, 0), held=length(0, 0, 0, 0, 0)),
    ],
)
def test_young_statistics_tell_no_service_time(young: Queue) -> None:
    assert ServiceTimes().learn(young, 1, 1) is None


def test_the_number_of_remembered_queues_is_limited() -> None:
    times = ServiceTimes()
    for number in range(MOST_QUEUES + 10):
        times.learn(queue(name=str(number)), 1, 1)
    assert len(times) == MOST_QUEUES


def test_the_workers_clear_the_waiting_and_keep_up_with_the_published() -> None:
    """600 messages wait and 3 per second come: (600 / 60 + 3) * 2 s, and with 10 s to start (600 / 50 + 3) * 2 s."""
    found = queue(ready=600, unacked=4, published=counter(*range(0, 15 * 13, 15)), **BUSY)
    assert workers(found) == pytest.approx(26.0)
    assert workers(found, Goal(60.0, startup=10.0)) == pytest.approx(30.0)


@pytest.mark.parametrize("age", range(1, 13))
def test_a_burst_counts_as_backlog_alone_also_in_a_young_queue(age: int) -> None:
    """600 messages within ten seconds, which may be the first ones: two samples of five seconds show them."""
    for begun in range(age):
        counts = [0 if at <= begun else 300 if at == begun + 1 else 600 for at in range(age + 1)]
        found = queue(ready=counts[-1], published=counter(*counts))
        expected = counts[-1] / 60 * 2.0
        assert workers(found, Goal(60.0, service=2.0)) == pytest.approx(max(expected, 0.001)), counts


def test_a_burst_counts_as_backlog_alone() -> None:
    burst = counter(0, 0, 0, 0, 600, 600, 600, 600, 600, 600, 600, 600, 600)
    assert workers(queue(ready=600, unacked=4, published=burst, **BUSY)) == pytest.approx(20.0)


def test_busy_workers_stay_while_there_is_work() -> None:
    """Ten messages wait for four workers: 0.3 workers would do for the goal, and take as long as all the work does."""
    assert workers(queue(ready=10, unacked=4, published=counter(0, 0), **BUSY)) == 4.0
    assert workers(queue(ready=0, unacked=4, published=counter(0, 0), **BUSY)) == 4.0
    short = {"acked": counter(0, 1000, 2000, 3000), "held": length(4, 4, 4, 4)}
    assert workers(queue(ready=10, unacked=4, published=counter(0, 0), **short)) < 1.0


def test_a_queue_that_holds_a_message_needs_a_worker() -> None:
    tiny = {"acked": counter(0, 10**6, 2 * 10**6, 3 * 10**6), "held": length(1, 1, 1, 1)}
    assert workers(queue(unacked=1, published=counter(0, 0), **tiny)) > 0
    assert workers(queue(published=counter(0, 0), **tiny)) == 0


def test_without_workers_and_a_service_time_one_worker_is_needed() -> None:
    assert workers(queue(ready=500, consumers=0)) == 1.0
    assert workers(queue(ready=600, consumers=0), Goal(60.0, service=3.0)) == pytest.approx(30.0)


def test_an_unknown_service_time_is_an_error_while_there_are_workers() -> None:
    with pytest.raises(AdapterError, match="too few acknowledgements") as caught:
        workers(queue(ready=500, consumers=2))
    assert caught.value.blame == "spec"
    assert workers(queue(ready=600, consumers=2), Goal(60.0, service=3.0)) == pytest.approx(30.0)


@pytest.mark.parametrize("field", ["messages", "consumers"])
def test_a_field_that_is_missing_is_an_error(field: str) -> None:
    found = queue(ready=500, consumers=None if field == "consumers" else 2)
    found = Queue("tasks", "/", consumers=2, message_stats=Statistics()) if field == "messages" else found
    with pytest.raises(AdapterError, match=f"has no {field}") as caught:
        workers(found)
    assert caught.value.alive == (field == "consumers")


def test_the_time_is_the_goal_by_the_share_of_workers() -> None:
    """26 workers are needed: four of them take 6.5 times the goal."""
    found = queue(ready=600, unacked=4, published=counter(*range(0, 15 * 13, 15)), **BUSY)
    assert Clearing().seconds(found, GOAL, "the broker") == pytest.approx(390.0)


# --- Recorded answers ---------------------------------------------------------------------------------------------


def recorded(stub, rates_mode: str, **fields: object) -> None:
    """The answers of RabbitMQ 3.10 about a queue that was never used, and its overview."""
    counts = {"messages": 0, "messages_ready": 0, "messages_unacknowledged": 0, "consumers": 0}
    body = {"name": "tasks", "vhost": "/", "type": "classic", "state": "running", **counts, **fields}

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        overview = {"rates_mode": rates_mode, "disable_stats": False}
        return web.json_response(overview if request.path == "/api/overview" else body)

    stub.handler = handler


async def asked(url: str, rabbit: Context, name: str, selector: str) -> Answer:
    source = rabbitmq.RabbitMQ(rabbitmq.Settings(url=url, username="monitor", password="secret"), rabbit)
    [answer] = await source.answer([testing.external(name, selector)])
    return answer


async def test_a_queue_that_was_never_used_needs_no_workers(stub, rabbit):
    recorded(stub, "basic")
    answer = await asked(stub.url, rabbit, "queue_workers_to_clear", "queue=tasks,goal=60s")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (0,)
    assert [request.path for request in stub.requests] == ["/api/queues///tasks"] * 2 + ["/api/overview"]


async def test_a_broker_without_rates_is_an_error(stub, rabbit):
    recorded(stub, "none")
    answer = await asked(stub.url, rabbit, "queue_workers_to_clear", "queue=tasks,goal=60s")
    assert isinstance(answer, AdapterError)
    assert "keeps no rates" in answer.message


async def test_growth_may_be_negative(stub, rabbit):
    recorded(stub, "basic", messages_details={"avg_rate": -2.5})
    answer = await asked(stub.url, rabbit, "queue_growth", "queue=tasks")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (-2_500,)


# --- A real broker ------------------------------------------------------------------------------------------------


class Work:
    """Real workers of a queue, one message at a time each."""

    def __init__(self, broker, queue: str, seconds: float) -> None:
        self._connection = broker.connect()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(queue, seconds))
        self._thread.start()

    def _run(self, queue: str, seconds: float) -> None:
        with contextlib.suppress(Exception):
            for delivery in self._connection.consume(queue):
                if self._gone.wait(seconds):
                    return
                self._connection.ack(delivery)

    def end(self) -> None:
        self._gone.set()
        with contextlib.suppress(OSError):
            self._connection._socket.shutdown(2)
        self._thread.join()
        self._connection.close()


@contextlib.asynccontextmanager
async def working(broker, queue: str, count: int, seconds: float) -> AsyncIterator[None]:
    found = [await asyncio.to_thread(Work, broker, queue, seconds) for _ in range(count)]
    try:
        yield
    finally:
        for each in found:
            await asyncio.to_thread(each.end)


@pytest.fixture
def source(broker, rabbit: Context) -> rabbitmq.RabbitMQ:
    options = {"username": "monitor", "password": "m0nitor:pw/ü", "request_timeout": "60s", "connect_timeout": "60s"}
    return rabbitmq.RabbitMQ(rabbitmq.Settings(url=broker.url, **options), rabbit)


async def until(source: rabbitmq.RabbitMQ, name: str, selector: str, right: Callable[[Answer], bool]) -> Answer:
    async with asyncio.timeout(SETTLED):
        while True:
            [answer] = await source.answer([testing.external(name, selector)])
            if right(answer):
                return answer
            await asyncio.sleep(0.5)


async def publish(broker, queue: str, properties: dict[str, object], count: int = 1) -> None:
    body = {"properties": properties, "routing_key": queue, "payload": "work", "payload_encoding": "string"}
    for _ in range(count):
        await broker._request("POST", "/api/exchanges/%2F/amq.default/publish", body)


@pytest.mark.rabbitmq
async def test_a_real_broker_shows_how_many_workers_a_backlog_needs(broker, source):
    """6,000 messages of 0.1 s wait for three workers: within a minute up to ten are needed."""
    name = await broker.declare()
    [empty] = await source.answer([testing.external("queue_workers_to_clear", f"queue={name},goal=60s")])
    assert isinstance(empty, ExternalSample)
    assert empty.values == (0,)
    connection = await asyncio.to_thread(broker.connect)
    await asyncio.to_thread(connection.publish, name, [b"work"] * 6000)
    await asyncio.to_thread(connection.close)
    selector = f"queue={name},goal=60s"
    await until(source, "queue_workers_to_clear", selector, lambda answer: getattr(answer, "values", (0,)) == (1_000,))
    async with working(broker, name, 3, 0.1):
        found = await until(
            source, "queue_workers_to_clear", selector, lambda answer: getattr(answer, "values", (0,))[0] > 3_000
        )
        [seconds] = await source.answer([testing.external("queue_time_to_clear", selector)])
    assert 6_000 <= found.values[0] <= 12_000
    assert isinstance(seconds, ExternalSample)
    assert seconds.values[0] > 60_000


@pytest.mark.rabbitmq
async def test_the_age_of_the_oldest_message_and_the_growth_of_a_real_queue(broker, source):
    name = await broker.declare()
    await until(source, "queue_head_age", f"queue={name}", lambda answer: getattr(answer, "values", None) == (0,))
    began = int(time.time()) - 100
    await publish(broker, name, {"timestamp": began})
    await publish(broker, name, {"timestamp": began + 90})
    answer = await until(
        source, "queue_head_age", f"queue={name}", lambda answer: getattr(answer, "values", (0,))[0] > 0
    )
    assert 99_000 <= answer.values[0] <= (time.time() - began + 1) * 1000
    await until(source, "queue_growth", f"queue={name}", lambda answer: getattr(answer, "values", (0,))[0] > 0)


@pytest.mark.rabbitmq
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_messages_without_a_timestamp_have_no_age(broker, source, kind):
    name = await broker.declare(kind=kind)
    await publish(broker, name, {"timestamp": int(time.time())} if kind == "quorum" else {})
    ageless = "no head_message_timestamp"
    answer = await until(
        source, "queue_head_age", f"queue={name}", lambda answer: ageless in getattr(answer, "message", "")
    )
    assert answer.blame == "spec"
    assert "only classic queues report it" in answer.message

"""Workers for a goal in seconds, growth and age: by hand, with recorded statistics, and with a real broker."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest
from aiohttp import web
from support.brokers import PATIENT
from support.rabbit_queues import counter, length, queue, until

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad_adapters import rabbitmq
from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.clearing.workers import MOST_QUEUES, Clearing
from hpad_adapters.rabbitmq.queues import RabbitmqQueue, measured

GOAL = ClearingGoal(60.0)


def workers(found: RabbitmqQueue, goal: ClearingGoal = GOAL, clearing: Clearing | None = None) -> float:
    clearing = Clearing(lambda: 0.0) if clearing is None else clearing
    return clearing.workers(measured(found, goal.concurrency, "the broker"), goal)


def seconds(found: RabbitmqQueue) -> float:
    return Clearing(lambda: 0.0).seconds(measured(found, GOAL.concurrency, "the broker"), GOAL)


ALONE = {"acked": counter(0, 10, 20, 30), "held": length(1, 1, 1, 1)}
"""One message in work for 15 s, 30 begun: half a second each."""
BUSY = {"acked": counter(0, 10, 20, 30), "held": length(4, 4, 4, 4)}
"""Four messages in work for 15 s, 30 begun: two seconds each."""


def test_the_number_of_remembered_queues_is_limited() -> None:
    clearing = Clearing(lambda: 0.0)
    for number in range(MOST_QUEUES + 10):
        workers(queue(name=str(number)), GOAL, clearing)
    assert len(clearing) == MOST_QUEUES


def test_the_workers_clear_the_waiting_and_keep_up_with_the_published() -> None:
    """600 messages wait and 3 per second come: (600 / 60 + 3) * 2 s, and with 10 s to start (600 / 50 + 3) * 2 s."""
    found = queue(ready=600, unacked=4, published=counter(*range(0, 15 * 13, 15)), **BUSY)
    assert workers(found) == pytest.approx(26.0)
    assert workers(found, ClearingGoal(60.0, startup=10.0)) == pytest.approx(30.0)


@pytest.mark.parametrize("age", range(1, 13))
def test_a_burst_counts_as_backlog_alone_also_in_a_young_queue(age: int) -> None:
    """600 messages within ten seconds, which may be the first ones: two samples of five seconds show them."""
    for begun in range(age):
        counts = [0 if at <= begun else 300 if at == begun + 1 else 600 for at in range(age + 1)]
        found = queue(ready=counts[-1], published=counter(*counts))
        expected = counts[-1] / 60 * 2.0
        assert workers(found, ClearingGoal(60.0, service=2.0)) == pytest.approx(max(expected, 0.001)), counts


def test_a_burst_counts_as_backlog_alone() -> None:
    burst = counter(0, 0, 0, 0, 600, 600, 600, 600, 600, 600, 600, 600, 600)
    assert workers(queue(ready=600, unacked=4, published=burst, **BUSY)) == pytest.approx(20.0)


def test_busy_workers_stay_while_there_is_work() -> None:
    """Ten messages wait for four workers: 0.3 workers would do for the goal, and take as long as all the work does."""
    assert workers(queue(ready=10, unacked=4, published=counter(0, 0), **BUSY)) == 4.0
    assert workers(queue(ready=0, unacked=4, published=counter(0, 0), **BUSY)) == 4.0
    short = {"acked": counter(0, 1000, 2000, 3000), "held": length(4, 4, 4, 4)}
    assert workers(queue(ready=10, unacked=4, published=counter(0, 0), **short)) < 1.0


def test_a_spike_on_a_new_queue_asks_for_what_the_formula_says() -> None:
    """80 messages of 4 s in 20 s: 16 workers, also while each of them holds two messages and none is reported yet."""
    now, goal = 0.0, ClearingGoal(25.0, startup=5.0, service=4.0)
    clearing = Clearing(lambda: now)
    found = []
    for at, ready, unacked, consumers in ((0, 0, 0, 0), (1, 74, 6, 0), (4, 52, 28, 0), (6, 46, 32, 3), (9, 30, 32, 3)):
        now = float(at)
        found.append(workers(queue(ready=ready, unacked=unacked, consumers=consumers), goal, clearing))
    assert max(found) <= 80 / (25 - 5) * 4
    assert found[-1] == max(found)  # those that were asked for have begun, and stay


@pytest.mark.parametrize("unreported", [None, 0])
def test_busy_workers_stay_while_the_broker_does_not_report_them(unreported: int | None) -> None:
    """A broker whose statistics began anew reports messages at once, and consumers some seconds later."""
    now, goal = 0.0, ClearingGoal(60.0, service=4.0)
    clearing = Clearing(lambda: now)
    assert workers(queue(ready=5, unacked=40, consumers=40), goal, clearing) == 40.0
    now = 5.0
    assert workers(queue(ready=4, unacked=40, consumers=unreported), goal, clearing) == 40.0


@pytest.mark.parametrize("unreported", [None, 0])
def test_busy_workers_stay_if_a_new_hpad_meets_a_broker_that_does_not_report_them(unreported: int | None) -> None:
    """As after the loss of a node with both: nothing is remembered, so full consumers are taken for busy."""
    now, goal = 0.0, ClearingGoal(60.0, service=4.0, prefetch=2)
    clearing = Clearing(lambda: now)
    for at, unacked in ((0, 40), (5, 40), (9, 38)):
        now = float(at)
        found = queue(ready=4, unacked=unacked, consumers=unreported)
        assert workers(found, goal, clearing) == unacked / 2


def test_no_more_workers_than_messages_are_needed() -> None:
    """A message takes longer than the goal: more than one worker for each does not help."""
    assert workers(queue(ready=30, consumers=0), ClearingGoal(60.0, service=300.0)) == pytest.approx(30.0)


def test_workers_with_long_messages_do_not_count_for_the_others() -> None:
    """Four workers have been at one message each for two minutes; 600 of two seconds come, to be gone within one."""
    clearing = Clearing(lambda: 0.0)
    goal = ClearingGoal(60.0, service=2.0)
    samples = {"acked": counter(*[0] * 13), "held": length(0, *[4] * 12)}
    for first in (0, 12):
        samples = {"acked": counter(*[0] * 13, first=first), "held": length(4 if first else 0, *[4] * 12, first=first)}
        assert workers(queue(unacked=4, **samples), goal, clearing) == 4.0
    service = (10 * 2.0 + 4 * 60.0) / 14
    found = workers(queue(ready=600, unacked=4, **samples), goal, clearing)
    assert found == pytest.approx(4 + 600 / 60 * service)


def test_a_queue_that_holds_a_message_needs_a_worker() -> None:
    tiny = {"acked": counter(0, 10**6, 2 * 10**6, 3 * 10**6), "held": length(1, 1, 1, 1)}
    assert workers(queue(unacked=1, published=counter(0, 0), **tiny)) > 0
    assert workers(queue(published=counter(0, 0), **tiny)) == 0


def test_without_workers_and_a_service_time_one_worker_is_needed() -> None:
    assert workers(queue(ready=500, consumers=0)) == 1.0
    assert workers(queue(ready=600, consumers=0), ClearingGoal(60.0, service=3.0)) == pytest.approx(30.0)


def test_an_unknown_service_time_is_an_error_while_there_are_workers() -> None:
    with pytest.raises(AdapterError, match="too few messages") as caught:
        workers(queue(ready=500, consumers=2))
    assert caught.value.blame == "spec"
    assert workers(queue(ready=600, consumers=2), ClearingGoal(60.0, service=3.0)) == pytest.approx(30.0)


def test_a_message_takes_at_least_as_long_as_it_has_been_in_work() -> None:
    """The first of 50 has been in work for 12.5 s: within a minute ten workers are needed, and two to begin with."""
    running = {"acked": counter(0, 0, 0, 0), "held": length(0, 1, 1, 1)}
    assert workers(queue(ready=49, unacked=1, consumers=1, **running)) == 2.0
    assert workers(queue(ready=49, unacked=1, consumers=4, **running)) == 8.0
    assert workers(queue(ready=49, unacked=1, consumers=10, **running)) == pytest.approx(49 / 60 * 12.5)


@pytest.mark.parametrize("goal", [60.0, 600.0])
def test_an_odd_first_message_at_most_doubles_the_workers(goal: float) -> None:
    """The first message takes 50 s, five others one second each: the mean asks for ten times too many."""
    found = queue(ready=600, unacked=1, consumers=1, acked=counter(*[0] * 11, 1, 6), held=length(0, *[1] * 12))
    assert workers(found, ClearingGoal(goal)) == 2.0


@pytest.mark.parametrize(("ready", "expected"), [(0, 2.0), (3, 5.0), (100, 50.0)])
def test_new_workers_are_no_more_than_the_messages_they_can_get(ready: int, expected: float) -> None:
    """Two consumers without a prefetch limit hold the others. By hand: 600 messages of 5 s within 60 s take 50."""
    found = queue(ready=ready, unacked=602 - ready, consumers=2)
    assert workers(found, ClearingGoal(60.0, service=5.0)) == expected


def test_workers_that_crash_are_not_doubled() -> None:
    """Two workers give each message back after ten seconds; then one of them finishes one."""
    clearing = Clearing(lambda: 0.0)
    crashed = {"acked": counter(*[0] * 6), "held": length(0, 2, 2, 0, 2, 2)}
    assert workers(queue(ready=98, unacked=2, consumers=2, **crashed), GOAL, clearing) == 2.0
    works = {"acked": counter(*[0] * 6, 1, 1), "held": length(0, 2, 2, 0, 2, 2, 2, 2)}
    assert workers(queue(ready=97, unacked=2, consumers=2, **works), GOAL, clearing) == 4.0


def test_after_thirty_measured_messages_the_count_is_free() -> None:
    found = {
        size: queue(ready=600, unacked=4, acked=counter(0, size, 2 * size), held=length(4, 4, 4)) for size in (14, 15)
    }
    assert workers(found[14]) == 8.0
    assert workers(found[15]) == pytest.approx(600 / 60 * 40 / 30)


def test_a_single_active_consumer_is_the_only_worker() -> None:
    """The others stand by, so that more of them clear nothing; the time to clear says so."""
    single = {"x-single-active-consumer": True}
    found = msgspec.structs.replace(queue(ready=600, unacked=1, consumers=19, **ALONE), arguments=single)
    assert workers(found) == 1.0
    assert workers(found, ClearingGoal(60.0, concurrency=3)) == 3.0
    assert seconds(found) == pytest.approx(600 * 15 / 30)


def test_a_sample_that_occurs_twice_counts_once() -> None:
    once = {"published": counter(*range(0, 30 * 7, 30)), **BUSY}
    twice = {name: msgspec.structs.replace(each, samples=(each.samples or []) * 2) for name, each in once.items()}
    assert workers(queue(ready=600, unacked=4, **twice)) == workers(queue(ready=600, unacked=4, **once)) == 32.0


@pytest.mark.parametrize("field", ["messages", "messages_unacknowledged", "consumers"])
def test_a_field_that_is_missing_is_an_error(field: str) -> None:
    found = msgspec.structs.replace(queue(ready=500, consumers=2), **{field: None})
    with pytest.raises(AdapterError, match=f"has no {field}") as caught:
        workers(found)
    assert caught.value.alive == (field == "consumers")


def test_the_time_is_the_goal_by_the_share_of_workers() -> None:
    """26 workers are needed: four of them take 6.5 times the goal."""
    found = queue(ready=600, unacked=4, published=counter(*range(0, 15 * 13, 15)), **BUSY)
    assert seconds(found) == pytest.approx(390.0)


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
    paths = ["/api/queues///tasks"] * 2 + ["/api/overview", "/api/nodes"]
    assert [request.path for request in stub.requests] == paths


async def test_a_broker_without_rates_is_an_error(stub, rabbit):
    recorded(stub, "none")
    answer = await asked(stub.url, rabbit, "queue_workers_to_clear", "queue=tasks,goal=60s")
    assert isinstance(answer, AdapterError)
    assert "keeps no rates" in answer.message


async def test_a_single_active_consumer_is_one_worker(stub, rabbit):
    arguments = {"x-single-active-consumer": True}
    recorded(stub, "basic", messages=9, messages_ready=9, arguments=arguments, message_stats={})
    answer = await asked(stub.url, rabbit, "queue_workers_to_clear", "queue=tasks,goal=60s")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (1_000,)
    assert "arguments.x-single-active-consumer" in stub.requests[1].query["columns"]


async def test_growth_may_be_negative(stub, rabbit):
    recorded(stub, "basic", messages_details={"avg_rate": -2.5})
    answer = await asked(stub.url, rabbit, "queue_growth", "queue=tasks")
    assert isinstance(answer, ExternalSample)
    assert answer.values == (-2_500,)


# --- A real broker ------------------------------------------------------------------------------------------------


class Work:
    """A real worker of a queue, one message at a time; it holds up to `prefetch` of them."""

    def __init__(self, broker, queue: str, seconds: float, prefetch: int = 1) -> None:
        self._connection = broker.connect()
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(queue, seconds, prefetch))
        self._thread.start()

    def _run(self, queue: str, seconds: float, prefetch: int) -> None:
        with contextlib.suppress(Exception):
            for delivery in self._connection.consume(queue, prefetch=prefetch):
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
async def working(broker, queue: str, count: int, seconds: float, prefetch: int = 1) -> AsyncIterator[None]:
    found = [await asyncio.to_thread(Work, broker, queue, seconds, prefetch) for _ in range(count)]
    try:
        yield
    finally:
        for each in found:
            await asyncio.to_thread(each.end)


@pytest.fixture
def source(broker, rabbit: Context) -> rabbitmq.RabbitMQ:
    options = {"username": "monitor", "password": "m0nitor:pw/ü", **PATIENT}
    return rabbitmq.RabbitMQ(rabbitmq.Settings(url=broker.url, **options), rabbit)


def send(broker, queue: str, count: int) -> None:
    """Publishes messages at once. The broker may drop those that it has not read when the connection is closed."""
    connection = broker.connect()
    connection.publish(queue, [b"work"] * count)
    connection.count(queue)  # answered after all that was sent before
    connection.close()


@pytest.mark.rabbitmq
async def test_a_real_broker_shows_how_many_workers_a_backlog_needs(broker, source):
    """1,200 messages of half a second wait for 3 workers: within a minute 10 are needed, up to twice as many later.

    The first estimates may be lower, for the broker samples what it counts and what it delivers at different times.
    """
    name = await broker.declare()
    [empty] = await source.answer([testing.external("queue_workers_to_clear", f"queue={name},goal=60s")])
    assert isinstance(empty, ExternalSample)
    assert empty.values == (0,)
    await asyncio.to_thread(send, broker, name, 1200)
    selector = f"queue={name},goal=60s"
    await until(source, "queue_workers_to_clear", selector, lambda answer: getattr(answer, "values", (0,)) == (1_000,))
    async with working(broker, name, 3, 0.5):
        found = await until(
            source, "queue_workers_to_clear", selector, lambda answer: getattr(answer, "values", (0,))[0] >= 6_000
        )
        [seconds] = await source.answer([testing.external("queue_time_to_clear", selector)])
    assert found.values[0] <= 20_000
    assert isinstance(seconds, ExternalSample)
    assert seconds.values[0] > 60_000


@pytest.mark.rabbitmq
async def test_a_real_long_message_counts_while_it_is_in_work(broker, source):
    """No message is finished in this test: 200 wait for one worker, and two are needed to begin with."""
    name = await broker.declare()
    await asyncio.to_thread(send, broker, name, 200)
    selector = f"queue={name},goal=60s"
    await until(source, "queue_workers_to_clear", selector, lambda answer: getattr(answer, "values", (0,)) == (1_000,))
    async with working(broker, name, 1, 900.0):
        await until(
            source, "queue_workers_to_clear", selector, lambda answer: getattr(answer, "values", (0,)) == (2_000,)
        )


@pytest.mark.rabbitmq
async def test_a_real_spike_on_a_new_queue_asks_for_what_the_formula_says(broker, source):
    """80 messages of 4 s in 20 s: 16 workers, which hold two messages each. Read until the work is done.

    Some more if the machine is so busy that they start late, but not the 32 that hold a message each.
    """
    name = await broker.declare()
    wanted: list[int] = []

    def noted(answer: Answer) -> int:
        wanted.extend(getattr(answer, "values", ()))
        return wanted[-1]

    async def read(right: Callable[[int], bool]) -> None:
        selector = f"queue={name},goal=25s,startup=5s,service_time=4s"
        await until(source, "queue_workers_to_clear", selector, lambda answer: right(noted(answer)))

    async with working(broker, name, 3, 4.0, prefetch=2):
        await read(lambda workers: workers == 0)
        await asyncio.to_thread(send, broker, name, 80)
        await read(lambda workers: workers > 3_000)
        async with working(broker, name, 13, 4.0, prefetch=2):
            await read(lambda workers: workers < 3_000)
    assert max(wanted) <= 20_000


@pytest.mark.rabbitmq
async def test_the_age_of_the_oldest_message_and_the_growth_of_a_real_queue(broker, source):
    name = await broker.declare()
    await until(source, "queue_head_age", f"queue={name}", lambda answer: getattr(answer, "values", None) == (0,))
    began = int(time.time()) - 100
    await broker.publish(name, 1, timestamp=began)
    await broker.publish(name, 1, timestamp=began + 90)
    answer = await until(
        source, "queue_head_age", f"queue={name}", lambda answer: getattr(answer, "values", (0,))[0] > 0
    )
    assert 99_000 <= answer.values[0] <= (time.time() - began + 1) * 1000
    await until(source, "queue_growth", f"queue={name}", lambda answer: getattr(answer, "values", (0,))[0] > 0)

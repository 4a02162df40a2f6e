"""Each parameter of the rabbitmq source with a real broker: modes, patterns, kinds of queues, TLS, headers."""

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping

import msgspec
import pytest
from support.brokers import PATIENT

from hpad import testing
from hpad.adapter import AdapterError, Answer, Context, ExternalSample
from hpad.lab.servers import ports
from hpad.manifests.keda import conversion, scaledobject
from hpad_adapters import rabbitmq

pytestmark = pytest.mark.rabbitmq

SETTLED = 180.0
"""Statistics are collected each five seconds; the machine may be busy with other tests."""


def adapter(broker, rabbit: Context, **changed: object) -> rabbitmq.RabbitMQ:
    options = {"url": broker.url, "username": "monitor", "password": "m0nitor:pw/ü", **PATIENT} | changed
    return rabbitmq.RabbitMQ(rabbitmq.Settings(**options), rabbit)


def metric(**fields: object) -> dict[str, rabbitmq.Metric]:
    return {"it": rabbitmq.Metric(**fields)}


async def asked(source: rabbitmq.RabbitMQ, selector: str | None = None, name: str = "it") -> Answer:
    [answer] = await source.answer([testing.external(name, selector)])
    return answer


def values(answer: Answer) -> tuple[int, ...]:
    assert isinstance(answer, ExternalSample), answer
    return answer.values


async def until(source: rabbitmq.RabbitMQ, condition: Callable[[Answer], bool], selector: str | None = None) -> Answer:
    """Reads again until the answer, which depends on the broker's statistics, fulfils the condition."""
    async with asyncio.timeout(SETTLED):
        while True:
            answer = await asked(source, selector)
            if condition(answer):
                return answer
            await asyncio.sleep(0.5)


async def all_beyond(source: rabbitmq.RabbitMQ, queue: str, least: Mapping[str, int]) -> dict[str, int]:
    """Returns the values of these modes of a queue in one batch, once each exceeds its minimum.

    The broker collects counts, rates of publishing and rates of consumers at different times.
    """
    queries = [testing.external("it", f"queue={queue},mode={mode}") for mode in least]
    found: dict[str, int] = {}
    for _ in range(round(SETTLED / 0.5)):
        answers = zip(least, await source.answer(queries), strict=True)
        found = {mode: answer.values[0] for mode, answer in answers if isinstance(answer, ExternalSample)}
        if all(mode in found and found[mode] > low for mode, low in least.items()):
            return found
        await asyncio.sleep(0.5)
    raise AssertionError(f"of {least}, the broker reports {found}")


@contextlib.asynccontextmanager
async def consumer(broker, queue: str, seconds_each: float) -> AsyncIterator[None]:
    """A real worker that takes one message at a time."""
    connection = await asyncio.to_thread(broker.connect)
    gone = threading.Event()

    def work() -> None:
        with contextlib.suppress(Exception):
            for delivery in connection.consume(queue):
                if gone.wait(seconds_each):
                    break
                connection.ack(delivery)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        gone.set()
        await asyncio.to_thread(connection._socket.shutdown, 2)  # wakes the worker, who waits for a delivery
        await asyncio.to_thread(thread.join)
        await asyncio.to_thread(connection.close)


@contextlib.asynccontextmanager
async def trickle(broker, queue: str) -> AsyncIterator[None]:
    """Two messages a second: the broker soon forgets the rate of a queue that gets none."""

    async def work() -> None:
        while True:
            await publish(broker, queue, 1)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(work())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def published(broker, queue: str, count: int) -> AsyncIterator[None]:
    """Over AMQP, for more than a few messages; by a connection that stays open meanwhile.

    RabbitMQ may lose the statistics of one that is closed before they were taken, every five seconds.
    """
    connection = await asyncio.to_thread(broker.connect)
    try:
        await asyncio.to_thread(connection.publish, queue, [b"work"] * count)
        await asyncio.to_thread(connection.count, queue)  # the broker has read what came before
        yield
    finally:
        await asyncio.to_thread(connection.close)


async def publish(broker, queue: str, count: int) -> None:
    async with published(broker, queue, count):
        pass


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_every_kind_of_queue_is_counted(broker, rabbit, kind):
    queue = await broker.declare(kind=kind)
    await publish(broker, queue, 7)
    others = ",".join(["q0001", "q0002", "q0003"])
    source = adapter(broker, rabbit)
    await until(source, lambda answer: getattr(answer, "values", ()) == (7_000,), f"queue={queue}")
    many = adapter(broker, rabbit, on_missing_queue="zero")
    everything = f"queue in ({queue},{others})"
    await until(many, lambda answer: sum(getattr(answer, "values", ())) == 7_000, everything)


async def test_a_pattern_sums_over_all_pages(broker, rabbit):
    await broker.publish("q0500", 3, "many")
    await broker.publish("q0502", 2, "many")
    all_but_one = metric(queue_regex="q.*", exclude_regex="q0007")
    source = adapter(broker, rabbit, vhost="many", page_size=200, metrics=all_but_one)
    found = values(await asked(source))
    assert (len(found), sum(found)) == (502, 5_000)
    assert values(await asked(source, "aggregate=max")) == (3_000,)


async def test_more_queues_than_max_queues_are_an_error(broker, rabbit):
    source = adapter(broker, rabbit, vhost="many", max_queues=502, page_size=200, metrics=metric(queue_regex="q.*"))
    answer = await asked(source)
    assert isinstance(answer, AdapterError)
    assert "more than 502 queues to read (max_queues)" in answer.message
    narrow = adapter(broker, rabbit, vhost="many", max_queues=10, metrics=metric(queue_regex=r"q000\d"))
    assert len(values(await asked(narrow))) == 10


async def test_a_pattern_matches_whole_names_and_minds_case(broker, rabbit):
    for name in ("orders", "dead-orders-2", "ORDERS", "orders-eu", "orders-eu-dead"):
        await broker.declare("mine", name)
    source = adapter(broker, rabbit, vhost="mine", metrics=metric(queue_regex="orders(-.*)?", exclude_regex=".*-dead"))
    assert len(values(await asked(source))) == 2
    alternatives = adapter(broker, rabbit, vhost="mine", metrics=metric(queue_regex="orders-eu|ORDERS|nothing"))
    assert len(values(await asked(alternatives))) == 2


DELAYED = (
    "jobs.DQ",
    "jobs.XQ",
    "celery_delayed_0",
    "jobs_celery_delayed_27",
    "nsb.delay-level-00",
    "nsb.v2.delay-level-27",
)
SIMILAR = ("jobs", ".DQ", "DQ", "celery_delayed", "celery_delayed_report", "nsb.v2.delay-level-100", "jobs.DQ.more")


async def test_a_pattern_leaves_out_delay_queues_and_a_name_does_not(broker, rabbit):
    """Messages that are not due, of Celery, dramatiq and NServiceBus: no worker can take them."""
    vhost, everything = "delays", {"configure": ".*", "write": ".*", "read": ".*"}
    users = ("monitor", broker.server.admin.name)
    permissions = [{"user": user, "vhost": vhost, **everything} for user in users]
    await broker.define(vhosts=[{"name": vhost}], permissions=permissions)
    for name in (*DELAYED, *SIMILAR):
        await broker.declare(vhost, name)
        await broker.publish(name, 2 if name in DELAYED else 1, vhost)
    patterns = {"everything": ".*", "delayed": ".*[DX]Q|.*delay.*"}
    source = adapter(broker, rabbit, vhost=vhost, patterns=patterns)
    assert values(await asked(source, "queue_regex=everything")) == (1_000,) * len(SIMILAR)
    assert sum(values(await asked(source, "queue_regex=delayed"))) == 5_000
    assert values(await asked(source, f"queue in ({','.join(DELAYED)})")) == (2_000,) * len(DELAYED)
    only = await asked(adapter(broker, rabbit, vhost=vhost, metrics=metric(queue_regex="celery_delayed_0|jobs[.]DQ")))
    assert isinstance(only, AdapterError)
    assert "delay queues such as celery_delayed_0 and tasks.DQ count only where they are named" in only.message


async def test_a_selector_chooses_a_configured_pattern(broker, rabbit):
    await broker.declare("mine", "chosen-1")
    await broker.declare("mine", "chosen-2")
    source = adapter(broker, rabbit, vhost="mine", patterns={"chosen": r"chosen-\d"})
    assert values(await asked(source, "queue_regex=chosen")) == (0, 0)


async def test_a_pattern_reaches_into_all_vhosts(broker, rabbit):
    for vhost in ("/", "a/b", "ü"):
        await broker.declare(vhost, "everywhere")
        await broker.publish("everywhere", 1, vhost)
    everywhere = adapter(broker, rabbit, metrics=metric(queue_regex="everywhere", vhost="*"))
    assert values(await asked(everywhere)) == (1_000, 1_000, 1_000)
    two = adapter(broker, rabbit, metrics=metric(queue="everywhere", vhost=["/", "ü"]))
    assert values(await asked(two)) == (1_000, 1_000)


@pytest.mark.parametrize(
    ("how", "expected"), [("sum", (6_000, 1_000)), ("max", (6_000,)), ("min", (1_000,)), ("avg", (3_500,))]
)
async def test_several_queues_become_one_number(broker, rabbit, how, expected):
    full, other = await broker.declare(), await broker.declare()
    await broker.publish(full, 6)
    await broker.publish(other, 1)
    source = adapter(broker, rabbit, metrics=metric(queues=[full, other], aggregate=how))
    assert values(await asked(source)) == expected


async def test_unacknowledged_messages_can_be_left_out(broker, rabbit):
    queue = await broker.declare()
    await broker.publish(queue, 5)
    async with broker.holding(queue, 2):
        counted = adapter(broker, rabbit, metrics=metric(queue=queue))
        left_out = adapter(broker, rabbit, metrics=metric(queue=queue, include_unacked=False))
        assert values(await asked(counted)) == (5_000,)
        assert values(await asked(left_out)) == (3_000,)


@pytest.mark.parametrize("selection", ["queue", "pattern"])
async def test_on_missing_queue_sets_the_value_of_a_missing_queue(broker, rabbit, selection):
    chosen = {"queue": "not-there"} if selection == "queue" else {"queue_regex": "not-there"}
    default = await asked(adapter(broker, rabbit, metrics=metric(**chosen)))
    zero = await asked(adapter(broker, rabbit, metrics=metric(**chosen, on_missing_queue="zero")))
    assert isinstance(default, AdapterError)
    assert (default.blame, values(zero)) == ("spec", (0,))
    assert 'vhost "/"' in default.message


async def test_rates_of_a_busy_consumer(broker, rabbit):
    """The backlog lasts for five minutes, because the broker reports rates late, and messages come in all the time."""
    queue, waiting = await broker.declare(), 6_000
    await publish(broker, queue, waiting)
    source = adapter(broker, rabbit, rate_window="10s")
    least = dict.fromkeys(("ack_rate", "deliver_rate", "publish_rate", "consumers", "utilisation", "drain_time"), 0)
    async with consumer(broker, queue, 0.05), trickle(broker, queue):
        found = await all_beyond(source, queue, least)
        smooth = await all_beyond(adapter(broker, rabbit, smoothing=0.3), queue, {"deliver_rate": 0})
    most = 3 * 20_000  # one each 50 ms; a busy broker may count what came in 15 s for 5 s
    assert found["ack_rate"] <= most
    assert found["deliver_rate"] <= most
    assert found["publish_rate"] <= 3 * waiting / 10 * 1_000
    assert (waiting / 2) * 1_000 / (most / 1_000) < found["drain_time"]
    assert found["consumers"] == 1_000
    assert found["utilisation"] <= 1_000
    assert smooth["deliver_rate"] <= most


async def test_a_stalled_backlog_has_no_rate_or_a_rising_one(broker, rabbit):
    queue = await broker.declare()
    keeps_on, up = (adapter(broker, rabbit, rate_window="10s", on_stalled=each) for each in ("hold", "up"))
    stalled = f'queue "{queue}" in vhost "/" of rabbitmq at {broker.url} has stalled: 50 messages wait'
    async with published(broker, queue, 50):
        for mode, rising in (
            ("deliver_rate", 50_000), ("publish_rate", 50_000), ("ack_rate", 50_000), ("drain_time", 500_000),
        ):  # fmt: skip
            selector = f"queue={queue},mode={mode}"
            # a count that is taken while messages still come in may stay, as the last one of a queue that is then idle
            end = time.monotonic() + SETTLED
            while True:
                held, risen = await asked(keeps_on, selector), await asked(up, selector)
                if getattr(held, "message", "").startswith(stalled) and getattr(risen, "values", ()) == (rising,):
                    break
                assert time.monotonic() < end, (held, risen)
                assert isinstance(await asked(keeps_on, f"queue={queue}"), ExternalSample)  # which has it counted again
                await asyncio.sleep(0.5)


async def test_the_rate_of_a_queue_without_messages_is_missing(broker, rabbit):
    queue = await broker.declare()
    answer = await asked(adapter(broker, rabbit), f"queue={queue},mode=publish_rate")
    assert isinstance(answer, AdapterError)


async def test_many_statistics_are_one_list(broker, rabbit):
    names = [f"q{number:04}" for number in range(20)]
    source = adapter(broker, rabbit, vhost="many")
    for name in names:  # a young broker has no statistics yet
        await until(source, lambda answer: isinstance(answer, ExternalSample), f"queue={name},mode=consumers")
    answers = await source.answer([testing.external("it", f"queue={name},mode=consumers") for name in names])
    assert [values(answer) for answer in answers] == [(0,)] * 20


async def test_certificates_are_checked_at_a_real_broker(broker, rabbit):
    queue = await broker.declare()
    settings_of = {"url": broker.tls_url, "ca": broker.ca, "cert": broker.client}
    for named in ({}, {"server_name": "broker.example.com"}):
        assert values(await asked(adapter(broker, rabbit, **settings_of, **named), f"queue={queue}")) == (0,)
    other = await asked(adapter(broker, rabbit, **settings_of, server_name="other.example.com"), f"queue={queue}")
    assert isinstance(other, AdapterError)
    assert other.message.startswith(f"rabbitmq at {broker.tls_url} has a certificate that is not trusted (")
    unknown = await asked(adapter(broker, rabbit, **{**settings_of, "ca": ""}), f"queue={queue}")
    assert "not trusted" in unknown.message
    trusting = adapter(broker, rabbit, **{**settings_of, "ca": ""}, insecure=True)
    assert values(await asked(trusting, f"queue={queue}")) == (0,)


async def test_headers_come_from_files_and_variables(stub, rabbit, tmp_path, monkeypatch):
    (tmp_path / "key").write_text("from-a-file\n")
    monkeypatch.setenv("TENANT", "from-the-environment")
    stub.answers('{"name": "q", "messages": 1, "messages_ready": 1, "messages_unacknowledged": 0}')
    headers = {"X-Plain": "plain", "X-Key": {"file": str(tmp_path / "key")}, "X-Tenant": {"env": "TENANT"}}
    settings = rabbitmq.RabbitMQ.Settings
    source = rabbitmq.RabbitMQ(msgspec.convert({"url": stub.url, "headers": headers, **PATIENT}, settings), rabbit)
    assert values(await asked(source, "queue=q")) == (1_000,)
    sent = stub.requests[0].headers
    assert [sent[name] for name in headers] == ["plain", "from-a-file", "from-the-environment"]
    (tmp_path / "key").write_text("two\nlines")
    answer = await asked(source, "queue=q")
    assert "headers: X-Key: the value contains a line break" in answer.message
    assert "two" not in answer.message


async def test_the_node_that_answered_is_tried_first(broker, rabbit, stub):
    queue = await broker.declare()
    stub.answers(status=503)
    dead = f"http://127.0.0.1:{ports.free(1)[0]}"
    source = adapter(broker, rabbit, url=[dead, stub.url, broker.url])
    for _ in range(2):
        assert values(await asked(source, f"queue={queue}")) == (0,)
    assert len(stub.requests) == 1


async def test_a_converted_keda_trigger_reads_a_real_broker(broker, rabbit):
    """The pattern matches any part of a name, in any case, as in KEDA."""
    for name, count in (("keda-ORDERS-1", 2), ("keda-orders-2", 3), ("keda-other", 5)):
        await broker.declare("mine", name)
        await broker.publish(name, count, "mine")
    metadata = {"host": f"{broker.url}/mine", "queueName": "eda-orders-", "useRegex": "true", "value": "20"}
    found = scaledobject.convert(
        {
            "metadata": {"name": "worker"},
            "spec": {
                "scaleTargetRef": {"name": "worker"},
                "triggers": [{"type": "rabbitmq", "metadata": {**metadata, "mode": "QueueLength"}}],
            },
        }
    )
    [(name, settings_of)] = conversion.settings_document([found])["sources"].items()
    own = {key: value for key, value in settings_of.items() if key not in ("adapter", "namespaces", "match")}
    credentials = {"username": "monitor", "password": "m0nitor:pw/ü"}
    source = rabbitmq.RabbitMQ(msgspec.convert(own | credentials | PATIENT, rabbitmq.Settings), rabbit)
    [metric] = found.hpa["spec"]["metrics"]
    answer = await asked(source, None, metric["external"]["metric"]["name"])
    assert name == "rabbitmq-127.0.0.1"
    assert sorted(values(answer)) == [2_000, 3_000]

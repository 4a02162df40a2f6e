"""The age of the oldest message: units of timestamps, and queues that a real broker reports no age of."""

import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.brokers import PATIENT
from support.rabbit_queues import queue, until

from hpad.adapter import AdapterError, Context
from hpad_adapters import rabbitmq
from hpad_adapters.rabbitmq.queues import RabbitmqQueue
from hpad_adapters.rabbitmq.values import head_age

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
SECONDS = int(NOW.timestamp())


def with_head(stamp: object, ready: int = 5, **fields: object) -> RabbitmqQueue:
    return msgspec.structs.replace(queue(ready=ready), head_message_timestamp=stamp, **{"type": "classic", **fields})


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("age", [0, 1, 300, 86_400, 15 * 365 * 86_400])
def test_a_timestamp_counts_in_the_unit_that_it_has(unit: int, age: int) -> None:
    """AMQP says seconds; clients that pass the milliseconds of JavaScript, or nanoseconds, are read as well."""
    assert head_age(with_head((SECONDS - age) * unit), NOW, "the broker") == pytest.approx(age)


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_a_clock_that_is_somewhat_ahead_gives_no_age(unit: int) -> None:
    assert head_age(with_head((SECONDS + 290) * unit), NOW, "the broker") == 0.0


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("ahead", [310, 3_600, 400 * 86_400])
def test_a_timestamp_in_the_future_is_an_error(unit: int, ahead: int) -> None:
    with pytest.raises(AdapterError) as caught:
        head_age(with_head((SECONDS + ahead) * unit), NOW, "the broker")
    moment = f"{NOW + timedelta(seconds=ahead):%Y-%m-%dT%H:%M:%SZ}"
    assert f"({moment}) is {ahead}s ahead of hpad's clock" in str(caught.value)
    assert caught.value.blame == "spec"


@pytest.mark.parametrize("stamp", [0, 1, -SECONDS, 86_400, 10**9 - 1, 10**11, 10**12 - 1, 10**14, 10**17])
def test_a_number_that_is_no_time_is_an_error(stamp: int) -> None:
    with pytest.raises(AdapterError, match=f"the timestamp {stamp} of the oldest message is no time since 2001"):
        head_age(with_head(stamp), NOW, "the broker")


@pytest.mark.parametrize(
    ("stamp", "fields", "error"),
    [
        (None, {}, "did not set the property timestamp, or the broker holds that message on disk only"),
        ("", {}, "did not set the property timestamp"),
        (SECONDS, {"arguments": {"x-max-priority": 10}}, "has priorities (x-max-priority)"),
        (SECONDS, {"type": "quorum"}, "only classic queues report it, and this is a quorum queue"),
        (SECONDS, {"type": "rabbit_mqtt_qos0_queue"}, "this is a rabbit_mqtt_qos0_queue queue"),
    ],
)
def test_a_queue_that_cannot_have_an_age_says_why(stamp: object, fields: dict[str, object], error: str) -> None:
    """Also while it is empty, except for what only a message shows: nobody finds out under load."""
    with pytest.raises(AdapterError) as caught:
        head_age(with_head(stamp, **fields), NOW, "the broker")
    assert error in str(caught.value)
    assert caught.value.blame == "spec"
    if fields:
        with pytest.raises(AdapterError):
            head_age(with_head(stamp, 0, **fields), NOW, "the broker")
    else:
        assert head_age(with_head(stamp, 0), NOW, "the broker") == 0.0


KINDS: dict[str, tuple[dict[str, object], str]] = {
    "lazy": ({"x-queue-mode": "lazy"}, "holds that message on disk only, as lazy queues do"),
    "priority": ({"x-max-priority": 10}, "has priorities (x-max-priority)"),
    "quorum": ({"x-queue-type": "quorum"}, "this is a quorum queue"),
    "version-2": ({"x-queue-version": 2}, ""),
    "plain": ({}, ""),
}


@pytest.mark.rabbitmq
@pytest.mark.parametrize("listed", [False, True], ids=["alone", "in a list"])
async def test_real_queues_have_an_age_or_say_why_not(broker, rabbit: Context, listed: bool) -> None:
    """Five messages, published five minutes ago by their timestamps in milliseconds."""
    names = {kind: f"aged-{kind}-{listed}" for kind in KINDS}
    common = {"vhost": "/", "durable": True, "auto_delete": False}
    await broker.define(queues=[{"name": names[kind], **common, "arguments": KINDS[kind][0]} for kind in KINDS])
    began = int(time.time()) - 300
    metrics = {kind: rabbitmq.Metric(queue_regex=f"{name}|none") for kind, name in names.items()} if listed else {}
    metrics = {kind: msgspec.structs.replace(metric, mode="head_age") for kind, metric in metrics.items()}
    for name in names.values():
        await broker.publish(name, 5, timestamp=began * 1000)
    options = {"username": "monitor", "password": "m0nitor:pw/ü", **PATIENT}
    source = rabbitmq.RabbitMQ(rabbitmq.Settings(url=broker.url, metrics=metrics, **options), rabbit)
    for kind, (_, error) in KINDS.items():
        name, selector = (kind, None) if listed else ("queue_head_age", f"queue={names[kind]}")
        if kind == "lazy" and await broker.version() >= (4,):
            continue  # the mode has no effect any more
        if error:
            await until(source, name, selector, lambda answer, error=error: error in getattr(answer, "message", ""))
        else:
            found = await until(source, name, selector, lambda answer: getattr(answer, "values", (0,))[0] > 0)
            assert 299_000 <= found.values[0] <= (time.time() - began + 1) * 1000


@pytest.mark.rabbitmq
async def test_the_oldest_message_counts_also_while_a_consumer_holds_it(broker, rabbit: Context) -> None:
    name, began = await broker.declare(), int(time.time())
    for age in (600, 60):
        await broker.publish(name, 1, timestamp=began - age)
    options = {"username": "monitor", "password": "m0nitor:pw/ü", **PATIENT}
    source = rabbitmq.RabbitMQ(rabbitmq.Settings(url=broker.url, **options), rabbit)
    async with broker.holding(name, 1):
        held = "queue_messages_unacknowledged"
        await until(source, held, f"queue={name}", lambda answer: getattr(answer, "values", None) == (1_000,))
        found = await until(
            source, "queue_head_age", f"queue={name}", lambda answer: getattr(answer, "values", (0,))[0] > 0
        )
    assert found.values[0] >= 599_000

"""The PromQL of a queue's past, in the series of RabbitMQ 3.10.8 and 4.0.5; on a real Prometheus."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import prometheus_lab as lab

from hpad import testing
from hpad.adapter import AdapterError, PastPromQL
from hpad.lab.servers.prometheus import PrometheusServer
from hpad_adapters.celery import Celery
from hpad_adapters.rabbitmq import RabbitMQ

pytestmark = pytest.mark.prometheus
WINDOW = timedelta(minutes=2)
OLD = 'channel="<0.858.0>",queue_vhost="/",queue="{}",exchange_vhost="/",exchange=""'
CHANNEL = 'channel="<0.858.0>",vhost="/",queue="{}"'


def samples(name: str, labels: str, begin: float, per_second: float = 0.0) -> list[str]:
    return [f"{name}{{{labels}}} {begin + per_second * (600 - age)} {lab.NOW - age}" for age in range(600, -1, -15)]


def families() -> Iterator[tuple[str, list[str]]]:
    """The queue `three` as RabbitMQ 3 shows it at /metrics/per-object, `four` as RabbitMQ 4 at /metrics/detailed."""
    of = '{}="{}",queue="{}"'
    for prefix, queue in (("rabbitmq_", "three"), ("rabbitmq_detailed_", "four")):
        for vhost, ready in (("/", 12), ("other", 1000)):
            labels = of.format("vhost", vhost, queue)
            yield f"{prefix}queue_messages_ready", samples(f"{prefix}queue_messages_ready", labels, ready)
            yield f"{prefix}queue_messages_unacked", samples(f"{prefix}queue_messages_unacked", labels, 3)
            yield f"{prefix}queue_messages", samples(f"{prefix}queue_messages", labels, ready + 10)
    published, acked = "queue_messages_published", "channel_messages_acked"
    yield f"rabbitmq_{published}", samples(f"rabbitmq_{published}_total", OLD.format("three"), 0, 5)
    yield f"rabbitmq_{acked}", samples(f"rabbitmq_{acked}_total", CHANNEL.format("three"), 0, 4)
    # RabbitMQ 4 counts by queue and by channel; the channel is younger.
    four = 'vhost="/",queue="four"'
    exchanged, settled = "rabbitmq_detailed_queue_exchange_messages_published", "rabbitmq_detailed_queue_messages_acked"
    yield exchanged, samples(f"{exchanged}_total", f'{four},exchange=""', 100, 8)
    yield settled, samples(f"{settled}_total", four, 100, 7)
    yield f"rabbitmq_detailed_{published}", samples(f"rabbitmq_detailed_{published}_total", OLD.format("four"), 0, 2)
    yield f"rabbitmq_detailed_{acked}", samples(f"rabbitmq_detailed_{acked}_total", CHANNEL.format("four"), 0, 1)


@pytest.fixture(scope="module")
def server() -> Iterator[PrometheusServer]:
    grouped: dict[str, list[str]] = {}
    for family, lines in families():
        grouped.setdefault(family, []).extend(lines)
    body = [
        line
        for family, lines in grouped.items()
        for kind in ["counter" if lines[0].startswith(f"{family}_total") else "gauge"]
        for line in (f"# TYPE {family} {kind}", *lines)
    ]
    yield from lab.serve("\n".join([*body, "# EOF", ""]))


async def past(name: str, selector: str = "", **options: Any) -> PastPromQL:
    settings = msgspec.convert({"url": "http://mq:15672", **options}, RabbitMQ.Settings)
    async with testing.context("mq") as context:
        return await RabbitMQ(settings, context).past(testing.external(name, selector or None), WINDOW)


async def value(server: PrometheusServer, expression: str) -> float | None:
    found = await lab.evaluated(server, expression)
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize(("queue", "published", "acked"), [("three", 5, 4), ("four", 8, 7)])
async def test_the_backlog_and_its_rates(server: PrometheusServer, queue: str, published: float, acked: float) -> None:
    found = await past("queue_messages", f"queue={queue}")
    assert await value(server, found.values) == 15
    assert await value(server, found.published) == pytest.approx(published)
    assert await value(server, found.acked) == pytest.approx(acked)


async def test_a_queue_that_nothing_exports_is_a_gap(server: PrometheusServer) -> None:
    found = await past("queue_messages", "queue=five")
    assert [await value(server, each) for each in (found.values, found.published, found.acked)] == [None] * 3


async def test_modes_vhosts_and_several_queues(server: PrometheusServer) -> None:
    ready = await past("queue_messages_ready", "queue=three,vhost=other")
    assert await value(server, ready.values) == 1000
    assert await value(server, (await past("queue_messages_unacknowledged", "queue=four")).values) == 3
    both = {"queues": ["four", "none"], "mode": "ready", "aggregate": "max", "vhost": ["/", "other"]}
    largest = await past("mine", metrics={"mine": both})
    assert await value(server, largest.values) == 1000
    assert (largest.published, largest.acked) == ("", "")
    rate = await past("mine", metrics={"mine": {"queue": "four", "mode": "ack_rate"}})
    assert await value(server, rate.values) == pytest.approx(7)


async def test_unacknowledged_messages_alone_are_no_backlog() -> None:
    found = await past("queue_messages_unacknowledged", "queue=four")
    assert (found.published, found.acked) == ("", "")


async def test_names_are_escaped() -> None:
    found = await past("mine", metrics={"mine": {"queues": ['a"b', "c.d"], "vhost": "v\\w"}})
    assert 'queue=~"a\\"b|c\\\\.d"' in found.values
    assert 'vhost="v\\\\w"' in found.values


@pytest.mark.parametrize(
    ("name", "metric", "text"),
    [
        ("queue_workers_to_clear", None, "RabbitMQ exports no series of workers_to_clear: write its PromQL into the"),
        ("mine", {"queue_regex": "a.*"}, "the queues of a pattern are not known by their names: write"),
        ("stream_lag", None, "no series has the lag of a group behind a stream"),
    ],
)
async def test_what_no_series_has(name: str, metric: dict[str, Any] | None, text: str) -> None:
    selector = {"queue_workers_to_clear": "queue=a,goal=60s", "stream_lag": "stream=s,group=g"}.get(name, "")
    options = {"metrics": {"mine": metric}} if metric else {"stream_url": "rabbitmq-stream://mq:5552"}
    with pytest.raises(AdapterError, match=re.escape(text)):
        await past(name, selector, **options)


async def test_celery_over_rabbitmq_has_that_of_its_queues(server: PrometheusServer) -> None:
    async with testing.context("celery") as context:
        broker = {"rabbitmq": {"url": "http://mq:15672"}}
        celery = Celery(msgspec.convert(broker, Celery.Settings), context)
        found = await celery.past(testing.external("celery_tasks", "queue=four"), WINDOW)
        assert await value(server, found.values) == 15
        await celery.aclose()
        over_redis = Celery(msgspec.convert({"redis": {"url": "redis://r:6379/0"}}, Celery.Settings), context)
        with pytest.raises(AdapterError, match="Redis exports no series of its queues"):
            await over_redis.past(testing.external("celery_tasks", "queue=four"), WINDOW)
        await over_redis.aclose()

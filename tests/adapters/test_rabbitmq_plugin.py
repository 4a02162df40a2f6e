"""The answers of rabbitmq_prometheus: one for each node, shared by calls, and each fault with its own error."""

import asyncio

import msgspec
import pytest
from aiohttp import web
from support import http_stub
from support.http_stub import Stub

from hpad import testing
from hpad.adapter import AdapterError, Context
from hpad.adapter_http import HttpOptions
from hpad_adapters.rabbitmq.plugin import MIXED_SECONDS, NodeMetrics, Plugin

FAMILIES = ("queue_consumer_count", "queue_coarse_metrics")
PORT = "its plugin rabbitmq_prometheus must be enabled"


def metrics(node: str, *lines: str) -> str:
    known = "# TYPE rabbitmq_detailed_queue_consumers gauge\n# HELP rabbitmq_detailed_queue_consumers Consumers\n"
    return known + "\n".join((*lines, f'rabbitmq_identity_info{{rabbitmq_node="{node}"}} 1', ""))


def plugin(context: Context, *urls: str) -> Plugin:
    return Plugin(urls, HttpOptions(timeout=60.0), context)


async def test_reads_each_node_once_for_calls_that_ask_for_the_same(stub: Stub, context: Context) -> None:
    stub.answers(metrics("rabbit@a", 'rabbitmq_detailed_queue_consumers{vhost="/",queue="q"} 2', "telemetry 1"))
    reader = plugin(context, stub.url)
    first, second = await asyncio.gather(reader.scrape(FAMILIES, "/"), reader.scrape(FAMILIES[::-1], "/"))
    [node] = first
    assert second == first
    assert (node.node, list(node.series)[:1]) == ("rabbit@a", ["rabbitmq_detailed_queue_consumers"])
    [consumers] = node.of("queue_consumers")
    assert (consumers.labels, consumers.value) == ({"vhost": "/", "queue": "q"}, 2.0)
    assert (node.has("queue_consumers"), node.has("queue_messages"), node.of("queue_messages")) == (True, False, ())
    [request] = stub.requests
    assert request.path_qs == "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&vhost=%2F"
    await reader.scrape(FAMILIES)
    assert [each.path_qs.count("vhost") for each in stub.requests] == [1, 0]


async def test_reads_again_after_a_second(stub: Stub) -> None:
    clock = http_stub.SetClock()
    async with testing.context("rabbit", clock=clock) as context:
        stub.answers(metrics("rabbit@a"))
        reader = plugin(context, stub.url)
        for seconds in (0.5, 0.5, 0.5):
            await reader.scrape(FAMILIES)
            clock.seconds += seconds
    assert len(stub.requests) == 2


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"body": "not found", "status": 404}, "it has no /metrics/detailed, which RabbitMQ has from 3.10 on"),
        ({"body": "", "status": 406}, r"answers 406: .* address of the plugin \(port 15692\)"),
        ({"status": 401}, r"refused the user \(401\)"),
        ({"status": 503}, "answers 503"),
        ({"body": "<html>"}, 'other than metrics: the line "<html>" is not a sample'),
        ({"body": b"\xff"}, "it is not UTF-8"),
        ({"body": "up 1\n"}, "does not say which node it is"),
        ({"body": metrics("")}, "does not say which node it is"),
    ],
)
async def test_names_what_is_wrong(stub: Stub, context: Context, answer: dict[str, object], error: str) -> None:
    stub.answers(**answer)
    with pytest.raises(AdapterError, match=error):
        await plugin(context, stub.url).scrape(FAMILIES)


async def test_one_node_that_does_not_answer_fails_a_scrape_and_not_the_others(stub: Stub, context: Context) -> None:
    stub.answers(metrics("rabbit@a"))
    reader = plugin(context, stub.url, "http://127.0.0.1:1")
    with pytest.raises(AdapterError, match=f"127.0.0.1:1 refused the connection: {PORT}"):
        await reader.scrape(FAMILIES)
    found, error = await reader.nodes(FAMILIES)
    assert isinstance(found, NodeMetrics)
    assert isinstance(error, AdapterError)


async def test_refuses_a_load_balancer(stub: Stub) -> None:
    clock, names = http_stub.SetClock(), iter("aabbbb")

    async def balanced(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=metrics(f"rabbit@{next(names)}"))

    stub.handler = balanced
    async with testing.context("rabbit", clock=clock) as context:
        reader = plugin(context, stub.url)
        for refused in (False, False, True, True):
            [answer] = await reader.nodes(FAMILIES)
            assert isinstance(answer, AdapterError) is refused
            clock.seconds += 5
        assert "answers as rabbit@a and as rabbit@b, as a load balancer does" in str(answer)
        clock.seconds += MIXED_SECONDS
        [answer] = await reader.nodes(FAMILIES)
        assert isinstance(answer, NodeMetrics)


async def test_refuses_two_addresses_of_one_node(stub: Stub, context: Context) -> None:
    stub.answers(metrics("rabbit@a"))
    reader = plugin(context, stub.url, stub.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(AdapterError, match=r"localhost.* is node rabbit@a, as http://127.*one address for each node"):
        await reader.scrape(FAMILIES)


async def test_refuses_an_answer_that_is_too_long(stub: Stub, context: Context) -> None:
    stub.answers(metrics("rabbit@a") * 100)
    reader = Plugin([stub.url], msgspec.structs.replace(HttpOptions(), max_bytes=1000), context)
    with pytest.raises(AdapterError, match=r"answers more than max_bytes \(1000\)$"):
        await reader.scrape(FAMILIES)

"""Fuzz targets of server responses: watches, objects, metrics lists, and Prometheus and RabbitMQ over loopback."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import structlog.testing
from aiohttp import web

from hpad import testing
from hpad.adapter import Adapter, AdapterError, Query
from hpad.api.wire import UNDECODABLE
from hpad.kube import errors, hpas, pods, scale, watch
from hpad.sources import call
from hpad_adapters.http_json import documents
from hpad_adapters.metrics_apis import CustomMetrics, ExternalMetrics, MetricsServer
from hpad_adapters.prometheus import Prometheus
from hpad_adapters.rabbitmq import RabbitMQ

Check = Callable[[bytes], None]


def watched(data: bytes) -> None:
    """A stream gives the same lines however it is split, and drops an incomplete last line."""
    whole = list(watch.Lines().feed(data))
    assert whole == [line for line in data.split(b"\n")[:-1] if line.strip()]
    rng, lines, found, rest = random.Random(len(data)), watch.Lines(), list[bytes](), data
    while rest:
        size = rng.choice((1, 2, 7, 100, 4096))
        found += lines.feed(rest[:size])
        rest = rest[size:]
    assert found == whole
    for line in whole:
        with contextlib.suppress(errors.ApiError):
            change = watch.decode(line)
            for decode in (hpas.hpa, pods.pod, watch.meta):
                with contextlib.suppress(*UNDECODABLE):
                    decode(change.object)


def objects(data: bytes) -> None:
    """Each decoder returns a value or raises one of UNDECODABLE; a page has a resourceVersion."""
    for decode in (hpas.hpa, pods.pod, scale.target, scale.replication_controller, watch.meta):
        with contextlib.suppress(*UNDECODABLE):
            decode(data)
    with contextlib.suppress(errors.ApiError):
        assert watch.page(data).metadata.resource_version
    assert errors.from_answer(500, data, {"Retry-After": data[:20].decode("latin-1")}).status
    errors.from_event(data)


_GROUPS = (
    b'{"groups": [{"name": "custom.metrics.k8s.io", "versions": [{"groupVersion": "custom.metrics.k8s.io/v1beta2"}]}]}'
)


class _Api:
    """An API server with custom metrics, which answers all other requests with the input."""

    def __init__(self) -> None:
        self.body = b""

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        return _GROUPS if path == "/apis" else self.body


@contextlib.contextmanager
def metrics_lists() -> Iterator[Check]:
    """Checks that the adapters of the three metrics APIs keep their contract with any list."""
    api = _Api()
    asked = {
        MetricsServer: [testing.resource("cpu", "app=web"), testing.container_resource("cpu", "app", "app=web")],
        CustomMetrics: [testing.pods_metric("rps", "app=web"), testing.object_metric("depth", "Service", "web")],
        ExternalMetrics: [testing.external("depth", "queue=a")],
    }

    async def opened(stack: contextlib.AsyncExitStack) -> list[tuple[Adapter, Sequence[Query]]]:
        context = await stack.enter_async_context(testing.context("lists", api=api))
        return [(kind(msgspec.convert({}, kind.Settings), context), queries) for kind, queries in asked.items()]

    def answer(body: bytes) -> None:
        api.body = body

    with _answering(opened, answer) as check:
        yield check


@contextlib.contextmanager
def prometheus() -> Iterator[Check]:
    """Checks Prometheus with any response of its HTTP API."""
    recipes = {
        "plain": {"query": "x"},
        "zero": {"query": "x", "empty": "zero"},
        "sum": {"query": "x", "reduce": "sum"},
        "avg": {"query": "x", "reduce": "avg"},
        "windowed": {"query": "x", "window": {"reduce": "sum"}},
    }
    page = _Page("application/json")

    async def opened(stack: contextlib.AsyncExitStack) -> list[tuple[Adapter, Sequence[Query]]]:
        url = await stack.enter_async_context(page.served())
        context = await stack.enter_async_context(testing.context("prom"))
        settings = msgspec.convert({"url": url, "metrics": recipes}, Prometheus.Settings)
        queries = [testing.external(name) for name in recipes]
        queries += [testing.object_metric(name, "Service", "web") for name in recipes]
        return [(Prometheus(settings, context), queries)]

    with _answering(opened, page.says) as check:
        yield check


_PATHS = [documents.steps(path) for path in ("", "jobs[*].n", "jobs[#]", "all.jobs[*].n", "all.@max", "text")]
_SERIES = [documents.selector(path) for path in ("jobs", 'jobs{queue=~"m.*",state!=""}')]


def http_documents(data: bytes) -> None:
    """Checks documents of `http-json` in each format."""
    for format in ("json", "xml", "yaml"):
        with contextlib.suppress(AdapterError):
            tree = documents.tree(format, data, "the server", 1000)
            for path in _PATHS:
                with contextlib.suppress(documents.NoNumberError):
                    assert all(isinstance(number, int) for number in documents.numbers(tree, path))
    for series in _SERIES:
        with contextlib.suppress(documents.NoNumberError):
            assert documents.values(data, series, 1000)


@contextlib.contextmanager
def rabbitmq() -> Iterator[Check]:
    """Checks RabbitMQ with any response of its management API, with and without smoothing."""
    page = _Page("application/json")
    with _answering(lambda stack: _rabbitmq(stack, page), page.says) as check:
        yield check


async def _rabbitmq(stack: contextlib.AsyncExitStack, page: "_Page") -> list[tuple[Adapter, Sequence[Query]]]:
    url = await stack.enter_async_context(page.served())
    context = await stack.enter_async_context(testing.context("rabbit"))
    modes = ("messages", "drain_time", "utilisation", "ack_rate")
    queries = [testing.external("queue_messages", f"queue=work,mode={mode}") for mode in modes]
    queries.append(testing.external("queue_messages", "queue in (work,a,b,c)"))
    found: list[tuple[Adapter, Sequence[Query]]] = []
    for smoothing in (0.0, 0.5):
        settings = msgspec.convert({"url": url, "smoothing": smoothing}, RabbitMQ.Settings)
        found.append((RabbitMQ(settings, context), queries))
    return found


class _Page:
    """A server on loopback that answers all requests with the input."""

    def __init__(self, content_type: str) -> None:
        self._type = content_type
        self._body = b""

    def says(self, body: bytes) -> None:
        self._body = body

    @contextlib.asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        runner = web.ServerRunner(web.Server(self._answer, access_log=None), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=self._body, content_type=self._type)


Opened = Callable[[contextlib.AsyncExitStack], Awaitable[list[tuple[Adapter, Sequence[Query]]]]]


@contextlib.contextmanager
def _answering(opened: Opened, says: Callable[[bytes], None]) -> Iterator[Check]:
    """Yields a check that each adapter gives one answer of the right type per query, with any response."""
    with asyncio.Runner() as runner, structlog.testing.capture_logs():
        stack = contextlib.AsyncExitStack()

        async def ask(data: bytes, asked: list[tuple[Adapter, Sequence[Query]]]) -> None:
            says(data)
            for adapter, queries in asked:
                raw: Any = await adapter.answer(queries)
                for query, answer in zip(queries, call.checked("fuzzed", queries, raw), strict=True):
                    bug = isinstance(answer, AdapterError) and answer.blame == "bug"
                    assert not bug, f"{type(adapter).__name__}, {query.type} {query.name}: {answer}"

        found = runner.run(opened(stack))
        try:
            yield lambda data: runner.run(ask(data, found))
        finally:
            runner.run(stack.aclose())

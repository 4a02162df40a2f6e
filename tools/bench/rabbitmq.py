"""Benchmark of a thousand queues of one RabbitMQ: `python tools/bench/rabbitmq.py`.

One vhost and a queue per HPA, queried in one batch as the HPAs of one tick do. Prints requests per tick and CPU time of
this process per metric for each way to read, and fails if a way takes more requests than it needs; needs Debian's
rabbitmq-server. `--short` uses 20 queues.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Literal, NamedTuple

import aiohttp
import structlog

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context, ExternalSample, Query
from hpad.lab.servers import ports, rabbitmq
from hpad_adapters.rabbitmq import Metric, RabbitMQ
from hpad_adapters.rabbitmq.plugin import FRESH_SECONDS

SHORT = "--short" in sys.argv[1:]
QUEUES = 20 if SHORT else 1_000
PAGES = 2
TICKS = 2 if SHORT else 5
COLLECTED_SECONDS = 120  # statistics are collected every five seconds, later on a busy machine
EACH = tuple(f"queue=q{number}" for number in range(QUEUES))


class Method(NamedTuple):
    """A way to read all queues: the selectors (None: a pattern for all queues), and the requests per tick."""

    name: str
    selectors: Sequence[str | None]
    requests: int
    source: Literal["management", "prometheus"] = "management"


METHODS = (
    Method("counts, one queue each", EACH, PAGES),
    Method("rates, one queue each", [f"{each},mode=consumers" for each in EACH], PAGES),
    # a list with counts lacks queues that do not answer in time, so the list of names is read too
    Method("one pattern over all", [None], 2 * PAGES),
    Method("counts by the plugin", EACH, 1, "prometheus"),
    Method("rates by the plugin", [f"{each},mode=consumers" for each in EACH], 1, "prometheus"),
)


async def collected(adapter: RabbitMQ, queries: Sequence[Query]) -> None:
    """Waits until the broker has statistics of each queue."""
    async with asyncio.timeout(COLLECTED_SECONDS):
        while True:
            if all(isinstance(answer, ExternalSample) for answer in await adapter.answer(queries)):
                return
            await asyncio.sleep(0.5)


async def measured(adapter: RabbitMQ, queries: Sequence[Query], requests: list[str], allowed: int) -> str:
    """Returns the results as text; raises AssertionError on an error or more than `allowed` requests per tick."""
    cpu, wall = [], []
    for _ in range(TICKS):
        await asyncio.sleep(FRESH_SECONDS)
        requests.clear()
        busy, started = time.process_time(), time.perf_counter()
        answers = await adapter.answer(queries)
        cpu.append(time.process_time() - busy)
        wall.append(time.perf_counter() - started)
        assert all(isinstance(answer, ExternalSample) for answer in answers), answers[0]
        assert len(requests) <= allowed, requests
    return (
        f"{len(requests)} request(s) per tick, {statistics.median(cpu) / QUEUES * 1e6:.1f} us of CPU per queue, "
        f"{statistics.median(wall) * 1e3:.0f} ms per tick"
    )


async def main() -> None:
    """Starts a broker, queries it, and prints the results."""
    requests: list[str] = []

    async def note(session: object, context: object, parameters: aiohttp.TraceRequestStartParams) -> None:
        requests.append(str(parameters.url))

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(note)
    (metrics_port,) = ports.free(1)
    broker = rabbitmq.RabbitMQServer(
        queues=[rabbitmq.Queue(f"q{number}") for number in range(QUEUES)],
        plugins=("rabbitmq_prometheus",),
        configuration=("prometheus.tcp.ip = 127.0.0.1", f"prometheus.tcp.port = {metrics_port}"),
    )
    urls = {"management": broker.management_url, "prometheus": f"http://127.0.0.1:{metrics_port}"}
    async with broker, aiohttp.ClientSession(trace_configs=[trace]) as http:
        context = Context(name="bench", http=http, clock=clocks.SystemClock(), log=structlog.get_logger())
        for method in METHODS:
            settings = RabbitMQ.Settings(
                url=urls[method.source],
                source=method.source,
                page_size=QUEUES // PAGES,
                username=broker.admin.name,
                password=broker.admin.password,
                metrics={"depth": Metric(queue_regex="q.*")} if None in method.selectors else {},
            )
            queries = [testing.external("depth", selector) for selector in method.selectors]
            adapter = RabbitMQ(settings, context)
            await collected(adapter, queries)
            figures = await measured(adapter, queries, requests, method.requests)
            print(f"rabbitmq: {QUEUES:,} queues, {method.name}: {figures}")


if __name__ == "__main__":
    if rabbitmq.RabbitMQServer.installed():
        asyncio.run(main())
    else:
        print(f"rabbitmq: skipped: {rabbitmq.ABSENT}")

"""What a thousand queues of one RabbitMQ cost: `python tools/bench/rabbitmq.py`.

One vhost, a queue per HPA, asked as the HPAs of one tick ask. Prints requests per tick and CPU per metric (of this
process) for each way to read, and fails where it takes more requests than the way needs; needs Debian's
rabbitmq-server. `--short` takes 20 queues.
"""

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import aiohttp
import structlog

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context, ExternalSample, Query
from hpad.lab.servers import rabbitmq
from hpad_adapters.rabbitmq import Metric, RabbitMQ

SHORT = "--short" in sys.argv[1:]
QUEUES = 20 if SHORT else 1_000
PAGES = 2
TICKS = 2 if SHORT else 5
COLLECTED_SECONDS = 120  # statistics are collected each five seconds, on a machine that has the time
EACH = tuple(f"queue=q{number}" for number in range(QUEUES))


class Way(NamedTuple):
    """One way to read all queues, with the selectors (None: a pattern over all) and how many requests a tick takes."""

    name: str
    selectors: Sequence[str | None]
    requests: int


WAYS = (
    Way("counts, one queue each", EACH, PAGES),
    Way("rates, one queue each", [f"{each},mode=consumers" for each in EACH], PAGES),
    # A list with counts leaves out queues that do not answer in time; the list of names, read as well, has them all.
    Way("one pattern over all", [None], 2 * PAGES),
)


async def collected(adapter: RabbitMQ, queries: Sequence[Query]) -> None:
    """Wait until the broker has counted every queue."""
    async with asyncio.timeout(COLLECTED_SECONDS):
        while True:
            if all(isinstance(answer, ExternalSample) for answer in await adapter.answer(queries)):
                return
            await asyncio.sleep(0.5)


async def measured(adapter: RabbitMQ, queries: Sequence[Query], requests: list[str], allowed: int) -> str:
    """A line of figures; raises AssertionError where an answer is an error or a tick takes more requests than that."""
    cpu, wall = [], []
    for _ in range(TICKS):
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
    """Start a broker, ask, print."""
    requests: list[str] = []

    async def note(session: object, context: object, parameters: aiohttp.TraceRequestStartParams) -> None:
        requests.append(str(parameters.url))

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(note)
    broker = rabbitmq.RabbitMQServer(queues=[rabbitmq.Queue(f"q{number}") for number in range(QUEUES)])
    async with broker, aiohttp.ClientSession(trace_configs=[trace]) as http:
        context = Context(name="bench", http=http, clock=clocks.SystemClock(), log=structlog.get_logger())
        for way in WAYS:
            settings = RabbitMQ.Settings(
                url=broker.management_url,
                page_size=QUEUES // PAGES,
                username=broker.admin.name,
                password=broker.admin.password,
                metrics={"depth": Metric(queue_regex="q.*")} if None in way.selectors else {},
            )
            queries = [testing.external("depth", selector) for selector in way.selectors]
            adapter = RabbitMQ(settings, context)
            await collected(adapter, queries)
            figures = await measured(adapter, queries, requests, way.requests)
            print(f"rabbitmq: {QUEUES:,} queues, {way.name}: {figures}")


if __name__ == "__main__":
    if rabbitmq.RabbitMQServer.installed():
        asyncio.run(main())
    else:
        print(f"rabbitmq: skipped: {rabbitmq.ABSENT}")

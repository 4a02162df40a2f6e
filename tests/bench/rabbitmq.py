"""What a thousand queues of one RabbitMQ cost: `python tests/bench/rabbitmq.py`.

One vhost, a queue per HPA, asked as the HPAs of one tick ask. Prints requests per tick and CPU per metric (of this
process) for each way to read; needs Debian's rabbitmq-server.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence

import aiohttp
import structlog

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context, ExternalSample, Query
from hpad.lab.servers import ports, rabbitmq
from hpad_adapters.rabbitmq import Metric, RabbitMQ

QUEUES = 1_000
PAGE = 500
TICKS = 5
COLLECTED_SECONDS = 6  # statistics are collected each five seconds
WAYS = {
    "counts, one queue each": ("management", [f"queue=q{number}" for number in range(QUEUES)]),
    "rates, one queue each": ("management", [f"queue=q{number},mode=consumers" for number in range(QUEUES)]),
    "one pattern over all": ("management", [None]),
    "metrics, one queue each": ("prometheus", [f"queue=q{number}" for number in range(QUEUES)]),
}


async def measured(adapter: RabbitMQ, queries: Sequence[Query], requests: list[str]) -> str:
    """A line of figures; raises AssertionError where an answer is an error or a page is asked for twice."""
    cpu, wall = [], []
    for _ in range(TICKS):
        requests.clear()
        busy, started = time.process_time(), time.perf_counter()
        answers = await adapter.answer(queries)
        cpu.append(time.process_time() - busy)
        wall.append(time.perf_counter() - started)
        assert all(isinstance(answer, ExternalSample) for answer in answers), answers[0]
        assert len(requests) <= QUEUES // PAGE, requests
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
    [port] = ports.free(1)
    broker = rabbitmq.RabbitMQServer(
        queues=[rabbitmq.Queue(f"q{number}") for number in range(QUEUES)],
        plugins=("rabbitmq_prometheus",),
        configuration=("prometheus.tcp.ip = 127.0.0.1", f"prometheus.tcp.port = {port}"),
    )
    async with broker, aiohttp.ClientSession(trace_configs=[trace]) as http:
        await asyncio.sleep(COLLECTED_SECONDS)
        context = Context(name="bench", http=http, clock=clocks.SystemClock(), log=structlog.get_logger())
        urls = {"management": broker.management_url, "prometheus": f"http://127.0.0.1:{port}"}
        for way, (source, selectors) in WAYS.items():
            settings = RabbitMQ.Settings(
                url=urls[source],
                source=source,
                username=broker.admin.name,
                password=broker.admin.password,
                metrics={"depth": Metric(queue_regex="q.*")} if selectors == [None] else {},
            )
            queries = [testing.external("depth", selector) for selector in selectors]
            figures = await measured(RabbitMQ(settings, context), queries, requests)
            print(f"rabbitmq: {QUEUES:,} queues, {way}: {figures}")


if __name__ == "__main__":
    if rabbitmq.RabbitMQServer.installed():
        asyncio.run(main())
    else:
        print(f"rabbitmq: skipped: {rabbitmq.ABSENT}")

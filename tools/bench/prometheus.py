"""Benchmark of a thousand External metrics of one Prometheus: `python tools/bench/prometheus.py`.

One rule, one namespace and a queue per HPA, queried in one batch as the HPAs of one tick do. Prints requests per tick
and CPU time of this process per metric; needs Debian's prometheus. `--short` uses 20 metrics.
"""

import asyncio
import statistics
import sys
import time

import aiohttp
import structlog

from hpad import clock as clocks
from hpad import testing
from hpad.adapter import Context, ExternalSample
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer
from hpad_adapters.prometheus import Prometheus

SHORT = "--short" in sys.argv[1:]
METRICS = 20 if SHORT else 1_000
TICKS = 2 if SHORT else 7
RULES = {
    "externalRules": [
        {
            "seriesQuery": '{__name__="queue_depth",queue!=""}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
        }
    ]
}


def history() -> str:
    now = int(time.time())
    lines = [
        f'queue_depth{{namespace="shop",queue="q{number}"}} {number} {now + age}'
        for number in range(METRICS)
        for age in range(-60, 241, 60)
    ]
    return "\n".join(["# TYPE queue_depth gauge", *lines, "# EOF", ""])


async def main() -> None:
    """Starts a server, queries it, and prints the results."""
    requests: list[str] = []

    async def note(session: object, context: object, parameters: aiohttp.TraceRequestStartParams) -> None:
        requests.append(str(parameters.url))

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(note)
    queries = [testing.external("queue_depth", f"queue=q{number}", namespace="shop") for number in range(METRICS)]
    async with PrometheusServer(history=history()) as server, aiohttp.ClientSession(trace_configs=[trace]) as http:
        context = Context(name="bench", http=http, clock=clocks.SystemClock(), log=structlog.get_logger())
        adapter = Prometheus(Prometheus.Settings(url=server.url, rules=RULES), context)
        cpu, wall = [], []
        for _ in range(TICKS):
            busy, started = time.process_time(), time.perf_counter()
            answers = await adapter.answer(queries)
            cpu.append(time.process_time() - busy)
            wall.append(time.perf_counter() - started)
            assert all(isinstance(answer, ExternalSample) for answer in answers)
    print(
        f"prometheus: {METRICS:,} External metrics: {len(requests) / TICKS:g} request(s) per tick, "
        f"{statistics.median(cpu) / METRICS * 1e6:.1f} us of CPU per metric, "
        f"{statistics.median(wall) * 1e3:.0f} ms per tick"
    )


if __name__ == "__main__":
    if PrometheusServer.installed():
        asyncio.run(main())
    else:
        print(f"prometheus: skipped: {ABSENT}")

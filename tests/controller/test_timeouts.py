"""Reconciles that time out are reported together, in one log line a period."""

import asyncio

import structlog
from support import virtual_time
from support.controller import Bench, hpa

PERIOD = 15.0


def test_reconciles_that_are_given_up_are_told_in_a_line_a_period() -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    async def main() -> str:
        names = [f"app-{number}" for number in range(100)]
        bench = Bench(*(hpa(name) for name in names), period=PERIOD)
        bench.metrics.values = dict.fromkeys(names, hang)
        await bench.advance(4 * PERIOD)
        return (await bench.telemetry.exposition()).decode()

    with structlog.testing.capture_logs() as logs:
        series = virtual_time.run(main())
    told = [line for line in logs if line["event"] == "reconciles took too long and were given up"]
    given_up = float(series.split('reconciliations_total{action="none",error="internal"} ')[1].split()[0])
    assert given_up >= 200
    assert sum(line["reconciles"] for line in told) == given_up
    assert len(told) <= 4 + 1  # and what is left at the end
    assert all(1 <= len(line["some"]) <= 5 for line in told)

"""Reconciles that time out are logged once when they begin and once when they end."""

import asyncio

import structlog
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

PERIOD = 15.0
BEGINS, ENDS = "reconciles take too long and are given up", "no reconcile takes too long any more"


@in_virtual_time
async def test_timeouts_of_many_reconciles_are_logged_once_at_their_begin_and_end() -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    names = [f"app-{number}" for number in range(100)]
    with structlog.testing.capture_logs() as logs:
        bench = Bench(*(hpa(name) for name in names), period=PERIOD)
        bench.metrics.values = dict.fromkeys(names, hang)
        bench.controller.start()
        await asyncio.sleep(4 * PERIOD)
        bench.metrics.values = dict.fromkeys(names, 10)
        await asyncio.sleep(4 * PERIOD)
        await bench.controller.stop(5)
    series = (await bench.telemetry.exposition()).decode()
    given_up = float(series.split('reconciliations_total{action="none",error="internal"} ')[1].split()[0])
    assert given_up >= 200
    lines = [line for line in logs if line["event"] in (BEGINS, ENDS)]
    assert [line["event"] for line in lines] == [BEGINS, ENDS]
    assert lines[0]["hpa"].startswith("default/app-")
    assert lines[1]["times"] == given_up

"""A reconcile that waits for metrics releases its worker; otherwise a hanging source would delay all HPAs."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.controller.workers import Worker

PERIOD = 15.0


@pytest.mark.parametrize("released", [True, False])
@in_virtual_time
async def test_metrics_that_hang_delay_no_other_hpa_while_workers_are_released(
    released: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang() -> None:
        await asyncio.sleep(9)

    @contextlib.asynccontextmanager
    async def keep_worker(worker: Worker) -> AsyncIterator[None]:
        yield

    if not released:
        monkeypatch.setattr(Worker, "released", keep_worker)
    bench = Bench(hpa("web"), *(hpa(f"slow-{number}") for number in range(100)), workers=2, period=PERIOD)
    bench.metrics.values.update({f"slow-{number}": hang for number in range(100)})
    await bench.advance(10 * PERIOD + 1)
    times = bench.metrics.times("web")
    on_time = len(times) >= 10 and all(b - a < PERIOD + 0.1 for a, b in itertools.pairwise(times))
    assert on_time is released

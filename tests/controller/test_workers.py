"""The order in which reconciles get a worker, and how many of them work at a time."""

import asyncio
import math
import random

import pytest
from support import virtual_time
from support.virtual_time import in_virtual_time

from hpad.controller.workers import Worker, Workers


@in_virtual_time
async def test_a_returning_reconcile_goes_before_a_new_one() -> None:
    pool, order = Workers(1, virtual_time.VirtualClock(), math.inf), []

    async def begin(name: str) -> None:
        worker = Worker(pool)
        await worker.take()
        order.append(name)
        worker.give()

    async def come_back(name: str) -> None:
        worker = Worker(pool)
        await worker.take()
        async with worker.released():
            await asyncio.sleep(1)
        order.append(name)
        worker.give()

    async with asyncio.TaskGroup() as group:
        for name in ("back 1", "back 2"):
            group.create_task(come_back(name))
        await asyncio.sleep(0.5)
        working = Worker(pool)
        await working.take()
        for name in ("new 1", "new 2"):
            group.create_task(begin(name))
        await asyncio.sleep(1)  # by now the returning reconciles wait for the worker
        working.give()
    assert order == ["back 1", "back 2", "new 1", "new 2"]


@in_virtual_time
async def test_reconciles_waiting_for_metrics_are_limited_to_those_that_can_finish() -> None:
    """Two workers and one second of work per reconcile: eight reconciles can finish within four seconds."""
    pool, out, most = Workers(2, virtual_time.VirtualClock(), 4.0), 0, 0

    async def reconcile() -> None:
        nonlocal out, most
        worker = Worker(pool)
        await worker.take()
        async with worker.released():
            out += 1
            most = max(most, out)
            await asyncio.sleep(0.1)
        out -= 1
        await asyncio.sleep(1)
        worker.give()

    await asyncio.gather(*(reconcile() for _ in range(100)))  # measures how long they work
    most = 0
    await asyncio.gather(*(reconcile() for _ in range(100)))
    assert 8 <= most <= 8 + 2  # both working reconciles may go out as the last one


@pytest.mark.parametrize("seed", range(20))
@in_virtual_time
async def test_working_reconciles_never_exceed_the_workers(seed: int) -> None:
    """Reconciles release their worker, fail and are cancelled at random; afterwards all workers are free."""
    dice, number = random.Random(seed), 3
    pool = Workers(number, virtual_time.VirtualClock(), 2.0)
    working = 0
    most = 0

    async def work() -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        try:
            await asyncio.sleep(dice.random())
        finally:
            working -= 1

    async def reconcile() -> None:
        worker = Worker(pool)
        await worker.take()
        try:
            await work()
            async with worker.released():
                await asyncio.sleep(dice.random())
                if dice.random() < 0.2:
                    raise RuntimeError
            await work()
        finally:
            worker.give()

    tasks = [asyncio.create_task(reconcile()) for _ in range(60)]
    for task in dice.sample(tasks, 25):
        await asyncio.sleep(dice.random() / 2)
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert most == number
    for _ in range(number):
        async with asyncio.timeout(1):
            await pool.begin()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await pool.begin()

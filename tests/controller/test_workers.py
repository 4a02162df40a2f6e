"""Who gets to work when not all can: whoever has begun first, and no right is lost or made up."""

import asyncio
import math
import random

import pytest
from support import virtual_time

from hpad.controller.workers import Worker, Workers


def test_whoever_comes_back_goes_before_whoever_begins() -> None:
    async def main() -> list[str]:
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
            await asyncio.sleep(1)  # the others want to go on by now
            working.give()
        return order

    assert virtual_time.run(main()) == ["back 1", "back 2", "new 1", "new 2"]


def test_no_more_wait_than_can_be_finished_in_time() -> None:
    """Turns that take a second of work each, of which two are worked on at a time: within four seconds, eight."""

    async def main() -> int:
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

        await asyncio.gather(*(reconcile() for _ in range(100)))  # which teaches how long they take
        most = 0
        await asyncio.gather(*(reconcile() for _ in range(100)))
        return most

    assert 8 <= virtual_time.run(main()) <= 8 + 2  # the two that are at work may both go out as the last one


@pytest.mark.parametrize("seed", range(20))
def test_never_more_at_work_than_there_are_rights_and_all_come_back(seed: int) -> None:
    """Reconciles that lend theirs, fail, and are cancelled at any moment."""

    async def main() -> None:
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

    virtual_time.run(main())

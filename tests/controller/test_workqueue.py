"""The delaying queue: no key is lost or processed twice at once, and the earliest deadline wins."""

import asyncio
import contextlib
import importlib.util
import itertools
import math

import hypothesis
import pytest
from hypothesis import strategies
from support import virtual_time
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.controller.workqueue import DelayingQueue, ShutDown
from hpad.daemon import process

A, B, C = (Key("default", name) for name in "abc")


class Tally:
    """Series of the queue that keep their values in lists."""

    def __init__(self) -> None:
        self.adds = 0
        self.waits: list[float] = []
        self.works: list[float] = []
        self.depths: list[int] = []

    def added(self) -> None:
        self.adds += 1

    def depth(self, keys: int) -> None:
        self.depths.append(keys)

    def waited(self, seconds: float) -> None:
        self.waits.append(seconds)

    def worked(self, seconds: float) -> None:
        self.works.append(seconds)


def queue(tally: Tally | None = None) -> DelayingQueue:
    return DelayingQueue(virtual_time.VirtualClock(), tally or Tally())


async def get(work: DelayingQueue) -> Key:
    """Waits for the next key and takes it, as the controller does."""
    await work.filled()
    return work.take()


@in_virtual_time
async def test_keys_come_in_order_and_once() -> None:
    """Scenario 27."""
    work = queue()
    for key in (A, B, A, C, B):
        work.add(key)
    assert [await get(work) for _ in range(3)] == [A, B, C]


@in_virtual_time
async def test_added_while_processing_runs_again_but_not_at_the_same_time() -> None:
    work = queue()
    work.add(A)
    assert await get(work) == A
    work.add(A)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await get(work)
    work.done(A)
    assert await get(work) == A
    work.done(A)
    assert len(work) == 0


@pytest.mark.parametrize("delays", [(10.0, 3.0, 7.0), (3.0, 10.0), (3.0,)])
@in_virtual_time
async def test_the_earliest_deadline_wins(delays: tuple[float, ...]) -> None:
    work, moments = queue(), []
    for delay in delays:
        work.add_after(A, delay)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while True:
                work.done(await get(work))
                moments.append(virtual_time.now())
    assert moments == [3.0]


@in_virtual_time
async def test_discard_removes_queued_and_delayed_keys() -> None:
    work = queue()
    work.add(A)
    work.add(B)
    work.add_after(C, 5)
    work.discard(A)
    work.discard(C)
    assert await get(work) == B
    work.add(B)
    work.discard(B)
    work.done(B)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await get(work)


@in_virtual_time
async def test_a_shutdown_drains_the_queue() -> None:
    async def worker(work: DelayingQueue, seen: list[Key]) -> None:
        while True:
            key = await get(work)
            await asyncio.sleep(1)
            seen.append(key)
            work.done(key)

    work, seen = queue(), list[Key]()
    workers = [asyncio.create_task(worker(work, seen)) for _ in range(2)]
    for key in (A, B, C):
        work.add(key)
    work.add_after(Key("default", "later"), 100)
    await asyncio.sleep(0.5)
    work.shutdown()
    work.add(Key("default", "too-late"))
    await work.drained()
    results = await asyncio.gather(*workers, return_exceptions=True)
    assert all(isinstance(result, ShutDown) for result in results)
    assert sorted(seen) == [A, B, C]


@in_virtual_time
async def test_a_cancelled_get_passes_its_key_on() -> None:
    work = queue()
    first, second = (asyncio.create_task(get(work)) for _ in range(2))
    await asyncio.sleep(1)
    work.add(A)
    first.cancel()
    async with asyncio.timeout(60):
        assert await second == A


@in_virtual_time
async def test_the_series_of_the_queue_have_its_adds_times_and_depths() -> None:
    tally = Tally()
    work = queue(tally)
    work.add(A)
    work.add(A)
    await asyncio.sleep(2)
    await get(work)
    await asyncio.sleep(3)
    assert work.unfinished_seconds() == 3
    assert work.longest_running_seconds() == 3
    work.done(A)
    assert work.longest_running_seconds() == 0
    assert (tally.adds, tally.waits, tally.works, tally.depths) == (1, [2.0], [3.0], [1, 0])


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_a_delay_below_the_resolution_of_a_timer_is_kept() -> None:
    """uvloop counts in milliseconds: it turns a shorter delay into a callback without a time."""

    async def main() -> list[Key]:
        work = DelayingQueue(SystemClock(), Tally())
        for key, seconds in [(A, 1e-5), (A, 1e-6), (A, 60.0), (B, 60.0), (B, 1e-5)]:
            work.add_after(key, seconds)
        async with asyncio.timeout(10):
            return [await get(work), await get(work)]

    with asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        assert sorted(runner.run(main())) == [A, B]


ACTIONS = strategies.one_of(
    strategies.tuples(strategies.just("add"), strategies.sampled_from([A, B, C])),
    strategies.tuples(strategies.just("after"), strategies.sampled_from([A, B, C]), strategies.integers(0, 9)),
    strategies.tuples(strategies.just("sleep"), strategies.integers(0, 5)),
)


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(
    actions=strategies.lists(ACTIONS, max_size=40),
    workers=strategies.integers(1, 3),
    work_seconds=strategies.integers(0, 4),
)
def test_any_interleaving_of_adds_and_workers(actions: list[tuple], workers: int, work_seconds: int) -> None:
    """Every added key is processed after it was added, never before its time and never twice at once."""
    added: list[tuple[int, Key]] = []
    started: list[tuple[int, Key]] = []
    earliest: dict[Key, float] = {}
    ticks = itertools.count()

    async def worker(work: DelayingQueue, busy: set[Key]) -> None:
        while True:
            key = await get(work)
            started.append((next(ticks), key))
            assert key not in busy
            assert virtual_time.now() >= earliest[key]
            busy.add(key)
            await asyncio.sleep(work_seconds)
            busy.remove(key)
            work.done(key)

    async def main() -> None:
        work, loop = queue(), asyncio.get_running_loop()
        busy: set[Key] = set()
        tasks = [asyncio.create_task(worker(work, busy)) for _ in range(workers)]
        for action, *arguments in actions:
            if action == "sleep":
                await asyncio.sleep(arguments[0])
                continue
            key, delay = (*arguments, 0)[:2]
            earliest[key] = min(earliest.get(key, math.inf), loop.time() + delay)
            added.append((next(ticks), key))
            work.add_after(key, delay)
        await asyncio.sleep(10)
        work.shutdown()
        await work.drained()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, ShutDown), ended

    virtual_time.run(main())
    assert all(any(start > tick and key == ran for start, ran in started) for tick, key in added)
    assert len(started) <= len(added)

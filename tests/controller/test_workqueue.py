"""The delaying queue: nothing lost, nothing twice at once, the earliest deadline wins."""

import asyncio
import importlib.util
import itertools
import math

import hypothesis
import pytest
from hypothesis import strategies
from support import virtual_time

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.controller.workqueue import DelayingQueue, ShutDown
from hpad.daemon import process

A, B, C = (Key("default", name) for name in "abc")


class Tally:
    """Series that only remember."""

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


def test_turns_come_in_order_and_once() -> None:
    """Scenario 27."""

    async def main() -> list[Key]:
        work = queue()
        for key in (A, B, A, C, B):
            work.add(key)
        return [await work.get() for _ in range(3)]

    assert virtual_time.run(main()) == [A, B, C]


def test_added_while_processing_runs_again_but_not_at_the_same_time() -> None:
    async def main() -> None:
        work = queue()
        work.add(A)
        assert await work.get() == A
        work.add(A)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await work.get()
        work.done(A)
        assert await work.get() == A
        work.done(A)
        assert len(work) == 0

    virtual_time.run(main())


@pytest.mark.parametrize("delays", [(10.0, 3.0, 7.0), (3.0, 10.0), (3.0,)])
def test_the_earliest_deadline_wins(delays: tuple[float, ...]) -> None:
    async def main() -> list[float]:
        work, loop = queue(), asyncio.get_running_loop()
        for delay in delays:
            work.add_after(A, delay)
        moments = []
        try:
            async with asyncio.timeout(60):
                while True:
                    work.done(await work.get())
                    moments.append(loop.time())
        except TimeoutError:
            return moments

    assert virtual_time.run(main()) == [3.0]


def test_forget_drops_what_was_planned() -> None:
    async def main() -> None:
        work = queue()
        work.add(A)
        work.add(B)
        work.add_after(C, 5)
        work.forget(A)
        work.forget(C)
        assert await work.get() == B
        work.add(B)
        work.forget(B)
        work.done(B)
        work.check()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await work.get()

    virtual_time.run(main())


def test_shutdown_drains() -> None:
    async def worker(work: DelayingQueue, seen: list[Key]) -> None:
        while True:
            key = await work.get()
            await asyncio.sleep(1)
            seen.append(key)
            work.done(key)

    async def main() -> list[Key]:
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
        return sorted(seen)

    assert virtual_time.run(main()) == [A, B, C]


def test_a_cancelled_worker_passes_its_call_on() -> None:
    async def main() -> Key:
        work = queue()
        first, second = (asyncio.create_task(work.get()) for _ in range(2))
        await asyncio.sleep(1)
        work.add(A)
        first.cancel()
        async with asyncio.timeout(60):
            return await second

    assert virtual_time.run(main()) == A


def test_what_the_series_say() -> None:
    async def main() -> Tally:
        tally = Tally()
        work = queue(tally)
        work.add(A)
        work.add(A)
        await asyncio.sleep(2)
        await work.get()
        await asyncio.sleep(3)
        assert work.unfinished_seconds() == 3
        assert work.longest_running_seconds() == 3
        work.done(A)
        assert work.longest_running_seconds() == 0
        return tally

    tally = virtual_time.run(main())
    assert (tally.adds, tally.waits, tally.works, tally.depths) == (1, [2.0], [3.0], [1, 0])


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not there")
def test_a_delay_below_what_a_timer_can_measure_is_one_among_others() -> None:
    """uvloop's timers count milliseconds: what is due in less is no timer to it, and has no time."""

    async def main() -> list[Key]:
        work = DelayingQueue(SystemClock(), Tally())
        for key, seconds in [(A, 1e-5), (A, 1e-6), (A, 60.0), (B, 60.0), (B, 1e-5)]:
            work.add_after(key, seconds)
            work.check()
        async with asyncio.timeout(10):
            return [await work.get(), await work.get()]

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
def test_any_interleaving(actions: list[tuple], workers: int, work_seconds: int) -> None:
    """Every wish is followed by a run that starts after it was made, none before its time, and never two at once."""
    wished: list[tuple[int, Key]] = []
    started: list[tuple[int, Key]] = []
    earliest: dict[Key, float] = {}
    ticks = itertools.count()

    async def worker(work: DelayingQueue, busy: set[Key]) -> None:
        while True:
            key = await work.get()
            started.append((next(ticks), key))
            assert key not in busy
            assert asyncio.get_running_loop().time() >= earliest[key]
            busy.add(key)
            await asyncio.sleep(work_seconds)
            busy.remove(key)
            work.done(key)
            work.check()

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
            wished.append((next(ticks), key))
            work.add_after(key, delay)
            work.check()
        await asyncio.sleep(10)
        work.shutdown()
        await work.drained()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(ended, ShutDown), ended

    virtual_time.run(main())
    assert all(any(run > wish and key == ran for run, ran in started) for wish, key in wished)
    assert len(started) <= len(wished)

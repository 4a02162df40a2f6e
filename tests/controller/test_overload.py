"""More to do than can be done: HPAs that were scaled up the last time go first, and nobody waits for ever."""

import asyncio
import math

import hypothesis
import structlog
from controller.test_workqueue import Tally
from hypothesis import strategies
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.metadata import Key
from hpad.controller.workqueue import DelayingQueue

PATIENCE = 15.0


def key(name: str) -> Key:
    return Key("default", name)


def queue(patience: float = PATIENCE) -> DelayingQueue:
    """Keys whose name begins with "up" are in a hurry."""
    clock = virtual_time.VirtualClock()
    return DelayingQueue(clock, Tally(), hurried=lambda each: each.name.startswith("up"), patience=patience)


async def turns(work: DelayingQueue, count: int) -> list[str]:
    names = []
    for _ in range(count):
        taken = await work.get()
        names.append(taken.name)
        work.done(taken)
        work.check()
    return names


def test_without_overload_turns_come_in_order() -> None:
    async def main() -> list[str]:
        work = queue()
        for name in ("a", "up-b", "c", "up-d"):
            work.add(key(name))
            await asyncio.sleep(1)
        return await turns(work, 4)

    assert virtual_time.run(main()) == ["a", "up-b", "c", "up-d"]


def test_under_overload_those_in_a_hurry_go_first_three_times_out_of_four() -> None:
    async def main() -> list[str]:
        work = queue()
        for number in range(4):
            work.add(key(f"plain-{number}"))
        await asyncio.sleep(PATIENCE + 1)
        for number in range(5):
            work.add(key(f"up-{number}"))
        return await turns(work, 9)

    assert virtual_time.run(main()) == [
        *("up-0", "up-1", "up-2", "plain-0", "up-3", "up-4"),
        *("plain-1", "plain-2", "plain-3"),
    ]


def test_one_that_is_forgotten_has_no_turn_wherever_it_waits() -> None:
    async def main() -> list[str]:
        work = queue()
        for name in ("a", "up-b", "c", "up-d"):
            work.add(key(name))
        work.forget(key("up-b"))
        work.forget(key("c"))
        work.check()
        return await turns(work, 2)

    assert virtual_time.run(main()) == ["a", "up-d"]


@hypothesis.settings(max_examples=100, deadline=None)
@hypothesis.given(
    names=strategies.lists(strategies.sampled_from(["a", "b", "c", "up-a", "up-b", "up-c"]), min_size=1, max_size=30),
    pause=strategies.sampled_from([0, 1, 10, 100]),
    patience=strategies.sampled_from([0.0, PATIENCE, math.inf]),
)
def test_whoever_is_queued_has_a_turn(names: list[str], pause: int, patience: float) -> None:
    async def main() -> list[str]:
        work = queue(patience)
        for name in names:
            work.add(key(name))
            work.check()
            await asyncio.sleep(pause)
        found = await turns(work, len(work))
        work.shutdown()
        await work.drained()
        return found

    assert sorted(virtual_time.run(main())) == sorted(set(names))


PERIOD = 15.0
SHED = 4
"""While load is shed, one turn in so many periods is left to those that do not grow."""


def test_while_load_is_shed_those_that_grow_keep_their_turns_and_all_others_leave_some_out() -> None:
    async def main() -> None:
        bench = Bench(hpa("grows"), hpa("stays"), hpa("other"))

        async def lose_pods() -> None:
            while True:
                bench.cluster.scales["grows"] = 1
                await asyncio.sleep(1)

        bench.metrics.values.update(grows=20, stays=10, other=10)
        bench.cluster.scales.update(stays=1, other=1)
        losing = asyncio.create_task(lose_pods())
        bench.controller.start()
        await asyncio.sleep(4 * PERIOD)
        bench.controller.shed(True)
        await asyncio.sleep(2 * PERIOD)  # the turns that were planned before
        counts = {name: len(bench.metrics.times(name)) for name in ("grows", "stays", "other")}
        await asyncio.sleep(8 * SHED * PERIOD)
        during = {name: len(bench.metrics.times(name)) - count for name, count in counts.items()}
        assert during == {"grows": 8 * SHED, "stays": 8, "other": 8}
        left_out = b"hpad_reconciles_put_off_total 0.0"
        assert left_out not in await bench.telemetry.exposition()

        bench.source.put(hpa("stays", goal=5))
        await asyncio.sleep(0.001)
        assert bench.metrics.times("stays")[-1] == asyncio.get_running_loop().time() - 0.001, (
            "a change waits for nobody"
        )
        bench.controller.shed(False)
        before = len(bench.metrics.times("other"))
        await asyncio.sleep(2 * PERIOD)
        assert len(bench.metrics.times("other")) - before == 2, "nobody waits any longer"
        losing.cancel()
        await bench.controller.stop(5)

    virtual_time.run(main())


def test_reconciles_that_are_given_up_are_told_in_a_line_a_period() -> None:
    async def hang() -> None:
        await asyncio.sleep(3600)

    async def main() -> str:
        names = [f"app-{number}" for number in range(100)]
        bench = Bench(*(hpa(name) for name in names), period=PATIENCE)
        bench.metrics.values = dict.fromkeys(names, hang)
        await bench.advance(4 * PATIENCE)
        return (await bench.telemetry.exposition()).decode()

    with structlog.testing.capture_logs() as logs:
        series = virtual_time.run(main())
    told = [line for line in logs if line["event"] == "reconciles took too long and were given up"]
    given_up = float(series.split('reconciliations_total{action="none",error="internal"} ')[1].split()[0])
    assert given_up >= 200
    assert sum(line["reconciles"] for line in told) == given_up
    assert len(told) <= 4 + 1  # and what is left at the end
    assert all(1 <= len(line["some"]) <= 5 for line in told)

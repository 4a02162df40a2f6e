"""More to do than can be done: HPAs that were scaled up the last time go first, and nobody waits for ever."""

import asyncio
import math

import hypothesis
import virtual
from control.test_workqueue import Tally
from hypothesis import strategies

from hpad.control.workqueue import DelayingQueue
from hpad.model.key import Key

PATIENCE = 15.0


def key(name: str) -> Key:
    return Key("default", name)


def queue(patience: float = PATIENCE) -> DelayingQueue:
    """Keys whose name begins with "up" are in a hurry."""
    clock = virtual.VirtualClock()
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

    assert virtual.run(main()) == ["a", "up-b", "c", "up-d"]


def test_under_overload_those_in_a_hurry_go_first_three_times_out_of_four() -> None:
    async def main() -> list[str]:
        work = queue()
        for number in range(4):
            work.add(key(f"plain-{number}"))
        await asyncio.sleep(PATIENCE + 1)
        for number in range(5):
            work.add(key(f"up-{number}"))
        return await turns(work, 9)

    assert virtual.run(main()) == [
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

    assert virtual.run(main()) == ["a", "up-d"]


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

    assert sorted(virtual.run(main())) == sorted(set(names))

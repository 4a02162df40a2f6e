"""Deadlines of turns end their blocks as asyncio.timeout does, with one timer for all of them."""

import asyncio

import pytest
from support.virtual_time import in_virtual_time

from hpad.controller.workers import Deadlines


def now() -> float:
    return asyncio.get_running_loop().time()


async def late(deadlines: Deadlines, allowed: float, needed: float) -> float:
    """Runs a block of `needed` seconds with a deadline; returns when it timed out, or raises what ended it."""
    began = now()
    try:
        with deadlines.within(allowed):
            await asyncio.sleep(needed)
    except TimeoutError:
        return now() - began
    return 0.0


@in_virtual_time
async def test_only_blocks_beyond_their_deadline_time_out() -> None:
    deadlines = Deadlines()
    blocks = [(14.0, 1.0), (2.0, 5.0), (14.0, 15.0), (3.0, 3.5), (1.0, 0.5), (20.0, 19.0)]
    found = await asyncio.gather(*(late(deadlines, *each) for each in blocks))
    assert found == pytest.approx([0.0, 2.0, 14.0, 3.0, 0.0, 0.0], abs=0.003)


@in_virtual_time
async def test_blocks_that_begin_later_have_their_own_deadline() -> None:
    deadlines = Deadlines()

    async def begun_after(delay: float) -> float:
        await asyncio.sleep(delay)
        return await late(deadlines, 2.0, 5.0)

    found = await asyncio.gather(*map(begun_after, (0.0, 0.5, 1.9, 7.0)))
    assert found == pytest.approx([2.0] * 4, abs=0.003)


@in_virtual_time
async def test_a_cancellation_is_no_timeout_even_together_with_one() -> None:
    for cancelled_at in (1.0, 2.0):
        deadlines = Deadlines()
        task = asyncio.create_task(late(deadlines, 2.0, 5.0))
        asyncio.get_running_loop().call_later(cancelled_at, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()


@in_virtual_time
async def test_other_errors_pass_and_end_the_deadline() -> None:
    deadlines = Deadlines()
    with pytest.raises(ZeroDivisionError), deadlines.within(1.0):
        raise ZeroDivisionError
    await asyncio.sleep(5.0)  # the deadline that has ended cancels nothing


@in_virtual_time
async def test_the_task_goes_on_after_a_timeout() -> None:
    deadlines = Deadlines()
    assert await late(deadlines, 1.0, 2.0) == pytest.approx(1.0, abs=0.003)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert await late(deadlines, 1.0, 0.5) == 0.0

"""A step of the wall clock shifts the times of the history; a running clock does not."""

import asyncio
from datetime import timedelta

import pytest
from support import virtual_time
from support.controller import Bench, hpa
from support.virtual_time import ManualClock, in_virtual_time

from hpad import clock as clocks
from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.clock import Moment
from hpad.engine.history import History, LastSample, Memory, PastRecommendation, PendingRescale, Rescale, Validity
from hpad.engine.state import caught_up


def state_of(clock: ManualClock, boot: str = "") -> Memory:
    past = clock.now() - timedelta(seconds=30)
    ups, downs = (Rescale(past, 1),), (Rescale(past, 2),)
    history = History((PastRecommendation(past, 4),), ups, downs, (LastSample("a", None, past, 3),))
    pending = PendingRescale(4, 5, ups, downs, HorizontalPodAutoscalerStatus())
    valid = Validity(boot or clocks.boot(), clock.monotonic())
    return Memory(uid="u", history=history, at=clock.now(), pending=pending, validity=valid)


def test_passing_time_changes_no_state() -> None:
    clock = ManualClock()
    assert caught_up(Memory(), Moment.now(clock)) == Memory()
    memory = state_of(clock)
    for seconds in (15, 3600, 0.1):
        clock.advance(seconds, timedelta(milliseconds=400))
        assert caught_up(memory, Moment.now(clock)) is memory
        memory = state_of(clock)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_history_shifts_with_the_wall_clock(hours: int) -> None:
    clock, jump = ManualClock(), timedelta(hours=hours)
    memory = state_of(clock)
    clock.advance(15, jump)
    before = ManualClock()
    before.wall += jump
    assert caught_up(memory, Moment.now(clock)) == state_of(before)
    assert caught_up(caught_up(memory, Moment.now(clock)), Moment.now(clock)) == state_of(before)


def test_state_of_another_boot_is_not_shifted() -> None:
    clock = ManualClock()
    memory = state_of(clock, "another")
    clock.advance(15, timedelta(hours=1))
    assert caught_up(memory, Moment.now(clock)) is memory
    memory = state_of(clock)
    clock.ticks = 0.0
    assert caught_up(memory, Moment.now(clock)) is memory, "an earlier monotonic time means another boot"


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("jump", [-3600, -310, -120, 120, 3600])
@in_virtual_time
async def test_turns_without_a_scale_shift_the_history_only_once(jump: int, turns: int) -> None:
    """The last turn that proposed 4 was up to a period before the step: the window ends 285 to 300 s after it."""
    clock = virtual_time.SetClock()
    bench = Bench(hpa("web", behavior={"scaleDown": {"stabilizationWindowSeconds": 300}}), clock=clock)
    bench.metrics.values["web"] = 40
    bench.controller.start()
    await asyncio.sleep(61)
    assert bench.cluster.scales["web"] == 4
    bench.metrics.values["web"] = 20
    set_at = virtual_time.now()
    clock.off = timedelta(seconds=jump)
    hidden = bench.cluster.scales.pop("web")
    await asyncio.sleep(15 * turns)
    bench.cluster.scales["web"] = hidden
    await virtual_time.until(lambda: bench.cluster.scales["web"] == 2, seconds=2 * 3600, every=1)
    await bench.controller.stop(5)
    assert 285 <= virtual_time.now() - set_at <= 301

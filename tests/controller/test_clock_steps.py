"""A wall clock that is set moves histories along; one that runs on does not."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad import clock as clocks
from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.clock import Moment
from hpad.controller.recovery import caught_up
from hpad.engine.history import History, LastSample, PastRecommendation, Rescale
from hpad.store.memory import Memory, PendingRescale, Validity

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Set:
    """A clock whose two times are what they were last set to."""

    def __init__(self) -> None:
        self.wall, self.ticks = NOON, 100.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.ticks

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    def passes(self, seconds: float, jump: timedelta = timedelta(0)) -> None:
        self.ticks += seconds
        self.wall += timedelta(seconds=seconds) + jump


def remembered(clock: Set, boot: str = "") -> Memory:
    past = clock.now() - timedelta(seconds=30)
    ups, downs = (Rescale(past, 1),), (Rescale(past, 2),)
    history = History((PastRecommendation(past, 4),), ups, downs, (LastSample("a", None, past, 3),))
    pending = PendingRescale(4, 5, ups, downs, HorizontalPodAutoscalerStatus())
    valid = Validity(boot or clocks.boot(), clock.monotonic())
    return Memory(uid="u", history=history, at=clock.now(), pending=pending, validity=valid)


def test_time_that_passes_changes_nothing() -> None:
    clock = Set()
    assert caught_up(Memory(), Moment.now(clock)) == Memory()
    memory = remembered(clock)
    for seconds in (15, 3600, 0.1):
        clock.passes(seconds, timedelta(milliseconds=400))
        assert caught_up(memory, Moment.now(clock)) is memory
        memory = remembered(clock)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_history_moves_with_the_clock(hours: int) -> None:
    clock, jump = Set(), timedelta(hours=hours)
    memory = remembered(clock)
    clock.passes(15, jump)
    before = Set()
    before.wall += jump
    assert caught_up(memory, Moment.now(clock)) == remembered(before)
    assert caught_up(caught_up(memory, Moment.now(clock)), Moment.now(clock)) == remembered(before)


def test_of_another_boot_only_wall_times_are_known() -> None:
    clock = Set()
    memory = remembered(clock, "another")
    clock.passes(15, timedelta(hours=1))
    assert caught_up(memory, Moment.now(clock)) is memory
    memory = remembered(clock)
    clock.ticks = 0.0
    assert caught_up(memory, Moment.now(clock)) is memory, "its monotonic clock cannot be ours"


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("jump", [-3600, -310, -120, 120, 3600])
def test_turns_without_a_scale_move_the_history_no_further(jump: int, turns: int) -> None:
    """The last turn that wanted 4 was up to a period before: the window ends 285 to 300 s after the clock was set."""

    async def main() -> float:
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
        return virtual_time.now() - set_at

    assert 285 <= virtual_time.run(main()) <= 301

"""A wall clock that is set moves histories along; one that runs on does not."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import virtual
from control.bench import Bench, hpa

from hpad.clock import Moment
from hpad.control.jumps import Jumps
from hpad.model.history import Heard, History, Recommendation, Rescale
from hpad.model.key import Key
from hpad.store.memory import Memory

KEY = Key("shop", "web")
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


def remembered(at: datetime) -> Memory:
    past = at - timedelta(seconds=30)
    history = History(
        (Recommendation(past, 4),), (Rescale(past, 1),), (Rescale(past, 2),), (Heard("a", None, past, 3),)
    )
    return Memory(uid="u", history=history, at=at)


def test_time_that_passes_changes_nothing() -> None:
    clock = Set()
    jumps = Jumps()
    assert jumps.caught_up(KEY, Memory(), Moment.now(clock)) == Memory()
    memory = remembered(clock.now())
    for seconds in (15, 3600, 0.1):
        clock.passes(seconds, timedelta(milliseconds=400))
        assert jumps.caught_up(KEY, memory, Moment.now(clock)) is memory
        memory = remembered(clock.now())


def test_a_history_moves_with_the_clock() -> None:
    for hours in (1, -1):
        clock, jump = Set(), timedelta(hours=hours)
        jumps = Jumps()
        jumps.caught_up(KEY, Memory(), Moment.now(clock))
        memory = remembered(clock.now())
        clock.passes(15, jump)
        assert jumps.caught_up(KEY, memory, Moment.now(clock)) == remembered(NOON + jump)


def test_a_look_that_was_not_remembered_does_not_hide_a_jump() -> None:
    clock, jump = Set(), timedelta(hours=1)
    jumps = Jumps()
    jumps.caught_up(KEY, Memory(), Moment.now(clock))
    memory = remembered(clock.now())
    for _ in range(3):
        clock.passes(15, jump)
        assert jumps.caught_up(KEY, memory, Moment.now(clock)).at == NOON + (clock.wall - NOON) - timedelta(
            seconds=clock.ticks - 100
        )


def test_a_memory_of_another_process_is_left_alone() -> None:
    clock = Set()
    memory = remembered(NOON - timedelta(days=1))
    assert Jumps().caught_up(KEY, memory, Moment.now(clock)) is memory


def test_an_hpa_that_is_gone_leaves_nothing() -> None:
    clock = Set()
    jumps = Jumps()
    jumps.caught_up(KEY, Memory(), Moment.now(clock))
    memory = remembered(clock.now())
    jumps.forget(KEY)
    clock.passes(15, timedelta(hours=1))
    assert jumps.caught_up(KEY, memory, Moment.now(clock)) is memory


@pytest.mark.parametrize("turns", [0, 1, 3])
@pytest.mark.parametrize("jump", [-3600, -310, -120, 120, 3600])
def test_turns_without_a_scale_move_the_history_no_further(jump: int, turns: int) -> None:
    """The last turn that wanted 4 was up to a period before: the window ends 285 to 300 s after the clock was set."""

    async def main() -> float:
        clock = virtual.SetClock()
        bench = Bench(hpa("web", behavior={"scaleDown": {"stabilizationWindowSeconds": 300}}), clock=clock)
        bench.metrics.values["web"] = 40
        bench.controller.start()
        await asyncio.sleep(61)
        assert bench.world.scales["web"] == 4
        bench.metrics.values["web"] = 20
        set_at = virtual.now()
        clock.off = timedelta(seconds=jump)
        hidden = bench.world.scales.pop("web")
        await asyncio.sleep(15 * turns)
        bench.world.scales["web"] = hidden
        await virtual.until(lambda: bench.world.scales["web"] == 2, seconds=2 * 3600, every=1)
        await bench.controller.stop(5)
        return virtual.now() - set_at

    assert 285 <= virtual.run(main()) <= 301

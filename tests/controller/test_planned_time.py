"""Turns that come a little late, now more and now less, count as what they were planned as."""

import asyncio
from datetime import UTC, datetime, timedelta

from support import virtual_time
from support.controller import Bench, hpa

from hpad.controller.schedule import planned_moment

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BIT = timedelta(microseconds=1)


class Late:
    """A clock that a test sets: seconds past noon by the wall, past 100 by the other."""

    def __init__(self) -> None:
        self.wall = self.ticks = 0.0

    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.wall)

    def monotonic(self) -> float:
        return 100 + self.ticks

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


def test_planned_moments_are_periods_apart_and_a_bit() -> None:
    clock, last = Late(), None
    for turn, late in enumerate((0.4, 0.0, 0.25, 0.1)):
        clock.wall = clock.ticks = 15 * turn + late
        last = planned_moment(clock, 100 + 15 * turn, last)
        assert last == (NOON + timedelta(seconds=15 * turn) + turn * BIT, 100 + 15 * turn)


def test_a_wall_clock_that_was_set_is_followed() -> None:
    clock = Late()
    last = planned_moment(clock, 100, None)
    clock.wall, clock.ticks = 3615.5, 15.5
    assert planned_moment(clock, 115, last).wall == NOON + timedelta(seconds=3615)


def test_without_a_last_moment_the_wall_clock_decides() -> None:
    clock = Late()
    clock.wall, clock.ticks = 15.3, 15.0
    assert planned_moment(clock, 115, None).wall == NOON + timedelta(seconds=15.3)


def test_growth_takes_a_step_a_turn_however_late_turns_are() -> None:
    """The policies of a scale-up let the count double in 15 seconds, which are also the period: as with the original
    each turn doubles it, whether it comes sooner or later than the one before."""

    async def main() -> list[int]:
        bench = Bench(hpa("web", maxReplicas=100))
        bench.metrics.values["web"] = 10_000
        bench.cluster.read_seconds = iter([0.0, *[0.05, 0.002] * 10])
        await bench.advance(5 * 15)
        return bench.cluster.writes

    assert virtual_time.run(main()) == [5, 10, 20, 40, 80]

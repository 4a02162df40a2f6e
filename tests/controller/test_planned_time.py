"""Turns that start slightly late count as of their planned moment."""

from datetime import timedelta

from support.controller import Bench, hpa
from support.virtual_time import START, ManualClock, in_virtual_time

from hpad.controller.planning import planned_moment

TICKS = ManualClock().ticks
MICROSECOND = timedelta(microseconds=1)


def test_planned_moments_are_a_period_and_a_microsecond_apart() -> None:
    last = None
    for turn, late in enumerate((0.4, 0.0, 0.25, 0.1)):
        clock = ManualClock()
        clock.advance(15 * turn + late)
        last = planned_moment(clock, TICKS + 15 * turn, last)
        expected = START + timedelta(seconds=15 * turn) + turn * MICROSECOND
        assert (last.wall, last.monotonic) == (expected, TICKS + 15 * turn)


def test_planned_moments_follow_a_step_of_the_wall_clock() -> None:
    clock = ManualClock()
    last = planned_moment(clock, TICKS, None)
    clock.advance(15.5, jump=timedelta(hours=1))
    assert planned_moment(clock, TICKS + 15, last).wall == START + timedelta(seconds=3615)


def test_without_a_last_moment_the_wall_clock_decides() -> None:
    clock = ManualClock()
    clock.advance(15, jump=timedelta(seconds=0.3))
    assert planned_moment(clock, TICKS + 15, None).wall == START + timedelta(seconds=15.3)


@in_virtual_time
async def test_growth_takes_one_step_per_turn_also_for_late_turns() -> None:
    """The policy allows a doubling in 15 seconds, which is also the period.

    As in Kubernetes each turn doubles the count, whether it starts less or more late than the previous one.
    """
    bench = Bench(hpa("web", maxReplicas=100))
    bench.metrics.values["web"] = 10_000
    bench.cluster.read_seconds = iter([0.0, *[0.05, 0.002] * 10])
    await bench.advance(5 * 15)
    assert bench.cluster.writes == [5, 10, 20, 40, 80]

"""The planned times of HPAs: on ticks, close together within a namespace, and apart between namespaces."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.controller.planning import Grid, Schedule

NAMES = [f"app-{number}" for number in range(200)]


@in_virtual_time
async def test_hpas_are_reconciled_once_per_period_each_namespace_in_a_time_of_its_own() -> None:
    """200 HPAs in 20 namespaces; a sixteenth of a period of 16 s is a second."""
    bench = Bench(*(hpa(name, namespace=f"ns-{n % 20}") for n, name in enumerate(NAMES)), period=16.0)
    await bench.advance(64)
    first: dict[str, float] = {}
    for name in NAMES:
        times = bench.metrics.times(name)
        assert len(times) == 4
        assert all(abs(later - earlier - 16) < 1e-6 for earlier, later in itertools.pairwise(times))
        first[name] = times[0]
    begins = []
    for namespace in range(20):
        times = sorted(first[name] for name in NAMES[namespace::20])
        begins.append(next(b for a, b in zip([times[-1] - 16, *times], times, strict=False) if b - a > 8))
        assert all((time - begins[-1]) % 16 <= 1.0 for time in times), "a namespace is spread further"
    for start in range(0, 16, 4):
        assert 1 <= sum(start <= begin < start + 4 for begin in begins) <= 10


@pytest.mark.parametrize(("period", "expected"), [(15.0, 0.1), (1.0, 1 / 30), (7.05, 7.05 / 71)])
def test_a_tick_divides_the_period_and_is_a_thirtieth_of_it_at_most(period: float, expected: float) -> None:
    assert Grid(period).tick == pytest.approx(expected)


def test_places_are_multiples_of_the_tick() -> None:
    grid = Grid(15.0)
    places = {grid.place(Key("default", name), len(NAMES), 10_000) for name in NAMES}
    assert all(place / grid.tick == pytest.approx(round(place / grid.tick)) for place in places)
    assert 5 <= len(places) <= 10, "a sixteenth of the period has nine ticks"


@pytest.mark.parametrize(
    ("neighbours", "hpas", "expected"),
    [
        (1, 1, 0.4),
        (1, 2400, 0.4),
        (1, 2401, 0.2),
        (1, 4800, 0.2),
        (1, 4801, 0.1),
        (1, 10_000, 0.1),
        (150, 150, 0.4),  # 160 per second in 15/16 s
        (151, 151, 0.2),
        (1000, 1000, 0.1),  # 326 per second in 3.072 s
    ],
)
def test_few_hpas_have_longer_ticks(neighbours: int, hpas: int, expected: float) -> None:
    """At most 64 HPAs of a period of 15 s are due on a tick that was doubled."""
    grid = Grid(15.0)
    ticks = {grid.place(Key("default", name), neighbours, hpas) / expected for name in NAMES}
    assert all(tick == pytest.approx(round(tick)) for tick in ticks)
    assert any(round(tick) % 2 for tick in ticks), "the tick is even longer"


def test_places_of_a_longer_tick_are_places_of_the_shortest_one() -> None:
    """To the bit: HPAs that were planned before and after others came are due together."""
    grid, shortest = Grid(15.0), {tick * 0.1 for tick in range(150)}
    assert {grid.place(Key("default", name), 1, 1) for name in NAMES} <= shortest


@pytest.mark.parametrize(
    ("neighbours", "expected"),
    [(1, 15 / 16), (256, 15 / 16), (400, 0.003 * 512), (512, 0.003 * 512), (1024, 0.003 * 1024), (5000, 5.0)],
)
def test_a_large_namespace_takes_a_larger_part_of_the_period(neighbours: int, expected: float) -> None:
    grid = Grid(15.0)
    begin = grid.place(Key("default", ""), neighbours, neighbours)  # the share of the empty name is 0
    places = [(grid.place(Key("default", name), neighbours, neighbours) - begin) % 15 for name in NAMES]
    assert grid.width(neighbours) == pytest.approx(expected)
    assert expected - 0.4 < max(places) <= expected  # a tick has 0.4 s at most


@in_virtual_time
async def test_an_hpa_keeps_its_time_when_its_namespace_grows() -> None:
    """512 HPAs take more than a sixteenth of the period of 15 s."""
    bench = Bench(*(hpa(name) for name in NAMES), workers=100)
    bench.controller.start()
    await asyncio.sleep(45)
    for number in range(200, 520):
        added = hpa(f"app-{number}")
        bench.cluster.scales[added.metadata.name] = 1
        bench.source.put(added)
    await asyncio.sleep(45)
    await bench.controller.stop(5)
    for name in NAMES:
        assert all(abs(b - a - 15) < 1e-6 for a, b in itertools.pairwise(bench.metrics.times(name)))


class Idle:
    """A queue that keeps nothing."""

    def __getattr__(self, _: str) -> Callable[..., None]:
        return lambda *_: None


def test_the_ticks_suit_the_number_of_hpas() -> None:
    schedule = Schedule(cast("Any", Idle()), SystemClock(), 15.0)

    def tick(keys: list[Key]) -> float:
        """The longest tick on which all these HPAs are due."""
        dues = [round((schedule.records[key].due or 0.1) % 15, 3) for key in keys]
        return next(tick for tick in (0.4, 0.2, 0.1) if all(round(due / tick, 3) % 1 == 0 for due in dues))

    for count, expected in ((100, 0.4), (2_500, 0.2), (4_900, 0.1), (2_500, 0.2)):
        keys = [Key(f"ours-{number % 4}", f"app-{number}") for number in range(count)]
        schedule.start(keys, at_once=8)
        assert tick(keys) == expected
        for key in keys:
            schedule.forget(key)

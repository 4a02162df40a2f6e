"""After a crash no pod is removed earlier and no target grows faster than without it; a clean restart has no effect."""

import asyncio
import itertools
from datetime import timedelta

import pytest
from controller import lives
from controller.lives import Environment, Life
from support import virtual_time
from support.controller import hpa
from support.virtual_time import in_virtual_time

from hpad.store import persistent

WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 300}}
SQLITE, CONFIG_MAPS = persistent.SaveIntervals(0.25, 1.0), persistent.SaveIntervals(1.0, 15.0)
UNDISTURBED = (285.0, 301.0)
"""Seconds from the end of a peak to the scale-down; the last turn of the peak was up to a period before its end."""
DELAYED = (301.0, 375.0)
"""Seconds from the end of a peak to the scale-down if turns are missing: a full window after the restart."""


async def shrunk(environment: Environment, life: Life, since: float) -> float:
    """Stops at the first scale-down. Returns its time in seconds after `since`."""
    await virtual_time.until(lambda: environment.scales["web"] < 10, seconds=1200, every=0.5)
    await life.stop()
    return virtual_time.now() - since


async def peaked(intervals: persistent.SaveIntervals, turns: int = 2, fails: bool = False) -> tuple[Environment, Life]:
    """Runs ten replicas with the load of five for 225 s, then a peak: the load of ten for `turns` turns.

    If `fails`, no save succeeds from the start of the peak.
    """
    environment = Environment(10, WINDOW)
    life = Life(environment, intervals)
    await asyncio.sleep(46)
    environment.load = 50
    await asyncio.sleep(225)
    environment.backend.fails = fails
    environment.load = 100
    asked = len(environment.wanted)
    await virtual_time.until(lambda: len(environment.wanted) == asked + turns)
    environment.load = 50
    return environment, life


@pytest.mark.parametrize("turns", [1, 2, 3, 4, 5])
@in_virtual_time
async def test_a_crash_after_failed_saves_delays_the_scale_down(turns: int) -> None:
    environment, life = await peaked(SQLITE, turns, fails=True)
    since = virtual_time.now()
    await asyncio.sleep(2)
    await life.crash()
    environment.backend.fails = False
    took = await shrunk(environment, Life(environment, SQLITE), since)
    assert DELAYED[0] <= took <= DELAYED[1]


@pytest.mark.parametrize("later", [0.01, 3, 7, 11])
@in_virtual_time
async def test_a_crash_before_a_turn_is_saved_delays_the_scale_down(later: float) -> None:
    environment, life = await peaked(CONFIG_MAPS, turns=1)
    environment.backend.slow = 60.0
    since = virtual_time.now()
    await asyncio.sleep(later)
    await life.crash()
    environment.backend.slow = 0.0
    took = await shrunk(environment, Life(environment, CONFIG_MAPS), since)
    assert DELAYED[0] <= took <= DELAYED[1]


@pytest.mark.parametrize("jump", [0, -3600, -20, 20, 3600])
@pytest.mark.parametrize("down", [1, 6])
@in_virtual_time
async def test_a_crash_between_two_saved_turns_changes_nothing(down: float, jump: int) -> None:
    environment, life = await peaked(SQLITE)
    since = virtual_time.now()
    await asyncio.sleep(2)
    await life.crash()
    environment.clock.off += timedelta(seconds=jump)
    await asyncio.sleep(down)
    took = await shrunk(environment, Life(environment, SQLITE), since)
    assert UNDISTURBED[0] <= took <= UNDISTURBED[1]


@in_virtual_time
async def test_two_crashes_between_two_turns_delay_no_growth() -> None:
    """The policies allow one step in 15 seconds, which is also the period."""
    environment = Environment(1, {}, maxReplicas=500)
    environment.load = 5000
    life = Life(environment)
    await virtual_time.until(lambda: len(environment.writes) == 4)
    for _ in range(2):
        await asyncio.sleep(3)
        await life.crash()
        life = Life(environment)
    await virtual_time.until(lambda: len(environment.writes) == 7)
    await life.stop()
    times = [write.at for write in environment.writes]
    assert [later - earlier for earlier, later in itertools.pairwise(times[1:])] == pytest.approx([15] * 5, abs=0.1)


@pytest.mark.parametrize("jump", [-3600, -20, 20, 3600])
@in_virtual_time
async def test_a_clock_step_while_hpad_is_down_hides_no_missing_turn(jump: int) -> None:
    """The peak is not saved, and by the wall clock the planned turn may seem to be in the future."""
    environment, life = await peaked(SQLITE, 1, fails=True)
    since = virtual_time.now()
    await asyncio.sleep(2)
    await life.crash()
    environment.clock.off += timedelta(seconds=jump)
    environment.backend.fails = False
    took = await shrunk(environment, Life(environment, SQLITE), since)
    assert DELAYED[0] <= took <= DELAYED[1]


@pytest.mark.parametrize("intervals", [SQLITE, CONFIG_MAPS])
@pytest.mark.parametrize("jump", [0, -3600, 3600])
@pytest.mark.parametrize("down", [0.5, 5, 14, 20])
@in_virtual_time
async def test_a_clean_restart_changes_nothing(down: float, jump: int, intervals: persistent.SaveIntervals) -> None:
    """Also if it makes a planned turn slightly late."""
    environment, life = await peaked(intervals)
    since = virtual_time.now()
    await asyncio.sleep(2)
    await life.stop()
    environment.clock.off += timedelta(seconds=jump)
    await asyncio.sleep(down)
    took = await shrunk(environment, Life(environment, intervals), since)
    assert UNDISTURBED[0] <= took <= UNDISTURBED[1]


@in_virtual_time
async def test_turns_are_missing_after_a_long_stop() -> None:
    environment, life = await peaked(SQLITE)
    since = virtual_time.now()
    await asyncio.sleep(2)
    await life.stop()
    await asyncio.sleep(45)
    assert await shrunk(environment, Life(environment, SQLITE), since) > 2 + 45 + 285


def test_another_machine_continues_after_a_clean_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(clean: bool) -> float:
        environment, life = await peaked(SQLITE)
        since = virtual_time.now()
        await asyncio.sleep(2)
        await (life.stop() if clean else life.crash())
        lives.elsewhere(environment, monkeypatch, 2, ticks=-200.0)
        await asyncio.sleep(20)
        return await shrunk(environment, Life(environment, SQLITE), since)

    clean, crashed = virtual_time.run(main(True)), virtual_time.run(main(False))
    assert UNDISTURBED[0] <= clean <= UNDISTURBED[1] + lives.PERIOD, "its planned times differ"
    assert 2 + 20 + 300 <= crashed <= DELAYED[1]


@pytest.mark.parametrize("fails", [False, True])
@in_virtual_time
async def test_an_unsaved_turn_before_its_planned_time_is_known_to_be_missing(fails: bool) -> None:
    """An edit causes a turn just when ten replicas are needed. hpad crashes before it is saved.

    While the store fails, hpad waits for the planned turn, as Kubernetes does.
    """
    environment = Environment(10, WINDOW)
    life = Life(environment, CONFIG_MAPS)
    await asyncio.sleep(46)
    environment.load = 50
    await asyncio.sleep(225)
    asked = len(environment.wanted)
    await virtual_time.until(lambda: len(environment.wanted) == asked + 1)
    await asyncio.sleep(CONFIG_MAPS.longest / 3)
    await life.store.flush_now(lives.WEB)
    environment.backend.fails = fails
    environment.load = 100
    life.bench.source.put(hpa("web", behavior=WINDOW, maxReplicas=11))
    await asyncio.sleep(2.5)
    assert environment.wanted[-1][1] == (5 if fails else 10)
    environment.load = 50
    since = virtual_time.now()
    await life.crash()
    environment.backend.fails = False
    took = await shrunk(environment, Life(environment, CONFIG_MAPS), since)
    assert took < 100 if fails else DELAYED[0] - 10 <= took <= DELAYED[1]


@in_virtual_time
async def test_a_second_crash_before_the_first_turn_is_saved_is_known() -> None:
    """A first turn before the planned time is noted in the store before it runs."""
    environment, life = await peaked(CONFIG_MAPS)
    environment.load = 50
    await asyncio.sleep(225)
    await life.store.flush_now(lives.WEB)
    await life.crash()
    environment.load = 100
    second = Life(environment, CONFIG_MAPS)
    asked = len(environment.wanted)
    await virtual_time.until(lambda: len(environment.wanted) > asked, seconds=14)
    since = virtual_time.now()
    await second.crash()
    environment.load = 50
    took = await shrunk(environment, Life(environment, CONFIG_MAPS), since)
    assert 285 <= took <= DELAYED[1]


GROWTH = {"scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]}}


@pytest.mark.parametrize("saved", [True, False])
@pytest.mark.parametrize("shrinks", [True, False])
@in_virtual_time
async def test_a_restart_does_not_speed_up_growth(saved: bool, shrinks: bool) -> None:
    """Growth that was written but not saved counts, also if it reverted a scale-down and left no trace in the count.

    After the scale-down the policy allows the removed pods and two more.
    """
    environment = Environment(3, {**GROWTH, "scaleDown": {"stabilizationWindowSeconds": 0}})
    life = Life(environment, SQLITE)
    await asyncio.sleep(31)
    environment.backend.fails = not saved
    if shrinks:
        environment.load = 10
        await asyncio.sleep(16)
        assert environment.scales["web"] == 1
    environment.load = 100
    await virtual_time.until(lambda: environment.scales["web"] == 5)
    await asyncio.sleep(1)
    await life.crash()
    environment.backend.fails = False
    life = Life(environment, SQLITE)
    await asyncio.sleep(200)
    await life.stop()
    assert environment.scales["web"] > 5
    assert lives.too_fast(environment, 2, 60) == []


@in_virtual_time
async def test_pods_removed_by_others_while_hpad_is_down_do_not_speed_up_growth() -> None:
    environment = Environment(9, GROWTH)
    life = Life(environment, SQLITE)
    await asyncio.sleep(31)
    await life.crash()
    environment.scales["web"] = 2
    life = Life(environment, SQLITE)
    await asyncio.sleep(400)
    await life.stop()
    assert environment.scales["web"] == 9
    assert lives.too_fast(environment, 2, 60) == []

"""HPAs with a period of their own (annotation hpad.io/sync-period), beside others."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from controller import lives
from controller.lives import Environment, Life
from support import virtual_time
from support.controller import Bench, Switch, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.controller.planning import own_place
from hpad.engine import annotations
from hpad.engine.controls import SYNC_PERIOD
from hpad.engine.history import Memory
from hpad.store import persistent

WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 300}}
SQLITE = persistent.SaveIntervals(0.25, 1.0)
ROUNDING = 0.01


def own(found: HorizontalPodAutoscaler, period: str | None) -> HorizontalPodAutoscaler:
    """Returns the HPA with that period of its own."""
    metadata = msgspec.structs.replace(found.metadata, annotations={SYNC_PERIOD: period} if period else None)
    return msgspec.structs.replace(found, metadata=metadata)


def intervals(bench: Bench, name: str, since: float = 0.0) -> list[float]:
    """Returns the seconds between successive turns from `since` on."""
    times = [at for at in bench.metrics.times(name) if at >= since]
    return [after - before for before, after in itertools.pairwise(times)]


def regular(found: list[float], period: float) -> bool:
    """Whether turns were a period apart, but for the turn at the start."""
    return bool(found) and found[0] <= period + ROUNDING and found[1:] == pytest.approx([period] * len(found[1:]))


@in_virtual_time
async def test_each_hpa_has_its_own_period_beside_the_others():
    bench = Bench(own(hpa("quick"), "2s"), hpa("web"), own(hpa("slow"), "10m"))
    await bench.advance(1220)
    assert regular(intervals(bench, "quick"), 2)
    assert regular(intervals(bench, "web"), 15)
    assert regular(intervals(bench, "slow"), 600)
    assert [len(bench.metrics.times(name)) for name in ("quick", "web", "slow")] == pytest.approx([611, 82, 3], abs=1)
    counted, seconds = bench.telemetry.controller.lateness.cumulated()
    assert counted[-1][1] == pytest.approx(610 + 82 + 2, abs=2)
    assert seconds < 1


@pytest.mark.parametrize("period", [1.0, 2.0, 3600.0])
def test_hpas_with_their_own_period_are_spread_over_it(period):
    """Two thousand HPAs of one namespace: a hundred in each twentieth of the period, at multiples of a hundredth."""
    places = [own_place(Key("shop", f"app-{number}"), period) for number in range(2000)]
    assert all(0 <= place < period for place in places)
    tick = min(0.1, period / 100)
    assert all(abs(place / tick - round(place / tick)) < 1e-6 for place in places)
    counts = [sum(part <= place / period * 20 + 1e-9 < part + 1 for place in places) for part in range(20)]
    assert min(counts) > 60
    assert max(counts) < 140


@in_virtual_time
async def test_a_changed_period_takes_effect_at_once():
    bench = Bench(own(hpa("web"), "1h"))
    bench.controller.start()
    await asyncio.sleep(100)
    assert len(bench.metrics.times("web")) == 1
    bench.source.put(own(hpa("web"), "2s"))
    await asyncio.sleep(100)
    assert bench.metrics.times("web")[1] == 100
    assert regular(intervals(bench, "web", since=100), 2)
    bench.source.put(own(hpa("web"), "1500ms"))
    await asyncio.sleep(100)
    assert regular(intervals(bench, "web", since=202), 1.5)
    bench.source.put(hpa("web"))
    await asyncio.sleep(100)
    assert regular(intervals(bench, "web", since=302), 15)
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_period_from_the_configuration_takes_effect_with_the_reload():
    bench = Bench(hpa("web"))
    bench.controller.start()
    await asyncio.sleep(100)
    reader = annotations.AnnotationReader(None, lambda _: {SYNC_PERIOD: "3s"})
    bench.reconciler.retune(msgspec.structs.replace(bench.reconciler._observer.options, own=reader))
    bench.controller.retune(period=15.0, workers=8)
    await asyncio.sleep(100)
    assert regular(intervals(bench, "web", since=118), 3)
    await bench.controller.stop(5)


@in_virtual_time
async def test_an_invalid_period_leaves_the_common_one():
    bench = Bench(own(hpa("web"), "500ms"))
    await bench.advance(300)
    assert regular(intervals(bench, "web"), 15)


@in_virtual_time
async def test_the_deadline_for_metrics_follows_a_shorter_period():
    bench = Bench(own(hpa("quick"), "2s"), hpa("web"), own(hpa("slow"), "1h"))
    deadlines, gather = {}, bench.metrics.gather

    async def noted(queries: Any, *, deadline: float, identity: Any) -> Any:
        deadlines[identity.name] = deadline
        return await gather(queries, deadline=deadline, identity=identity)

    bench.metrics.gather = noted  # type: ignore[method-assign]
    await bench.advance(30)
    assert deadlines == {"quick": pytest.approx(1.2), "web": pytest.approx(9.0), "slow": pytest.approx(9.0)}


@in_virtual_time
async def test_a_turn_that_hangs_ends_in_time_for_the_next_one_of_a_short_period():
    bench = Bench(own(hpa("quick"), "2s"))
    bench.cluster.unwatched = {"quick"}
    bench.cluster.read_seconds = iter([0.0] * 10 + [100.0] + [0.0] * 10000)
    await bench.advance(60)
    assert max(intervals(bench, "quick")) == pytest.approx(4.0)  # one planned time passed during the turn


@in_virtual_time
async def test_the_windows_of_an_hpa_with_a_long_period_end_as_written():
    """Five replicas, whose load falls to that of one; with hourly turns every window of 300 s has passed."""
    bench = Bench(own(hpa("slow", behavior=WINDOW), "1h"))
    bench.cluster.scales["slow"], bench.metrics.values["slow"] = 5, 50
    bench.controller.start()
    await virtual_time.until(lambda: len(bench.metrics.times("slow")) == 2, seconds=3700)
    bench.metrics.values["slow"] = 10
    await asyncio.sleep(3601)
    assert bench.cluster.writes == [1]
    await bench.controller.stop(5)


@pytest.mark.parametrize(("seconds", "counted"), [(2.9, 0.0), (8.0, 8.0)])
@in_virtual_time
async def test_a_long_period_does_not_date_slow_metrics_back(seconds, counted):
    """A turn counts as of its planned moment while its metrics take less than a fifth of 15 s."""
    bench = Bench(own(hpa("slow"), "1h"))
    bench.controller.start()
    await asyncio.sleep(1)

    async def read() -> int:
        await asyncio.sleep(seconds)
        return 10

    bench.metrics.values["slow"] = read
    await virtual_time.until(lambda: len(bench.metrics.times("slow")) == 2, seconds=3700, every=0.1)
    await asyncio.sleep(10)
    planned = virtual_time.START + timedelta(seconds=bench.metrics.times("slow")[1])
    at = bench.store.get(Key("default", "slow")).at
    assert at is not None
    assert (at - planned).total_seconds() == pytest.approx(counted, abs=0.01)
    await bench.controller.stop(5)


@pytest.mark.parametrize("crashes", [False, True])
@in_virtual_time
async def test_state_of_a_long_period_is_complete_after_a_restart(crashes):
    """The last turn asked for ten replicas 20 minutes ago, so no window holds them."""
    environment = Environment(10, WINDOW)
    environment.found = own(environment.found, "1h")
    life = Life(environment, SQLITE)
    await virtual_time.until(lambda: len(environment.wanted) == 2, seconds=3700)  # the second one is a planned turn
    await asyncio.sleep(10)
    await (life.crash() if crashes else life.stop())
    environment.load = 50
    await asyncio.sleep(1200)
    life = Life(environment, SQLITE)
    await asyncio.sleep(2)
    assert environment.scales["web"] == 5
    await life.stop()


@pytest.mark.parametrize(("down", "crashes", "least", "most"), [(0.5, False, 298, 303), (5, True, 334, 341)])
@in_virtual_time
async def test_a_restart_with_a_short_period_removes_no_pod_early(down, crashes, least, most):
    """The load falls after 60 s; the process ends 30 s later. After a crash a full window follows the restart."""
    environment = Environment(10, WINDOW)
    environment.found = own(environment.found, "2s")
    life = Life(environment, SQLITE)
    await asyncio.sleep(60)
    environment.load, since = 50, virtual_time.now()
    await asyncio.sleep(30)
    await (life.crash() if crashes else life.stop())
    await asyncio.sleep(down)
    life = Life(environment, SQLITE)
    await virtual_time.until(lambda: environment.scales["web"] < 10, seconds=600, every=0.5)
    assert least <= virtual_time.now() - since <= most
    await life.stop()
    assert lives.too_early(environment, 300) == []


@in_virtual_time
async def test_a_new_leader_has_the_first_turn_within_the_common_period():
    """The last turns elsewhere were 5 s (1h) and 1 s (2s) before."""
    owner = Switch(on=False)
    bench = Bench(own(hpa("quick"), "2s"), own(hpa("slow"), "1h"), owner=owner)
    bench.controller.start()
    await asyncio.sleep(100)
    assert not bench.metrics.asked
    for name, ago in (("quick", 1), ("slow", 5)):
        at = bench.clock.now() - timedelta(seconds=ago)
        bench.store.put(Key("default", name), Memory(uid="1", at=at, last_count=1, loaded=True))
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(3700)
    assert bench.metrics.times("slow")[0] == pytest.approx(110, abs=0.1)
    assert bench.metrics.times("quick")[0] <= 101.1
    assert len(bench.metrics.times("slow")) in (2, 3)
    assert regular(intervals(bench, "quick", since=102), 2)
    await bench.controller.stop(5)


@in_virtual_time
async def test_many_hpas_with_long_periods_have_their_first_turn_within_the_common_period():
    names = [f"app-{number}" for number in range(100)]
    bench = Bench(*(own(hpa(name), "1h") for name in names))
    await bench.advance(15.1)
    assert sorted(name for _, name in bench.metrics.asked) == sorted(names)


@in_virtual_time
async def test_a_metric_that_fails_is_asked_for_again_after_the_own_period():
    bench = Bench(own(hpa("quick"), "2s"))
    bench.metrics.values["quick"] = AdapterError("down")
    await bench.advance(60)
    assert regular(intervals(bench, "quick"), 2)

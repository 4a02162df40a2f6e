"""The turns of a controller: planned times, edits, hanging metrics, overload, deletion and stop."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.api.sample import HPAIdentity


class RoundingLoop(virtual_time.VirtualLoop):
    """A loop whose timers fire at whole milliseconds, half of them early, as in uvloop. Fails after 10,000 timers."""

    timers = 0

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self.timers += 1
        assert self.timers < 10_000, "each early timer sets another one, without end"
        return super().call_at(round(when, 3), callback, *args, context=context)


def test_a_turn_less_than_a_millisecond_early_counts_as_planned() -> None:
    async def main() -> tuple[Bench, str]:
        bench = Bench(*(hpa(f"app-{n}") for n in range(20)), workers=10)
        await bench.advance(150)
        return bench, (await bench.telemetry.exposition()).decode()

    with asyncio.Runner(loop_factory=RoundingLoop) as runner:
        bench, series = runner.run(main())
    assert [len(bench.metrics.times(f"app-{n}")) for n in range(20)] == [10] * 20
    assert "hpad_reconcile_lateness_seconds_count 200.0" in series


@in_virtual_time
async def test_a_few_hpas_have_their_first_turn_at_once() -> None:
    bench = Bench(hpa("web"), hpa("api"))
    await bench.advance(0.001)
    assert [at for at, _ in bench.metrics.asked] == [0, 0]


@in_virtual_time
async def test_queries_carry_the_identity_of_the_hpa() -> None:
    web = hpa("web")
    metadata = msgspec.structs.replace(web.metadata, labels={"tier": "front", "team": "a"})
    bench = Bench(msgspec.structs.replace(web, metadata=metadata))
    await bench.advance(0.001)
    labels = (("team", "a"), ("tier", "front"))
    assert bench.metrics.identities == [
        HPAIdentity(name="web", target_kind="Deployment", target_name="web", labels=labels)
    ]


@in_virtual_time
async def test_an_edited_hpa_has_a_turn_at_once_and_keeps_its_planned_times() -> None:
    bench = Bench(hpa("web"))
    bench.controller.start()
    await asyncio.sleep(31)
    regular = bench.metrics.times("web")[1]
    await asyncio.sleep((regular - 31 + 7) % 15)
    changed = virtual_time.now()
    bench.source.put(hpa("web", average=5))
    await asyncio.sleep(15)
    await bench.controller.stop(5)
    times = bench.metrics.times("web")
    assert changed in times
    planned = [at - regular for at in times if at > regular and at != changed]
    assert planned
    assert planned == pytest.approx([15 * turn for turn in range(1, len(planned) + 1)])


@pytest.mark.parametrize(("before", "skipped"), [(3, True), (7, True), (8, False), (14, False)])
@in_virtual_time
async def test_a_planned_turn_soon_after_an_early_rescale_is_skipped(before: int, skipped: bool) -> None:
    """`before` seconds before the next planned turn the spec changes, and with it the count."""
    bench = Bench(hpa("web"))
    bench.controller.start()
    await asyncio.sleep(31)
    regular = bench.metrics.times("web")[-1]
    await asyncio.sleep((regular - before - 31) % 15)
    changed = virtual_time.now()
    bench.source.put(hpa("web", average=5))
    await asyncio.sleep(46)
    await bench.controller.stop(5)
    assert bench.cluster.writes == [2]
    after = [round(at - changed) for at in bench.metrics.times("web") if at >= changed]
    turns = [before, before + 15, before + 30]
    assert after[:3] == [0, *(turns[1:] if skipped else turns[:2])]


@pytest.mark.parametrize("name", ["web", "api", "shop", "cart", "mail", "auth"])
@in_virtual_time
async def test_a_new_hpa_that_scales_has_its_next_turn_after_half_a_period(name: str) -> None:
    bench = Bench(hpa(name))
    bench.metrics.values[name] = 20
    await bench.advance(40)
    first, second, third = bench.metrics.times(name)[:3]
    assert first == 0
    assert 7.5 <= second <= 22.5
    assert third - second == pytest.approx(15)


@in_virtual_time
async def test_a_status_write_causes_no_turn() -> None:
    bench = Bench(hpa("web"))
    bench.controller.start()
    await asyncio.sleep(0.001)
    web = bench.source.get(Key("default", "web"))
    for version in range(5):
        metadata = msgspec.structs.replace(web.metadata, resource_version=str(version))
        bench.source.put(msgspec.structs.replace(web, metadata=metadata))
    await asyncio.sleep(0.001)
    await bench.controller.stop(5)
    assert len(bench.metrics.asked) == 1


@in_virtual_time
async def test_a_hanging_metric_delays_no_other_hpa() -> None:
    """The reconcile of its own HPA times out within the period, is counted, and is retried in the next period."""

    async def hang() -> None:
        await asyncio.sleep(3600)

    bench = Bench(hpa("slow"), hpa("web"), workers=2)
    bench.metrics.values["slow"] = hang
    await bench.advance(151)
    series = (await bench.telemetry.exposition()).decode()
    assert len(bench.metrics.times("web")) >= 10
    assert len(bench.metrics.times("slow")) >= 10
    total = 'reconciliations_total{action="none",error="internal"} '
    assert float(series.split(total)[1].split()[0]) >= 9


@in_virtual_time
async def test_a_source_that_hangs_for_many_hpas_delays_no_other_hpa() -> None:
    """Waiting for metrics takes no worker: two workers serve all HPAs while a hundred wait."""

    async def hang() -> None:
        await asyncio.sleep(9)

    bench = Bench(hpa("web"), *(hpa(f"slow-{n}") for n in range(100)), workers=2)
    for n in range(100):
        bench.metrics.values[f"slow-{n}"] = hang
    await bench.advance(151)
    times = bench.metrics.times("web")
    assert len(times) >= 10
    assert all(abs(later - earlier - 15) < 0.01 for earlier, later in itertools.pairwise(times))


@in_virtual_time
async def test_one_worker_is_enough() -> None:
    """A reconcile finds the only worker free when its metrics arrive, although no other HPA has a turn."""

    async def answer() -> int:
        await asyncio.sleep(1)
        return 20

    bench = Bench(hpa("web"), workers=1)
    bench.metrics.values["web"] = answer
    await bench.advance(50)
    assert len(bench.metrics.times("web")) >= 3
    assert bench.cluster.writes == [2]


@in_virtual_time
async def test_started_reconciles_finish_under_overload() -> None:
    """A hundred HPAs with slow metrics and one write per second.

    Only as many reconciles wait for metrics as can be written within the period after the metrics arrive. A few end at
    their deadline, because the limit is an estimate.
    """

    async def answer() -> int:
        await asyncio.sleep(5)
        return 10_000

    bench = Bench(*(hpa(f"web-{number}") for number in range(100)), workers=1)
    bench.metrics.values.update({f"web-{number}": answer for number in range(100)})
    bench.cluster.write_seconds = 1

    async def lose_pods() -> None:
        while True:
            bench.cluster.scales.update({f"web-{number}": 1 for number in range(100)})
            await asyncio.sleep(1)

    losing = asyncio.create_task(lose_pods())
    bench.controller.start()
    await asyncio.sleep(30)  # the controller first measures how long a turn takes
    started, done = len(bench.metrics.asked), len(bench.cluster.writes)
    await asyncio.sleep(300)
    losing.cancel()
    await bench.controller.stop(0)
    started = len(bench.metrics.asked) - started
    done = len(bench.cluster.writes) - done
    assert done > 0.9 * started


@in_virtual_time
async def test_wait_stopped_returns_after_a_stop() -> None:
    bench = Bench(hpa("web"))
    bench.controller.start()
    waiting = asyncio.create_task(bench.controller.wait_stopped())
    await asyncio.sleep(60)
    assert not waiting.done()
    await bench.controller.stop(5)
    await waiting


@in_virtual_time
async def test_an_hpa_deleted_during_its_turn_leaves_no_state() -> None:
    bench = Bench(hpa("web"), hpa("api"))

    async def slow() -> int:
        await asyncio.sleep(3)
        return 10

    bench.metrics.values["web"] = slow
    bench.controller.start()
    await asyncio.sleep(1)
    bench.source.drop("web")
    await asyncio.sleep(60)
    await bench.controller.stop(5)
    assert list(bench.store.keys()) == [Key("default", "api")]
    assert len(bench.metrics.times("web")) == 1


@in_virtual_time
async def test_an_hpa_recreated_with_the_same_name_has_no_history() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    bench.controller.start()
    await asyncio.sleep(1)
    before = len(bench.store.get(Key("default", "web")).history.scale_ups)
    bench.metrics.values["web"] = 40
    bench.source.put(hpa("web", uid="2"))
    await asyncio.sleep(0.5)
    after = len(bench.store.get(Key("default", "web")).history.scale_ups)
    await bench.controller.stop(5)
    assert (before, after) == (1, 0)


@in_virtual_time
async def test_hpas_on_common_pods_compete() -> None:
    bench = Bench(hpa("web"), hpa("twin"))
    bench.cluster.selectors["twin"] = "app=web"
    await bench.advance(31)
    assert {event.reason for event in bench.cluster.events} == {"AmbiguousSelector", "FailedComputeMetricsReplicas"}
    assert bench.cluster.scales == {"web": 1, "twin": 1}


def test_a_stop_waits_for_reconciles_and_cancels_them_after_its_timeout() -> None:
    async def main(seconds: float) -> tuple[float, int]:
        bench = Bench(hpa("web"))

        async def slow() -> int:
            await asyncio.sleep(seconds)
            return 40

        bench.metrics.values["web"] = slow
        bench.controller.start()
        await asyncio.sleep(1)
        await bench.controller.stop(5)
        return virtual_time.now(), bench.cluster.scales["web"]

    assert virtual_time.run(main(3)) == (3, 4)
    assert virtual_time.run(main(12)) == (6, 1)

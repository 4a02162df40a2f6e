"""The heartbeat under virtual time: pace, isolation, conflicts, deletion; seen in the state of a small world."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
import virtual
from control.bench import Bench, hpa

from hpad.kube import errors
from hpad.model.key import Key
from hpad.model.sample import Asker

CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")


def run(main: Any) -> Any:
    return virtual.run(main())


def test_every_hpa_is_reconciled_once_a_period_and_spread_over_it() -> None:
    async def main() -> Bench:
        bench = Bench(*(hpa(f"app-{n}") for n in range(200)), workers=10)
        await bench.beat(150)
        return bench

    bench = run(main)
    first: list[float] = []
    for n in range(200):
        times = bench.metrics.times(f"app-{n}")
        assert len(times) == 10
        assert all(abs(later - earlier - 15) < 1e-6 for earlier, later in itertools.pairwise(times))
        first.append(times[0])
    for start in range(0, 15, 3):
        assert 20 <= sum(start <= at < start + 3 for at in first) <= 60


def test_a_few_hpas_begin_at_once() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), hpa("api"))
        await bench.beat(0.001)
        return bench

    assert [at for at, _ in run(main).metrics.asked] == [0, 0]


def test_metrics_are_told_which_hpa_asks() -> None:
    async def main() -> Bench:
        web = hpa("web")
        metadata = msgspec.structs.replace(web.metadata, labels={"tier": "front", "team": "a"})
        bench = Bench(msgspec.structs.replace(web, metadata=metadata))
        await bench.beat(0.001)
        return bench

    labels = (("team", "a"), ("tier", "front"))
    assert run(main).metrics.askers == [Asker(name="web", target_kind="Deployment", target_name="web", labels=labels)]


def test_a_changed_spec_runs_at_once_and_keeps_the_rhythm() -> None:
    async def main() -> list[float]:
        bench = Bench(hpa("web"))
        bench.controller.start()
        await asyncio.sleep(31)
        regular = bench.metrics.times("web")[1:]
        await asyncio.sleep((regular[0] - 31 + 7) % 15)
        changed = asyncio.get_running_loop().time()
        bench.source.put(hpa("web", goal=5))
        await asyncio.sleep(15)
        await bench.controller.stop(5)
        times = bench.metrics.times("web")
        assert changed in times
        return [at - regular[0] for at in times if at > regular[0] and at != changed]

    assert all(offset % 15 == pytest.approx(0, abs=1e-6) or 15 - offset % 15 < 1e-6 for offset in run(main))


def test_a_status_written_by_anybody_is_no_reason_to_run() -> None:
    async def main() -> int:
        bench = Bench(hpa("web"))
        bench.controller.start()
        await asyncio.sleep(0.001)
        held = bench.source.get(Key("default", "web"))
        for version in range(5):
            metadata = msgspec.structs.replace(held.metadata, resource_version=str(version))
            bench.source.put(msgspec.structs.replace(held, metadata=metadata))
        await asyncio.sleep(0.001)
        await bench.controller.stop(5)
        return len(bench.metrics.asked)

    assert run(main) == 1


def test_a_metric_that_hangs_holds_up_nobody_else() -> None:
    """And its own HPA is given up before the period is over, counted, and tried again in the next one."""

    async def hang() -> None:
        await asyncio.sleep(3600)

    async def main() -> tuple[Bench, str]:
        bench = Bench(hpa("slow"), hpa("web"), workers=2)
        bench.metrics.values["slow"] = hang
        await bench.beat(151)
        return bench, (await bench.telemetry.exposition()).decode()

    bench, series = run(main)
    assert len(bench.metrics.times("web")) >= 10
    assert len(bench.metrics.times("slow")) >= 10
    total = 'reconciliations_total{action="none",error="internal"} '
    assert float(series.split(total)[1].split()[0]) >= 9


def test_a_source_that_hangs_for_many_holds_up_nobody_else() -> None:
    """Waiting takes no worker: two of them serve everybody while three hundred HPAs wait for nothing."""

    async def hang() -> None:
        await asyncio.sleep(9)

    async def main() -> Bench:
        bench = Bench(hpa("web"), *(hpa(f"slow-{n}") for n in range(300)), workers=2)
        for n in range(300):
            bench.metrics.values[f"slow-{n}"] = hang
        await bench.beat(151)
        return bench

    times = run(main).metrics.times("web")
    assert len(times) >= 10
    assert all(abs(later - earlier - 15) < 0.01 for earlier, later in itertools.pairwise(times))


def test_a_bug_in_one_reconcile_is_counted_and_stops_nothing() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def main() -> tuple[Bench, str]:
        bench = Bench(hpa("bad"), hpa("web"), workers=1)
        bench.metrics.values["bad"] = fail
        await bench.beat(149)
        return bench, (await bench.telemetry.exposition()).decode()

    bench, series = run(main)
    assert len(bench.metrics.times("web")) >= 10
    bugs = float(series.split("\nhpad_bugs_total ")[1].split()[0])
    assert bugs == len(bench.metrics.times("bad")) >= 10


def test_scaling_writes_scale_status_and_event() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        await bench.beat(0.5)
        return bench

    bench = run(main)
    assert bench.world.scales["web"] == 4
    assert [event.reason for event in bench.world.events] == ["SuccessfulRescale"]
    assert bench.world.statuses[-1].desired_replicas == 4
    last = bench.store.get(Key("default", "web")).last
    assert last is not None
    assert last.sentence.startswith("scale web from 1 to 4")


@pytest.mark.parametrize(
    ("refusals", "writes", "scaled"),
    [([CONFLICT], 2, True), ([CONFLICT] * 4, 5, True), ([CONFLICT] * 5, 5, False)],
)
def test_a_conflict_is_tried_again_after_a_fresh_read_five_times_in_all(
    refusals: list[errors.ApiError], writes: int, scaled: bool
) -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.world.refusals = list(refusals)
        await bench.beat(0.5)
        return bench

    bench = run(main)
    assert bench.world.writes == [4] * writes
    assert bench.world.fresh_reads == writes - 1
    assert bench.world.scales["web"] == (4 if scaled else 1)
    assert [event.reason for event in bench.world.events] == ["SuccessfulRescale" if scaled else "FailedRescale"]


def test_a_count_that_somebody_else_changed_is_not_overruled_by_a_decision_for_another() -> None:
    """What was decided for one replica says nothing of eight, which may be more than the watch had told of by then."""

    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        read = bench.world.read_scale

        async def behind(namespace: str, ref: Any) -> Any:
            bench.world.read_scale = read  # type: ignore[method-assign]  # the watch catches up
            stale = await read(namespace, ref)
            bench.world.scales["web"] = 8
            return stale

        bench.world.read_scale = behind  # type: ignore[method-assign]  # a watch that lags
        bench.world.refusals = [CONFLICT]
        await bench.beat(0.05)
        assert bench.world.scales["web"] == 8
        assert "set the replicas from 1 to 8 meanwhile" in bench.world.events[-1].message
        return bench

    assert run(main).world.writes == [4]


def test_any_other_refusal_is_final_until_the_next_period() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.world.refusals = [errors.ApiError(403, "Forbidden", "not allowed")]
        await bench.beat(0.5)
        return bench

    bench = run(main)
    assert bench.world.writes == [4]
    assert "not allowed" in bench.world.events[-1].message


def test_a_fresh_read_that_fails_ends_the_attempts() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.world.refusals = [CONFLICT]
        bench.world.read_error = errors.ApiError(0, "", "the connection was lost")
        await bench.beat(0.5)
        return bench

    bench = run(main)
    assert bench.world.writes == [4]
    assert "the connection was lost" in bench.world.events[-1].message


def test_a_deleted_hpa_is_forgotten_even_while_it_is_worked_on() -> None:
    async def main() -> Bench:
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
        return bench

    bench = run(main)
    assert list(bench.store.keys()) == [Key("default", "api")]
    assert len(bench.metrics.times("web")) == 1


@pytest.mark.parametrize("anew", [False, True])
def test_nothing_is_scaled_any_more_for_an_hpa_that_is_gone(anew: bool) -> None:
    """Whoever deletes an HPA scales by hand next, and must not be overruled by a reconcile that waited for metrics."""

    async def main() -> Bench:
        bench = Bench(hpa("web"))

        async def slow() -> int:
            await asyncio.sleep(3)
            return 40

        bench.metrics.values["web"] = slow
        bench.controller.start()
        await asyncio.sleep(1)
        bench.source.drop("web")
        bench.world.scales["web"] = 7
        if anew:
            bench.source.put(hpa("web", uid="2", minReplicas=6))
        await asyncio.sleep(2.5)
        if anew:
            assert len(bench.metrics.times("web")) == 2
        else:
            await asyncio.sleep(60)
        await bench.controller.stop(0)
        return bench

    bench = run(main)
    assert bench.world.writes == []
    assert bench.world.scales["web"] == 7


def test_an_hpa_made_anew_under_the_name_starts_afresh() -> None:
    async def main() -> tuple[int, int]:
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
        return before, after

    assert run(main) == (1, 0)


def test_a_status_that_could_not_be_written_after_a_rescale_is_made_up_for() -> None:
    """When it last scaled, and whether it took the last replica, an HPA knows from nowhere else."""

    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.world.status_refusals = [CONFLICT, errors.ApiError(0, "Timeout", "did not answer in time")]
        await bench.beat(46)
        return bench

    bench = run(main)
    assert bench.world.writes == [4]
    held = bench.source.get(Key("default", "web"))
    assert held is not None
    assert held.status.last_scale_time is not None
    assert bench.store.get(Key("default", "web")).begun is None
    assert len(bench.store.get(Key("default", "web")).history.scale_ups) == 1


def test_hpas_on_common_pods_are_rivals() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), hpa("twin"))
        bench.world.selectors["twin"] = "app=web"
        await bench.beat(31)
        return bench

    bench = run(main)
    assert {event.reason for event in bench.world.events} == {"AmbiguousSelector", "FailedComputeMetricsReplicas"}
    assert bench.world.scales == {"web": 1, "twin": 1}


def test_a_dry_run_writes_nothing() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), dry_run=True)
        bench.metrics.values["web"] = 40
        await bench.beat(31)
        return bench

    bench = run(main)
    assert (bench.world.writes, bench.world.statuses, bench.world.events) == ([], [], [])
    assert bench.store.get(Key("default", "web")).last.sentence.startswith("scale web from 1 to 4")


def test_without_an_api_object_the_status_is_remembered() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), owned=False)
        bench.metrics.values["web"] = 40
        await bench.beat(31)
        return bench

    bench = run(main)
    assert bench.world.scales["web"] == 4
    assert bench.world.statuses == []
    status = bench.store.get(Key("default", "web")).status
    assert status is not None
    assert status.last_scale_time is not None


def test_stopping_lets_a_reconcile_end_and_cancels_one_that_does_not() -> None:
    async def main(seconds: float) -> tuple[float, int]:
        bench = Bench(hpa("web"))

        async def slow() -> int:
            await asyncio.sleep(seconds)
            return 40

        bench.metrics.values["web"] = slow
        bench.controller.start()
        await asyncio.sleep(1)
        await bench.controller.stop(5)
        return asyncio.get_running_loop().time(), bench.world.scales["web"]

    assert virtual.run(main(3)) == (3, 4)
    assert virtual.run(main(12)) == (6, 1)

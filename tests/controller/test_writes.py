"""What a turn writes, and what it does when that is refused; seen in the state of a small world under virtual time."""

import asyncio
from typing import Any

import pytest
import structlog
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.metadata import Key
from hpad.engine import conditions
from hpad.kube import errors

CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")


def run(main: Any) -> Any:
    return virtual_time.run(main())


def test_scaling_writes_scale_status_and_event() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        await bench.advance(0.5)
        return bench

    bench = run(main)
    assert bench.cluster.scales["web"] == 4
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale"]
    assert bench.cluster.statuses[-1].desired_replicas == 4
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
        bench.cluster.refusals = list(refusals)
        await bench.advance(0.5)
        return bench

    bench = run(main)
    assert bench.cluster.writes == [4] * writes
    assert bench.cluster.fresh_reads == writes - 1
    assert bench.cluster.scales["web"] == (4 if scaled else 1)
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale" if scaled else "FailedRescale"]


def test_a_count_that_somebody_else_changed_is_not_overruled_by_a_decision_for_another() -> None:
    """What was decided for one replica says nothing of eight, which may be more than the watch had told of by then."""

    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        read = bench.cluster.read_scale

        async def behind(namespace: str, ref: Any) -> Any:
            bench.cluster.read_scale = read  # type: ignore[method-assign]  # the watch catches up
            stale = await read(namespace, ref)
            bench.cluster.scales["web"] = 8
            return stale

        bench.cluster.read_scale = behind  # type: ignore[method-assign]  # a watch that lags
        bench.cluster.refusals = [CONFLICT]
        await bench.advance(0.05)
        assert bench.cluster.scales["web"] == 8
        assert "set the replicas from 1 to 8 meanwhile" in bench.cluster.events[-1].message
        return bench

    assert run(main).cluster.writes == [4]


def test_any_other_refusal_is_final_until_the_next_period() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.cluster.refusals = [errors.ApiError(403, "Forbidden", "not allowed")]
        await bench.advance(0.5)
        return bench

    bench = run(main)
    assert bench.cluster.writes == [4]
    assert "not allowed" in bench.cluster.events[-1].message


def test_a_fresh_read_that_fails_ends_the_attempts() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.cluster.refusals = [CONFLICT]
        bench.cluster.read_error = errors.ApiError(0, "", "the connection was lost")
        await bench.advance(0.5)
        return bench

    bench = run(main)
    assert bench.cluster.writes == [4]
    assert "the connection was lost" in bench.cluster.events[-1].message


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
        bench.cluster.scales["web"] = 7
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
    assert bench.cluster.writes == []
    assert bench.cluster.scales["web"] == 7


def test_a_status_that_could_not_be_written_after_a_rescale_is_made_up_for() -> None:
    """When it last scaled, and whether it took the last replica, an HPA knows from nowhere else."""

    async def main() -> Bench:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.cluster.status_refusals = [CONFLICT, errors.ApiError(0, "Timeout", "did not answer in time")]
        await bench.advance(46)
        return bench

    bench = run(main)
    assert bench.cluster.writes == [4]
    held = bench.source.get(Key("default", "web"))
    assert held is not None
    assert held.status.last_scale_time is not None
    assert bench.store.get(Key("default", "web")).pending is None
    assert len(bench.store.get(Key("default", "web")).history.scale_ups) == 1


def test_a_dry_run_writes_nothing() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), dry_run=True)
        bench.metrics.values["web"] = 40
        await bench.advance(31)
        return bench

    bench = run(main)
    assert (bench.cluster.writes, bench.cluster.statuses, bench.cluster.events) == ([], [], [])
    assert bench.store.get(Key("default", "web")).last.sentence.startswith("scale web from 1 to 4")


def test_a_dry_run_is_an_outcome_of_its_own_and_no_failure() -> None:
    async def main() -> tuple[Bench, dict[tuple[str, str], float]]:
        bench = Bench(hpa("web"), dry_run=True)
        bench.metrics.values["web"] = 40
        await bench.advance(31)
        found = {}
        for line in (await bench.telemetry.exposition()).decode().splitlines():
            if line.startswith("horizontal_pod_autoscaler_controller_reconciliations_total{"):
                labels, value = line.rsplit(" ", 1)
                found[tuple(labels.split('"')[1::2])] = float(value)
        return bench, found

    bench, reconciles = run(main)
    memory = bench.store.get(Key("default", "web"))
    status, last = memory.status, memory.last
    assert status is not None
    assert last is not None
    able = conditions.find(status.conditions, conditions.ABLE_TO_SCALE)
    assert able is not None
    assert (able.status, able.reason) == ("True", "DryRun")
    assert (status.current_replicas, status.desired_replicas) == (1, 4)
    assert status.last_scale_time is None
    assert (last.error, last.withheld) == (None, 4)
    assert last.sentence.endswith("; not written: this is a dry run")
    assert memory.history.scale_ups == ()
    assert {labels for labels, count in reconciles.items() if count} == {("scale_up", "none")}


def test_a_dry_run_says_a_decision_once_until_it_changes() -> None:
    async def main() -> list[Any]:
        bench = Bench(hpa("web"), dry_run=True)
        bench.controller.start()
        with structlog.testing.capture_logs() as lines:
            for load in (40, 38, 25, 8):
                bench.metrics.values["web"] = load
                await asyncio.sleep(45)
        await bench.controller.stop(5)
        return [
            (line["log_level"], line["scale_to"], line["dry_run"])
            for line in lines
            if line.get("hpa") == "default/web" and line["log_level"] != "debug"
        ]

    # 40 and 38 both want 4 replicas of 10 each, 25 wants 3, and 8 the one that is there.
    assert run(main) == [("info", 4, True), ("info", 3, True), ("info", None, True)]


def test_without_an_api_object_the_status_is_remembered() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), owned=False)
        bench.metrics.values["web"] = 40
        await bench.advance(31)
        return bench

    bench = run(main)
    assert bench.cluster.scales["web"] == 4
    assert bench.cluster.statuses == []
    status = bench.store.get(Key("default", "web")).status
    assert status is not None
    assert status.last_scale_time is not None

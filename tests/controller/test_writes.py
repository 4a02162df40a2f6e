"""The writes of a turn: scale, status and events, refused writes, dry runs."""

import asyncio
from typing import Any

import pytest
import structlog
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.api.sample import AdapterError
from hpad.engine import conditions
from hpad.engine.view import TOO_LARGE
from hpad.kube import errors

CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")


@in_virtual_time
async def test_scaling_writes_scale_status_and_event() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    await bench.advance(0.5)
    assert bench.cluster.scales["web"] == 4
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale"]
    assert bench.cluster.statuses[-1].desired_replicas == 4
    last = bench.decisions.last(Key("default", "web"))
    assert last is not None
    assert last.sentence.startswith("scale web from 1 to 4")


@in_virtual_time
async def test_events_of_rescales_are_explained() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    await bench.advance(0.5)
    (event,) = bench.cluster.events
    assert event.message == "New size: 4; reason: external metric web(nil) above target"
    assert event.detail == "from 1: external metric web above target (40 / 10 per replica)"


@pytest.mark.parametrize(
    ("refusals", "writes", "scaled"),
    [([CONFLICT], 2, True), ([CONFLICT] * 4, 5, True), ([CONFLICT] * 5, 5, False)],
)
@in_virtual_time
async def test_a_conflict_is_retried_after_a_fresh_read_up_to_five_attempts(
    refusals: list[errors.ApiError], writes: int, scaled: bool
) -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    bench.cluster.refusals = list(refusals)
    await bench.advance(0.5)
    assert bench.cluster.writes == [4] * writes
    assert bench.cluster.fresh_reads == writes - 1
    assert bench.cluster.scales["web"] == (4 if scaled else 1)
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale" if scaled else "FailedRescale"]


@in_virtual_time
async def test_a_count_changed_by_another_client_is_not_overwritten() -> None:
    """A decision for one replica does not apply to eight, a change that the watch had not delivered yet."""
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    read = bench.cluster.read_scale

    async def behind(namespace: str, ref: Any, kind: str = "") -> Any:
        bench.cluster.read_scale = read  # type: ignore[method-assign]  # the watch catches up
        stale = await read(namespace, ref)
        bench.cluster.scales["web"] = 8
        return stale

    bench.cluster.read_scale = behind  # type: ignore[method-assign]  # the watch lags behind
    bench.cluster.refusals = [CONFLICT]
    await bench.advance(0.05)
    assert bench.cluster.scales["web"] == 8
    assert "set the replicas from 1 to 8 meanwhile" in bench.cluster.events[-1].message
    assert bench.cluster.writes == [4]


@in_virtual_time
async def test_any_other_refusal_is_final_until_the_next_period() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    bench.cluster.refusals = [errors.ApiError(403, "Forbidden", "not allowed")]
    await bench.advance(0.5)
    assert bench.cluster.writes == [4]
    assert "not allowed" in bench.cluster.events[-1].message


@in_virtual_time
async def test_a_fresh_read_that_fails_ends_the_attempts() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    bench.cluster.refusals = [CONFLICT]
    bench.cluster.read_error = errors.ApiError(0, "", "the connection was lost")
    await bench.advance(0.5)
    assert bench.cluster.writes == [4]
    assert "the connection was lost" in bench.cluster.events[-1].message


@pytest.mark.parametrize("recreated", [False, True])
@in_virtual_time
async def test_a_deleted_hpa_scales_nothing(recreated: bool) -> None:
    """A user who deletes an HPA may scale by hand next. A reconcile that waited for metrics must not overwrite that."""
    bench = Bench(hpa("web"))

    async def slow() -> int:
        await asyncio.sleep(3)
        return 40

    bench.metrics.values["web"] = slow
    bench.controller.start()
    await asyncio.sleep(1)
    bench.source.drop("web")
    bench.cluster.scales["web"] = 7
    if recreated:
        bench.source.put(hpa("web", uid="2", minReplicas=6))
    await asyncio.sleep(2.5)
    if recreated:
        assert len(bench.metrics.times("web")) == 2
    else:
        await asyncio.sleep(60)
    await bench.controller.stop(0)
    assert bench.cluster.writes == []
    assert bench.cluster.scales["web"] == 7


@in_virtual_time
async def test_a_lost_status_of_a_rescale_is_written_later() -> None:
    """Only the status has the time of the last rescale and the condition ScaledToZero."""
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    bench.cluster.status_refusals = [CONFLICT, errors.ApiError(0, "Timeout", "did not answer in time")]
    await bench.advance(46)
    assert bench.cluster.writes == [4]
    web = bench.source.get(Key("default", "web"))
    assert web is not None
    assert web.status.last_scale_time is not None
    assert bench.store.get(Key("default", "web")).pending is None
    assert len(bench.store.get(Key("default", "web")).history.scale_ups) == 1
    assert [event.reason for event in bench.cluster.events].count("SuccessfulRescale") == 1


@in_virtual_time
@pytest.mark.parametrize("answered", [False, True])
async def test_a_rescale_whose_reconcile_was_given_up_has_its_event_in_the_next_one(answered: bool) -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    write = bench.cluster.write_scale

    async def slow(*args: Any) -> Any:
        await write(*args)
        if answered:
            raise errors.ApiError(0, "Timeout", "did not answer in time")
        await asyncio.sleep(60)

    bench.cluster.write_scale = slow  # type: ignore[method-assign]
    await bench.advance(76)
    event = bench.cluster.events[-1]
    assert [each.reason for each in bench.cluster.events] == ["FailedRescale"] * answered + ["SuccessfulRescale"]
    assert event.message == "New size: 4; reason: a reconcile that ended before its write was answered"
    assert event.detail == "from 1"
    assert bench.cluster.writes == [4]


@in_virtual_time
async def test_the_event_of_a_given_up_reconcile_outlives_an_edit_of_the_next_one() -> None:
    bench = Bench(hpa("web"))
    write, reads = bench.cluster.write_scale, list[int]()

    async def load() -> int:
        reads.append(40)
        if len(reads) == 2:
            bench.source.put(hpa("web", maxReplicas=9))
        return 40

    async def unanswered(*args: Any) -> Any:
        await write(*args)
        await asyncio.sleep(60)

    bench.metrics.values["web"] = load
    bench.cluster.write_scale = unanswered  # type: ignore[method-assign]
    await bench.advance(76)
    assert len(reads) > 2
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale"]
    assert bench.cluster.writes == [4]


@in_virtual_time
async def test_the_event_of_a_given_up_reconcile_outlives_one_that_cannot_compare_selectors() -> None:
    """That turn decides nothing, and so does not report the rescale either."""
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = 40
    write, others, searches = bench.cluster.write_scale, bench.reconciler.overlap.others, list[Key]()

    async def unanswered(*args: Any) -> Any:
        await write(*args)
        await asyncio.sleep(60)

    async def too_many_at_first(key: Key, *args: Any) -> Any:
        searches.append(key)
        if len(searches) == 2:
            raise errors.ApiError(0, TOO_LARGE, "too much to compare")
        return await others(key, *args)

    bench.cluster.write_scale = unanswered  # type: ignore[method-assign]
    bench.reconciler.overlap.others = too_many_at_first  # type: ignore[method-assign]
    await bench.advance(76)
    assert len(searches) > 2
    assert [event.reason for event in bench.cluster.events].count("SuccessfulRescale") == 1
    assert bench.cluster.writes == [4]
    web = bench.source.get(Key("default", "web"))
    assert web is not None
    assert web.status.last_scale_time is not None


@in_virtual_time
async def test_a_dry_run_writes_nothing() -> None:
    bench = Bench(hpa("web"), dry_run=True)
    bench.metrics.values["web"] = 40
    await bench.advance(31)
    assert (bench.cluster.writes, bench.cluster.statuses, bench.cluster.events) == ([], [], [])
    memory = bench.store.get(Key("default", "web"))
    assert (memory.shadow, memory.last_count) == (4, 1)


@in_virtual_time
async def test_a_dry_run_writes_no_event_of_a_failing_metric() -> None:
    bench = Bench(hpa("web"), dry_run=True)
    bench.metrics.values["web"] = AdapterError("the broker is down")
    await bench.advance(31)
    assert (bench.cluster.statuses, bench.cluster.events) == ([], [])
    last = bench.decisions.last(Key("default", "web"))
    assert last is not None
    assert last.error == "external metric web: the broker is down"


@in_virtual_time
async def test_a_dry_run_has_its_own_condition_and_no_error() -> None:
    bench = Bench(hpa("web"), dry_run=True)
    bench.metrics.values["web"] = 40
    await bench.advance(1)
    found = {}
    for line in (await bench.telemetry.exposition()).decode().splitlines():
        if line.startswith("horizontal_pod_autoscaler_controller_reconciliations_total{"):
            labels, value = line.rsplit(" ", 1)
            found[tuple(labels.split('"')[1::2])] = float(value)
    reconciles = found
    memory = bench.store.get(Key("default", "web"))
    status, last = memory.status, bench.decisions.last(Key("default", "web"))
    assert status is not None
    assert last is not None
    able = conditions.find(status.conditions, conditions.ABLE_TO_SCALE)
    assert able is not None
    assert (able.status, able.reason) == ("True", "DryRun")
    shadow = conditions.find(status.conditions, conditions.SHADOW)
    assert shadow is not None
    assert (shadow.status, shadow.reason) == ("True", "DryRun")
    assert (status.current_replicas, status.desired_replicas, memory.shadow) == (1, 1, 4)
    assert status.last_scale_time is None
    assert (last.error, last.withheld) == (None, None)
    assert last.sentence.endswith("; not written: this is a dry run")
    assert {labels for labels, count in reconciles.items() if count} == {("scale_up", "none")}


@in_virtual_time
async def test_a_dry_run_logs_each_rescale_of_its_shadow() -> None:
    bench = Bench(hpa("web"), dry_run=True)
    bench.controller.start()
    with structlog.testing.capture_logs() as lines:
        for load in (20, 38, 38, 55):
            bench.metrics.values["web"] = load
            await asyncio.sleep(45)
    await bench.controller.stop(5)
    # At 10 each, 20 need 2 replicas, 38 need 4, and 55 need 6.
    assert [
        (line["log_level"], line["replicas"], line["scale_to"], line["target_replicas"], line["dry_run"])
        for line in lines
        if line.get("hpa") == "default/web" and line["log_level"] != "debug"
    ] == [("info", 1, 2, 1, True), ("info", 2, 4, 1, True), ("info", 4, 6, 1, True)]


@in_virtual_time
async def test_without_an_api_object_the_status_is_kept_in_the_state() -> None:
    bench = Bench(hpa("web"), owned=False)
    bench.metrics.values["web"] = 40
    await bench.advance(31)
    assert bench.cluster.scales["web"] == 4
    assert bench.cluster.statuses == []
    status = bench.store.get(Key("default", "web")).status
    assert status is not None
    assert status.last_scale_time is not None

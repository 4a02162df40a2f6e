"""Scale-downs that spare busy pods: costs before the scale, and what may go wrong in between."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from support.controller import Bench, annotated, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.api.pod import DeletionCost
from hpad.api.sample import AdapterError
from hpad.engine.turn import Reconcile
from hpad.kube import errors
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile

ORDER = {"scale-down-order": "idle-first"}
KEEP = {"keep-busy": "true"}
FORBIDDEN = errors.ApiError(403, "Forbidden", 'pods "web-3" is forbidden: User "hpad" cannot patch resource "pods"')


def bench(annotations: dict[str, str], *, replicas: int = 6, messages: int = 40, **options: Any) -> Bench:
    """An HPA of six replicas whose queue asks for four, with web-4 and web-5 busy."""
    made = Bench(annotated(**annotations), **options)
    made.cluster.scales["web"] = replicas
    made.metrics.values["web"] = messages
    made.metrics.work = {f"web-{n}": 0 for n in range(replicas)} | {"web-4": 1, "web-5": 2}
    return made


@asynccontextmanager
async def running(world: Bench) -> AsyncIterator[None]:
    world.controller.start()
    yield
    await world.controller.stop(5)


@in_virtual_time
async def test_costs_are_written_before_the_scale() -> None:
    world = bench(ORDER)
    written: list[tuple[list[str], int]] = []
    moments: list[float] = []
    write, set_cost = world.cluster.write_scale, world.cluster.set_deletion_cost

    async def noted(namespace: str, ref: Any, scale: Any, allowed: Any) -> Any:
        written.append((sorted(world.cluster.costs), scale.spec.replicas))
        moments.append(world.clock.monotonic())
        return await write(namespace, ref, scale, allowed)

    async def cost_noted(*arguments: Any) -> Any:
        moments.append(world.clock.monotonic())
        return await set_cost(*arguments)

    world.cluster.write_scale = noted  # type: ignore[method-assign]
    world.cluster.set_deletion_cost = cost_noted  # type: ignore[method-assign]
    await world.advance(1)
    assert written == [(["web-0", "web-1"], 4)]
    assert moments[2] - moments[1] == pytest.approx(0.45)  # the ReplicaSet controller sees the costs first
    assert [cost.before for cost in world.cluster.costs.values()] == [None, None]
    assert all(int(cost.text or "") < 0 for cost in world.cluster.costs.values())


@in_virtual_time
async def test_a_mark_says_what_was_written_and_when_and_keeps_the_users_cost() -> None:
    world = bench(ORDER)
    edited = DeletionCost("-9", "-7 2025-12-31T23:00:00Z", "8")
    world.cluster.costs = {"web-0": DeletionCost("-10"), "web-1": edited}
    await world.advance(1)
    assert world.cluster.costs == {
        "web-0": DeletionCost("-2", "-2 2026-01-01T00:00:00Z", "-10"),
        "web-1": DeletionCost("-1", "-1 2026-01-01T00:00:00Z", "-9"),
    }
    assert world.cluster.scales["web"] == 4


@in_virtual_time
async def test_a_scale_down_begins_with_the_costs_of_users() -> None:
    """Marks of an earlier scale-down are removed where no new cost replaces them, but not a cost edited since."""
    world = bench(ORDER)
    world.cluster.costs = {
        "web-2": DeletionCost("-3", "-3 2025-12-31T23:59:00Z", "10"),
        "web-3": DeletionCost("7", "-3 2025-12-31T23:59:00Z", "10"),
    }
    await world.advance(1)
    left = {name: world.cluster.costs[name] for name in ("web-2", "web-3")}
    assert left == {"web-2": DeletionCost("10"), "web-3": DeletionCost("7")}


@in_virtual_time
async def test_marks_of_another_hpa_stay() -> None:
    """Of an HPA that selects the same pods, and has no order of its own."""
    world = bench({"pod-selection": "label"})
    world.cluster.costs["web-2"] = DeletionCost("-3", "-3 2025-12-31T23:59:00Z", "10")
    await world.advance(40)
    assert (world.cluster.scales["web"], world.cluster.annotated) == (4, [])


@in_virtual_time
async def test_without_the_annotations_nothing_is_asked_or_written() -> None:
    world = bench({})
    world.metrics.work = AdapterError("must not be asked")
    await world.advance(1)
    assert (world.cluster.scales["web"], world.cluster.annotated) == (4, [])


@pytest.mark.parametrize("options", [{"dry_run": True}, {}])
@in_virtual_time
async def test_nothing_is_patched_where_nothing_may_be_written(options: dict[str, Any]) -> None:
    world = bench(ORDER if options else ORDER | {"mode": "paused"}, **options)
    world.cluster.costs["web-1"] = DeletionCost("-3", "-3 2025-12-31T23:59:00Z")
    await world.advance(40)
    assert (world.cluster.scales["web"], world.cluster.annotated) == (6, [])


@in_virtual_time
async def test_without_the_right_the_target_is_scaled_all_the_same() -> None:
    world = bench(ORDER)
    world.cluster.annotate_refusal = FORBIDDEN
    await world.advance(1)
    assert world.cluster.scales["web"] == 4
    reasons = [event.reason for event in world.cluster.events]
    assert reasons == ["FailedDeletionCost", "SuccessfulRescale"]
    assert "cannot patch" in world.cluster.events[0].message


@in_virtual_time
async def test_an_api_server_that_hangs_delays_the_scale_by_two_seconds_and_no_other_hpa() -> None:
    world = bench(ORDER, workers=1)
    hangs = asyncio.Event()

    async def annotate(*_: Any) -> None:
        hangs.set()
        await asyncio.sleep(1000)

    world.cluster.set_deletion_cost = annotate  # type: ignore[method-assign]
    async with running(world):
        await hangs.wait()
        began = world.clock.monotonic()
        world.cluster.scales["other"], world.metrics.values["other"] = 1, 40
        world.source.put(hpa("other"))  # a new HPA has a turn at once
        await asyncio.sleep(1)
        assert world.cluster.scales == {"web": 6, "other": 4}
        await asyncio.sleep(began + 2.2 - world.clock.monotonic())
        assert world.cluster.scales["web"] == 6
        await asyncio.sleep(0.1)
        assert world.cluster.scales["web"] == 4
    assert any("did not take all of them within 2.25 s" in event.message for event in world.cluster.events)


@in_virtual_time
async def test_an_edit_during_the_writes_is_decided_anew() -> None:
    world = bench(ORDER)
    world.cluster.annotate_seconds = 0.5

    async def edit() -> None:
        await asyncio.sleep(0.2)
        world.source.put(hpa("web", minReplicas=5, average=10))

    task = asyncio.create_task(edit())
    await world.advance(5)
    await task
    assert world.cluster.scales["web"] == 5


@in_virtual_time
async def test_a_scale_down_waits_for_busy_pods_and_takes_the_idle_ones() -> None:
    world = bench(KEEP | ORDER, messages=1)
    await world.advance(1)
    assert world.cluster.scales["web"] == 2
    world = bench(KEEP, messages=1)
    world.metrics.work = {f"web-{n}": 1 for n in range(5)} | {"web-5": 0}
    await world.advance(1)
    assert world.cluster.scales["web"] == 5
    condition = next(each for each in world.cluster.statuses[-1].conditions if each.type == "ScalingLimited")
    assert condition.reason == "BusyPods"


@in_virtual_time
async def test_a_recorded_turn_replays_to_the_same_decision() -> None:
    done: list[Reconcile] = []

    class Recorder:
        def note(self, each: Reconcile) -> None:
            done.append(each)

    world = bench(KEEP | ORDER, messages=1, recorder=Recorder())
    world.metrics.work = {f"web-{n}": n % 2 for n in range(5)}  # nothing is known of web-5
    world.cluster.costs["web-0"] = DeletionCost("7")
    await world.advance(40)
    scenario = encode_head(done[0], "web") | {"steps": [encode_reconcile(each, new_spec=False) for each in done]}
    plain = msgspec.json.decode(msgspec.json.encode(scenario))
    expected = [step["expect"] for step in plain["steps"]]
    assert expected[0]["scaleTo"] == 3
    assert replay.replay(plain)["steps"] == expected


@in_virtual_time
async def test_a_deleted_hpa_leaves_nothing() -> None:
    world = bench(ORDER)
    world.cluster.annotate_refusal = FORBIDDEN
    await world.advance(1)
    failing = world.reconciler._sparing._failing
    assert len(failing) == 1
    world.reconciler.forget(Key("default", "web"))
    assert len(failing) == 0

"""Targets at zero replicas: hpad scales up those it set to zero, not those another client stopped (HPAScaleToZero)."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import structlog
from support import virtual_time
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.engine import conditions, state
from hpad.engine.history import Memory, PendingRescale
from hpad.engine.view import Gates, Tunables
from hpad.kube import errors

WEB = Key("default", "web")
PERIOD = 15.0
GATES = Gates(HPAScaleToZero=True)
OTHER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}

Step = Callable[[Bench], None]


def idle_bench(*, gates: Gates = GATES, **spec: Any) -> Bench:
    """An HPA with a minimum of zero and no load."""
    bench = Bench(hpa("web", minReplicas=0, **spec), tunables=Tunables(gates=gates))
    bench.metrics.values["web"] = 0
    return bench


def scaled_to_zero(bench: Bench) -> str:
    """The status of the condition ScaledToZero; empty without the condition."""
    web = bench.source.get(WEB)
    assert web is not None
    found = conditions.find(web.status.conditions, conditions.SCALED_TO_ZERO)
    return "" if found is None else found.status


async def wait_for_zero(bench: Bench) -> None:
    """Starts the controller, and waits until it has removed the last replica."""
    bench.controller.start()
    await virtual_time.until(lambda: bench.cluster.scales["web"] == 0)
    await asyncio.sleep(PERIOD)
    assert scaled_to_zero(bench) == "True"


def add_load(bench: Bench) -> None:
    """The metric proposes three replicas."""
    bench.metrics.values["web"] = 30


def set_three(bench: Bench) -> None:
    """Another client sets three replicas, which match the load: hpad has nothing to write."""
    add_load(bench)
    bench.cluster.scales["web"] = 3


def set_zero(bench: Bench) -> None:
    """Another client sets zero replicas."""
    bench.cluster.scales["web"] = 0


def set_three_without_status(bench: Bench) -> None:
    """Another client sets three replicas while the API server refuses status writes."""
    set_three(bench)
    bench.cluster.status_refusals = [errors.ApiError(500, "", "no")] * 2


def set_between_turns(bench: Bench) -> None:
    """Another client scales up and down between two turns: only the owner of the field shows it."""
    bench.cluster.set_by["web"] = "kubectl"


OFF = Gates(HPAScaleToZero=True, HPAOwnZeroOnly=False)


@pytest.mark.parametrize("stopped", [True, False])
@in_virtual_time
async def test_a_target_that_changes_at_zero_is_looked_at_again_before_it_is_woken(stopped: bool) -> None:
    """Another client may have scaled up and down before the watch could tell: only the conflict shows it."""
    bench = idle_bench()
    await wait_for_zero(bench)
    bench.cluster.refusals = [errors.ApiError(409, "Conflict", "the object has been modified")]
    add_load(bench)
    await virtual_time.until(lambda: bench.cluster.fresh_reads == 1)
    if stopped:
        bench.cluster.set_by["web"] = "kubectl"
    await asyncio.sleep(4 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == (0 if stopped else 3)
    assert [event.reason for event in bench.cluster.events].count("FailedRescale") == 1


@in_virtual_time
async def test_a_target_that_is_not_watched_is_woken_after_a_conflict() -> None:
    """As one of a custom kind, whose controller writes its status. A later turn would know no more about it."""
    bench = idle_bench()
    bench.cluster.unwatched = {"web"}
    await wait_for_zero(bench)
    bench.cluster.refusals = [errors.ApiError(409, "Conflict", "the object has been modified")]
    add_load(bench)
    await asyncio.sleep(PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == 3
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale"] * 2


@in_virtual_time
async def test_a_conflict_of_a_repeated_write_that_has_woken_the_target_is_no_failure() -> None:
    """The client repeats a write whose connection was closed before the answer."""
    bench = idle_bench()
    await wait_for_zero(bench)
    write = bench.cluster.write_scale

    async def repeated(*args: Any) -> Any:
        await write(*args)
        if len(bench.cluster.writes) == 2:  # after the one to zero
            raise errors.ApiError(409, "Conflict", "the object has been modified")

    bench.cluster.write_scale = repeated  # type: ignore[method-assign]
    add_load(bench)
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == 3
    assert bench.cluster.writes == [0, 3, 3]
    assert [event.reason for event in bench.cluster.events] == ["SuccessfulRescale"] * 2
    assert len(bench.store.get(WEB).history.scale_ups) == 1


@pytest.mark.parametrize("gates", [GATES, OFF], ids=["on", "off"])
@pytest.mark.parametrize(
    ("steps", "scaled_up"),
    [
        ([add_load], True),
        ([set_three, set_zero], False),
        ([set_three_without_status, set_zero], False),
        ([set_between_turns, add_load], False),
        ([set_zero, add_load], True),  # no change: the target was at zero
    ],
    ids=["load", "stopped", "status lost", "between turns", "no change"],
)
@in_virtual_time
async def test_only_a_target_that_hpad_set_to_zero_is_scaled_up(
    steps: list[Step], scaled_up: bool, gates: Gates
) -> None:
    """In Kubernetes and without the gate, ScaledToZero stays True when another client scales the target."""
    bench = idle_bench(gates=gates)
    await wait_for_zero(bench)
    for step in steps:
        step(bench)
        await asyncio.sleep(2 * PERIOD)
    await asyncio.sleep(4 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == (3 if scaled_up or gates is OFF else 0)
    assert scaled_to_zero(bench) == "False"


@pytest.mark.parametrize(("gates", "count"), [(GATES, 0), (OFF, 3)], ids=["on", "off"])
@in_virtual_time
async def test_an_hpa_edited_to_a_stopped_target_does_not_scale_it_up(gates: Gates, count: int) -> None:
    """Its rescales of the former target do not apply to the new one."""
    bench = idle_bench(gates=gates)
    await wait_for_zero(bench)
    bench.cluster.scales["other"] = 0
    web = bench.source.get(WEB)
    assert web is not None
    moved = hpa("web", minReplicas=0, scaleTargetRef=OTHER)
    bench.source.put(msgspec.structs.replace(moved, status=web.status))
    add_load(bench)
    await asyncio.sleep(4 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["other"] == count


@pytest.mark.parametrize(
    ("current", "desired", "scaled_up"),
    [(0, 0, True), (2, 0, True), (0, 3, True), (3, 3, False)],
    ids=["at zero", "just removed", "decided in a dry run", "seen with replicas"],
)
@in_virtual_time
async def test_after_a_restart_without_a_store_the_status_decides(current: int, desired: int, scaled_up: bool) -> None:
    bench = idle_bench()
    add_load(bench)
    bench.cluster.scales["web"] = 0
    web = bench.source.get(WEB)
    assert web is not None
    at_zero = (conditions.Condition(conditions.SCALED_TO_ZERO, "True", virtual_time.START, "ScaledToZero"),)
    status = HorizontalPodAutoscalerStatus(current_replicas=current, desired_replicas=desired, conditions=at_zero)
    bench.source.put(msgspec.structs.replace(web, status=status))
    await bench.advance(4 * PERIOD)
    assert bench.cluster.scales["web"] == (3 if scaled_up else 0)


@pytest.mark.parametrize("applied", [True, False])
@in_virtual_time
async def test_a_write_of_zero_without_a_response_counts_as_written_by_hpad(applied: bool) -> None:
    """The API server may have applied the write. Then the next turn finds zero replicas."""
    bench = idle_bench()
    write = bench.cluster.write_scale

    async def silent(namespace: str, ref: Any, scale: Any, allowed: Any) -> Any:
        allowed()
        bench.cluster.write_scale = write  # type: ignore[method-assign]  # from now on
        if applied:
            await write(namespace, ref, scale, allowed)
        raise errors.ApiError(0, "Timeout", "did not answer in time")

    bench.cluster.write_scale = silent  # type: ignore[method-assign]  # once
    bench.controller.start()
    await asyncio.sleep(3 * PERIOD)
    assert bench.cluster.scales["web"] == 0
    assert scaled_to_zero(bench) == "True"
    add_load(bench)
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == 3


@pytest.mark.parametrize("back", [timedelta(0), timedelta(minutes=10)], ids=["clock as it was", "clock set back"])
@in_virtual_time
async def test_a_write_of_zero_with_a_refused_status_counts_as_written_by_hpad(back: timedelta) -> None:
    """With a clock set back, the status has an earlier rescale with a time in the future."""
    clock = virtual_time.SetClock()
    bench = Bench(hpa("web", minReplicas=0), tunables=Tunables(gates=GATES), clock=clock)
    add_load(bench)
    bench.controller.start()
    await virtual_time.until(lambda: bench.cluster.scales["web"] == 3)
    await asyncio.sleep(2 * PERIOD)
    clock.off -= back
    bench.cluster.status_refusals = [errors.ApiError(500, "", "no")] * 2
    bench.metrics.values["web"] = 0
    await virtual_time.until(lambda: bench.cluster.scales["web"] == 0)
    await asyncio.sleep(3 * PERIOD)
    assert bench.cluster.status_refusals == []
    assert scaled_to_zero(bench) == "True"
    add_load(bench)
    await asyncio.sleep(2 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == 3


@in_virtual_time
async def test_a_refused_write_of_zero_does_not_count_as_written_by_hpad() -> None:
    """Another client that sets zero afterwards stops the target."""
    bench = idle_bench()
    bench.cluster.refusals = [errors.ApiError(403, "Forbidden", "no")]
    bench.controller.start()
    await asyncio.sleep(1)
    bench.cluster.scales["web"] = 0
    add_load(bench)
    await asyncio.sleep(4 * PERIOD)
    await bench.controller.stop(0)
    assert bench.cluster.scales["web"] == 0


MINUTE = timedelta(minutes=1)
TARGET = "apps/Deployment/web"


@pytest.mark.parametrize(
    ("memory", "scaled", "expected"),
    [
        (Memory(at=virtual_time.START, last_count=3, target=TARGET), -MINUTE, True),
        (Memory(at=virtual_time.START, last_count=3, target=TARGET), None, True),
        (
            Memory(at=virtual_time.START, last_count=3, target=TARGET),
            MINUTE,
            False,
        ),  # another replica of hpad has scaled it
        (Memory(at=virtual_time.START, last_count=3, target=TARGET, loaded=True), -2 * MINUTE, True),
        (
            Memory(at=virtual_time.START, last_count=3, target=TARGET, loaded=True),
            -MINUTE / 2,
            False,
        ),  # written by a replica whose clock is behind
        (Memory(at=virtual_time.START, last_count=0, target=TARGET), -MINUTE, False),
        (Memory(at=virtual_time.START, target=TARGET), -MINUTE, False),
        (Memory(at=virtual_time.START, last_count=0, target="apps/Deployment/other"), -MINUTE, True),
        (Memory(last_count=3), -MINUTE, False),
    ],
)
def test_state_and_status_show_whether_another_client_set_zero(
    memory: Memory, scaled: timedelta | None, expected: bool
) -> None:
    status = HorizontalPodAutoscalerStatus(last_scale_time=None if scaled is None else virtual_time.START + scaled)
    assert state.set_by_other(memory, TARGET, status) is expected
    pending = msgspec.structs.replace(memory, pending=PendingRescale(3, 0, (), (), status))
    assert state.set_by_other(pending, TARGET, status) is (expected and memory.target != TARGET)


@pytest.mark.parametrize(
    ("setter", "minimum", "text"),
    [
        ("kubectl", 0, "stays there: kubectl has set it, and metrics wake only what the HPA has put to sleep"),
        ("", 0, "stays there: nothing tells who has set it, and metrics wake only what"),
        ("kubectl", 1, ""),  # as with Kubernetes, a user has paused the HPA
    ],
)
@in_virtual_time
async def test_the_log_says_once_why_a_target_at_zero_stays_there(setter: str, minimum: int, text: str) -> None:
    bench = Bench(hpa("web", minReplicas=minimum), tunables=Tunables(gates=GATES))
    add_load(bench)
    bench.cluster.scales["web"] = 0
    bench.cluster.set_by["web"] = setter
    with structlog.testing.capture_logs() as lines:
        await bench.advance(4 * PERIOD)
    assert bench.cluster.scales["web"] == 0
    found = [line for line in lines if "the target is at zero replicas" in line["event"]]
    assert [line["log_level"] for line in found] == (["warning"] if text else [])
    assert all(text in line["event"] for line in found)
    shown = bench.source.get(WEB)
    assert shown is not None
    active = conditions.find(shown.status.conditions, conditions.SCALING_ACTIVE)
    assert active is not None
    assert ("set its replicas to 1 or more to go on" in active.message) == bool(text)

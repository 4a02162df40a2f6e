"""Targets at zero: those that hpad put to sleep are woken, those that somebody stopped are not (HPAScaleToZero)."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.controller import recovery
from hpad.engine import conditions
from hpad.engine.view import Gates, Tunables
from hpad.kube import errors
from hpad.store.memory import Memory, PendingRescale

WEB = Key("default", "web")
PERIOD = 15.0
GATES = Gates(HPAScaleToZero=True)
OTHER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}

Deed = Callable[[Bench], None]


def born(*, gates: Gates = GATES, **spec: Any) -> Bench:
    bench = Bench(hpa("web", minReplicas=0, **spec), tunables=Tunables(gates=gates))
    bench.metrics.values["web"] = 0
    return bench


def mark(bench: Bench) -> str:
    held = bench.source.get(WEB)
    assert held is not None
    found = conditions.find(held.status.conditions, conditions.SCALED_TO_ZERO)
    return "" if found is None else found.status


async def asleep(bench: Bench) -> None:
    """hpad takes the last replica."""
    bench.controller.start()
    await virtual_time.until(lambda: bench.cluster.scales["web"] == 0)
    await asyncio.sleep(PERIOD)
    assert mark(bench) == "True"


def works(bench: Bench) -> None:
    """There is work for three."""
    bench.metrics.values["web"] = 30


def started(bench: Bench) -> None:
    """Somebody sets the three that there is work for: there is nothing left to do for hpad."""
    works(bench)
    bench.cluster.scales["web"] = 3


def stopped(bench: Bench) -> None:
    bench.cluster.scales["web"] = 0


def started_unsaid(bench: Bench) -> None:
    """The API server takes no status at that time."""
    started(bench)
    bench.cluster.status_refusals = [errors.ApiError(500, "", "no")] * 2


def by_hand(bench: Bench) -> None:
    """Up and down again between two turns: nothing but the owner of the field tells."""
    bench.cluster.set_by_hand.add("web")


OFF = Gates(HPAScaleToZero=True, HPAOwnZeroOnly=False)


@pytest.mark.parametrize("gates", [GATES, OFF], ids=["on", "off"])
@pytest.mark.parametrize(
    ("deeds", "woken"),
    [
        ([works], True),
        ([started, stopped], False),
        ([started_unsaid, stopped], False),
        ([by_hand, works], False),
        ([stopped, works], True),  # nothing was set: it was at zero
    ],
    ids=["work", "stopped", "status lost", "between turns", "no change"],
)
def test_only_what_hpad_put_to_sleep_is_woken(deeds: list[Deed], woken: bool, gates: Gates) -> None:
    """In Kubernetes, and without the gate, ScaledToZero stays True whatever others set, and the target is woken."""

    async def main() -> Bench:
        bench = born(gates=gates)
        await asleep(bench)
        for deed in deeds:
            deed(bench)
            await asyncio.sleep(2 * PERIOD)
        await asyncio.sleep(4 * PERIOD)
        await bench.controller.stop(0)
        return bench

    bench = virtual_time.run(main())
    assert bench.cluster.scales["web"] == (3 if woken or gates is OFF else 0)
    assert mark(bench) == "False"


@pytest.mark.parametrize(("gates", "count"), [(GATES, 0), (OFF, 3)], ids=["on", "off"])
def test_an_hpa_that_is_pointed_at_a_stopped_target_does_not_start_it(gates: Gates, count: int) -> None:
    """What it did to the one before says nothing of this one."""

    async def main() -> Bench:
        bench = born(gates=gates)
        await asleep(bench)
        bench.cluster.scales["other"] = 0
        held = bench.source.get(WEB)
        assert held is not None
        moved = hpa("web", minReplicas=0, scaleTargetRef=OTHER)
        bench.source.put(msgspec.structs.replace(moved, status=held.status))
        works(bench)
        await asyncio.sleep(4 * PERIOD)
        await bench.controller.stop(0)
        return bench

    assert virtual_time.run(main()).cluster.scales["other"] == count


@pytest.mark.parametrize(
    ("current", "desired", "woken"),
    [(0, 0, True), (2, 0, True), (0, 3, True), (3, 3, False)],
    ids=["asleep", "just taken", "decided in a dry run", "seen with replicas"],
)
def test_after_a_restart_without_a_store_the_status_tells(current: int, desired: int, woken: bool) -> None:
    async def main() -> Bench:
        bench = born()
        works(bench)
        bench.cluster.scales["web"] = 0
        held = bench.source.get(WEB)
        assert held is not None
        slept = conditions.with_condition((), conditions.SCALED_TO_ZERO, "True", "ScaledToZero", "", virtual_time.START)
        told = HorizontalPodAutoscalerStatus(current_replicas=current, desired_replicas=desired, conditions=slept)
        bench.source.put(msgspec.structs.replace(held, status=told))
        await bench.advance(4 * PERIOD)
        return bench

    assert virtual_time.run(main()).cluster.scales["web"] == (3 if woken else 0)


@pytest.mark.parametrize("applied", [True, False])
def test_a_write_of_zero_without_an_answer_is_known_for_hpads_own(applied: bool) -> None:
    """It may have been carried out all the same: then the next turn finds zero replicas."""

    async def main() -> Bench:
        bench = born()
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
        assert mark(bench) == "True"
        works(bench)
        await asyncio.sleep(2 * PERIOD)
        await bench.controller.stop(0)
        return bench

    assert virtual_time.run(main()).cluster.scales["web"] == 3


@pytest.mark.parametrize("back", [timedelta(0), timedelta(minutes=10)], ids=["clock as it was", "clock set back"])
def test_zero_of_hpads_own_is_known_though_its_status_is_refused(back: timedelta) -> None:
    """With a clock that was set back, the status tells of an earlier rescale, at a time that is yet to come."""

    async def main() -> Bench:
        clock = virtual_time.SetClock()
        bench = Bench(hpa("web", minReplicas=0), tunables=Tunables(gates=GATES), clock=clock)
        works(bench)
        bench.controller.start()
        await virtual_time.until(lambda: bench.cluster.scales["web"] == 3)
        await asyncio.sleep(2 * PERIOD)
        clock.off -= back
        bench.cluster.status_refusals = [errors.ApiError(500, "", "no")] * 2
        bench.metrics.values["web"] = 0
        await virtual_time.until(lambda: bench.cluster.scales["web"] == 0)
        await asyncio.sleep(3 * PERIOD)
        assert bench.cluster.status_refusals == []
        assert mark(bench) == "True"
        works(bench)
        await asyncio.sleep(2 * PERIOD)
        await bench.controller.stop(0)
        return bench

    assert virtual_time.run(main()).cluster.scales["web"] == 3


def test_a_write_that_was_refused_is_not() -> None:
    """Somebody who sets zero after that stops the target."""

    async def main() -> Bench:
        bench = born()
        bench.cluster.refusals = [errors.ApiError(403, "Forbidden", "no")]
        bench.controller.start()
        await asyncio.sleep(1)
        bench.cluster.scales["web"] = 0
        works(bench)
        await asyncio.sleep(4 * PERIOD)
        await bench.controller.stop(0)
        return bench

    assert virtual_time.run(main()).cluster.scales["web"] == 0


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
        ),  # by a clock behind ours
        (Memory(at=virtual_time.START, last_count=0, target=TARGET), -MINUTE, False),
        (Memory(at=virtual_time.START, target=TARGET), -MINUTE, False),
        (Memory(at=virtual_time.START, last_count=0, target="apps/Deployment/other"), -MINUTE, True),
        (Memory(last_count=3), -MINUTE, False),
    ],
)
def test_what_memory_says_of_a_target_at_zero(memory: Memory, scaled: timedelta | None, expected: bool) -> None:
    status = HorizontalPodAutoscalerStatus(last_scale_time=None if scaled is None else virtual_time.START + scaled)
    assert recovery.set_by_other(memory, TARGET, status) is expected
    pending = msgspec.structs.replace(memory, pending=PendingRescale(3, 0, (), (), status))
    assert recovery.set_by_other(pending, TARGET, status) is (expected and memory.target != TARGET)

"""Metrics that arrive long after the planned moment count from their arrival, as in Kubernetes.

Kubernetes dates a recommendation after it has read the metrics (horizontal.go: stabilizeRecommendation).
"""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.engine.turn import Reconcile
from hpad.records import encode, replay
from hpad.records.format import decode_scenario

PERIOD = 15.0
WINDOW = 60
POLICY = {"type": "Percent", "value": 100, "periodSeconds": int(PERIOD)}


class Run:
    """One HPA whose metric proposes `proposed()` replicas, after the next of `delays` (seconds) in each turn."""

    def __init__(
        self, proposed: Callable[[], int], delays: Iterator[float], clock: Any = None, recorder: Any = None, **spec: Any
    ) -> None:
        self.bench = Bench(hpa("web", maxReplicas=100, **spec), period=PERIOD, clock=clock, recorder=recorder)
        self.writes: list[tuple[float, int]] = []
        self.arrivals: list[tuple[float, int]] = []
        self._proposed, self._delays = proposed, delays
        self._write = self.bench.cluster.write_scale
        self.bench.cluster.write_scale = self._record_write  # type: ignore[method-assign]  # records its calls
        self.bench.metrics.values["web"] = self._metric

    async def _metric(self) -> int:
        proposed = self._proposed()
        await asyncio.sleep(next(self._delays))
        self.arrivals.append((virtual_time.now(), proposed))
        return proposed * 10

    async def _record_write(self, namespace: str, ref: Any, scale: Any, allowed: Any) -> Any:
        allowed()
        self.writes.append((virtual_time.now(), scale.spec.replicas))
        return await self._write(namespace, ref, scale, allowed)


@pytest.mark.parametrize("slow", [3.5, 6.0, 8.9])
@in_virtual_time
async def test_a_window_starts_when_the_metrics_arrive(slow: float) -> None:
    down = {"stabilizationWindowSeconds": WINDOW}
    delays = itertools.chain([0.0, 0.0, slow], itertools.repeat(0.0))
    run = Run(lambda: 8 if len(run.arrivals) < 3 else 1, delays, behavior={"scaleDown": down})
    run.bench.cluster.scales["web"] = 8
    await run.bench.advance(150)
    came, proposed = run.arrivals[2]
    (at, count), *_ = run.writes
    assert (proposed, count) == (8, 1)
    assert WINDOW <= at - came <= WINDOW + PERIOD


@in_virtual_time
async def test_a_policy_dates_a_rescale_at_the_arrival_of_its_metrics() -> None:
    """The policy allows one doubling in 15 seconds, not one after a slow turn and another in the prompt next turn."""
    up = {"stabilizationWindowSeconds": 0, "policies": [POLICY]}
    run = Run(lambda: 100, itertools.cycle([8.0, 0.0]), behavior={"scaleUp": up})
    await run.bench.advance(200)
    writes = run.writes
    assert [count for _, count in writes] == [2, 4, 8, 16, 32, 64, 100]
    assert all(later - earlier >= PERIOD for (earlier, _), (later, _) in itertools.pairwise(writes))


@in_virtual_time
async def test_growth_takes_one_step_per_turn_with_prompt_metrics() -> None:
    up = {"stabilizationWindowSeconds": 0, "policies": [POLICY]}
    run = Run(lambda: 100, itertools.cycle([2.9, 0.1, 1.7]), behavior={"scaleUp": up})
    await run.bench.advance(9 * PERIOD)
    assert [count for _, count in run.writes] == [2, 4, 8, 16, 32, 64, 100]
    assert run.arrivals[6][0] - run.arrivals[1][0] == pytest.approx(5 * PERIOD, abs=3)


@in_virtual_time
async def test_growth_continues_with_slow_metrics() -> None:
    """One step in one or two turns. Kubernetes takes one step in 15 seconds plus the delay of the metrics."""
    up = {"stabilizationWindowSeconds": 0, "policies": [POLICY]}
    run = Run(lambda: 100, itertools.cycle([5.0, 4.9, 4.8]), behavior={"scaleUp": up})
    await run.bench.advance(16 * PERIOD)
    writes = run.writes
    assert writes[-1][1] == 100
    assert all(later - earlier <= 2 * PERIOD + 0.5 for (earlier, _), (later, _) in itertools.pairwise(writes))


@in_virtual_time
async def test_a_clock_step_while_metrics_are_read_ends_no_window() -> None:
    clock = virtual_time.SetClock()
    down = {"stabilizationWindowSeconds": WINDOW}
    delays = itertools.chain([0.0, 0.0, 8.0], itertools.repeat(0.0))
    run = Run(lambda: 8 if len(run.arrivals) < 3 else 1, delays, clock, behavior={"scaleDown": down})
    run.bench.cluster.scales["web"] = 8
    run.bench.controller.start()
    await virtual_time.until(lambda: len(run.bench.metrics.asked) == 3, every=1)
    clock.off = timedelta(hours=1)
    await asyncio.sleep(150)
    await run.bench.controller.stop(5)
    came, _ = run.arrivals[2]
    (at, count), *_ = run.writes
    assert count == 1
    assert WINDOW <= at - came <= WINDOW + PERIOD


class ReconcileRecorder:
    """Keeps the recorded reconciles."""

    def __init__(self) -> None:
        self.done: list[Reconcile] = []

    def note(self, done: Reconcile) -> None:
        self.done.append(done)


@in_virtual_time
async def test_a_recording_of_slow_turns_replays_identically() -> None:
    """The time of a step is the moment of its decision, so that each history follows from the previous steps."""
    behavior = {"scaleUp": {"policies": [POLICY]}, "scaleDown": {"stabilizationWindowSeconds": WINDOW}}
    delays = itertools.cycle([0.1, 8.0, 2.0, 0.0, 5.0])
    recorder = ReconcileRecorder()
    run = Run(lambda: 40 if len(run.arrivals) < 9 else 1, delays, recorder=recorder, behavior=behavior)
    await run.bench.advance(20 * PERIOD)
    done = recorder.done
    recording = encode.encode_head(done[0], "slow")
    recording["steps"] = [encode.encode_reconcile(each, new_spec=False) for each in done]
    written = json.loads(msgspec.json.encode(recording))
    steps = replay.replay(written)["steps"]
    assert {step["action"] for step in steps} == {"none", "scale_up", "scale_down"}
    assert steps == [step["expect"] for step in written["steps"]]
    histories = [each.settlement.history for each in replay.run(decode_scenario(written))]
    assert histories == [each.settlement.history for each in done]

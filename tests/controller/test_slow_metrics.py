"""Answers that come long after the planned moment count from when they came, as in Kubernetes.

There a recommendation is stamped after the metrics were read (horizontal.go: stabilizeRecommendation).
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

from hpad.api.metadata import Key
from hpad.recording import encode, replay
from hpad.recording.format import decode_scenario

PERIOD = 15.0
WINDOW = 60
POLICY = {"type": "Percent", "value": 100, "periodSeconds": int(PERIOD)}


class Life:
    """One HPA whose metric wants `wanted` replicas and takes the seconds of `delays`, turn by turn."""

    def __init__(self, wanted: Callable[[], int], delays: Iterator[float], clock: Any = None, **spec: Any) -> None:
        self.bench = Bench(hpa("web", maxReplicas=100, **spec), period=PERIOD, clock=clock)
        self.writes: list[tuple[float, int]] = []
        self.arrivals: list[tuple[float, int]] = []
        self._wanted, self._delays = wanted, delays
        self._write = self.bench.cluster.write_scale
        self.bench.cluster.write_scale = self._noted  # type: ignore[method-assign]  # it takes notes
        self.bench.metrics.values["web"] = self._ask

    async def _ask(self) -> int:
        wanted = self._wanted()
        await asyncio.sleep(next(self._delays))
        self.arrivals.append((virtual_time.now(), wanted))
        return wanted * 10

    async def _noted(self, namespace: str, ref: Any, scale: Any, allowed: Any) -> Any:
        allowed()
        self.writes.append((virtual_time.now(), scale.spec.replicas))
        return await self._write(namespace, ref, scale, allowed)


@pytest.mark.parametrize("slow", [3.5, 6.0, 8.9])
def test_a_window_begins_when_the_answers_have_come(slow: float) -> None:
    async def main() -> Life:
        down = {"stabilizationWindowSeconds": WINDOW}
        delays = itertools.chain([0.0, 0.0, slow], itertools.repeat(0.0))
        life = Life(lambda: 8 if len(life.arrivals) < 3 else 1, delays, behavior={"scaleDown": down})
        life.bench.cluster.scales["web"] = 8
        await life.bench.advance(150)
        return life

    life = virtual_time.run(main())
    came, wanted = life.arrivals[2]
    (at, count), *_ = life.writes
    assert (wanted, count) == (8, 1)
    assert WINDOW <= at - came <= WINDOW + PERIOD


def test_a_policy_counts_a_rescale_from_when_its_answers_came() -> None:
    """The policy allows a doubling in 15 seconds: not one at the end of a slow turn and one in the prompt turn next."""

    async def main() -> Life:
        up = {"stabilizationWindowSeconds": 0, "policies": [POLICY]}
        life = Life(lambda: 100, itertools.cycle([8.0, 0.0]), behavior={"scaleUp": up})
        await life.bench.advance(200)
        return life

    writes = virtual_time.run(main()).writes
    assert [count for _, count in writes] == [2, 4, 8, 16, 32, 64, 100]
    assert all(later - earlier >= PERIOD for (earlier, _), (later, _) in itertools.pairwise(writes))


def test_growth_takes_a_step_a_turn_while_answers_come_in_time() -> None:
    async def main() -> Life:
        up = {"stabilizationWindowSeconds": 0, "policies": [POLICY]}
        life = Life(lambda: 100, itertools.cycle([2.9, 0.1, 1.7]), behavior={"scaleUp": up})
        await life.bench.advance(9 * PERIOD)
        return life

    life = virtual_time.run(main())
    assert [count for _, count in life.writes] == [2, 4, 8, 16, 32, 64, 100]
    assert life.arrivals[6][0] - life.arrivals[1][0] == pytest.approx(5 * PERIOD, abs=3)


def test_growth_goes_on_while_all_answers_are_slow() -> None:
    """A step a turn or in every other one, where Kubernetes takes one in 15 seconds and what the answers take."""

    async def main() -> Life:
        up = {"stabilizationWindowSeconds": 0, "policies": [POLICY]}
        life = Life(lambda: 100, itertools.cycle([5.0, 4.9, 4.8]), behavior={"scaleUp": up})
        await life.bench.advance(16 * PERIOD)
        return life

    writes = virtual_time.run(main()).writes
    assert writes[-1][1] == 100
    assert all(later - earlier <= 2 * PERIOD + 0.5 for (earlier, _), (later, _) in itertools.pairwise(writes))


def test_a_wall_clock_that_is_set_while_metrics_are_read_ends_no_window() -> None:
    async def main() -> Life:
        clock = virtual_time.SetClock()
        down = {"stabilizationWindowSeconds": WINDOW}
        delays = itertools.chain([0.0, 0.0, 8.0], itertools.repeat(0.0))
        life = Life(lambda: 8 if len(life.arrivals) < 3 else 1, delays, clock, behavior={"scaleDown": down})
        life.bench.cluster.scales["web"] = 8
        life.bench.controller.start()
        await virtual_time.until(lambda: len(life.bench.metrics.asked) == 3, every=1)
        clock.off = timedelta(hours=1)
        await asyncio.sleep(150)
        await life.bench.controller.stop(5)
        return life

    life = virtual_time.run(main())
    came, _ = life.arrivals[2]
    (at, count), *_ = life.writes
    assert count == 1
    assert WINDOW <= at - came <= WINDOW + PERIOD


class ReconcileRecorder:
    """Keeps what was done."""

    def __init__(self) -> None:
        self.done: list[encode.RecordedReconcile] = []

    def note(self, done: encode.RecordedReconcile) -> None:
        self.done.append(done)

    def forget(self, key: Key) -> None:
        self.done.clear()


def test_a_recording_of_slow_turns_is_replayed_alike() -> None:
    """The time of a step is the moment it was decided with: each history follows from the steps before."""

    async def main() -> list[encode.RecordedReconcile]:
        behavior = {"scaleUp": {"policies": [POLICY]}, "scaleDown": {"stabilizationWindowSeconds": WINDOW}}
        delays = itertools.cycle([0.1, 8.0, 2.0, 0.0, 5.0])
        life = Life(lambda: 40 if len(life.arrivals) < 9 else 1, delays, behavior=behavior)
        life.bench.reconciler._recorder = recorder = ReconcileRecorder()
        await life.bench.advance(20 * PERIOD)
        return recorder.done

    done = virtual_time.run(main())
    recording = encode.encode_head(done[0], "slow")
    recording["steps"] = [encode.encode_reconcile(each, new_spec=False) for each in done]
    written = json.loads(msgspec.json.encode(recording))
    steps = replay.replay(written)["steps"]
    assert {step["action"] for step in steps} == {"none", "scale_up", "scale_down"}
    assert steps == [step["expect"] for step in written["steps"]]
    histories = [each.settlement.history for each in replay.run(decode_scenario(written))]
    assert histories == [each.settlement.history for each in done]

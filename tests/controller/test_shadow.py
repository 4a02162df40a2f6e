"""Shadow mode in the controller: nothing is written to the target, a restart keeps the count, recordings replay."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine.conditions import SHADOW, find
from hpad.engine.turn import Reconcile
from hpad.records import replay
from hpad.records.encode import encode_head, encode_reconcile
from hpad.records.format import decode_scenario
from hpad.simulation.backtest import RecordedBacktest
from hpad.store import record
from hpad.store.store import InMemory

KEY = Key("default", "web")
ONE = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}


def in_mode(mode: str | None, **spec: Any) -> HorizontalPodAutoscaler:
    made = hpa("web", behavior=ONE, **spec)
    annotations = None if mode is None else {"hpad.io/mode": mode}
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=annotations))


def kept(bench: Bench) -> int | None:
    return bench.store.get(KEY).shadow


@pytest.mark.parametrize("mode", [None, "shadow"])
@in_virtual_time
async def test_only_the_status_is_written(mode: str | None) -> None:
    """In shadow mode by the annotation; in a dry run (None), not even the status."""
    bench = Bench(in_mode(mode), dry_run=mode is None)
    bench.metrics.values["web"] = 40
    await bench.advance(100)
    assert (kept(bench), bench.cluster.scales["web"]) == (4, 1)
    assert (bench.cluster.writes, bench.cluster.events) == ([], [])
    assert bool(bench.cluster.statuses) == (mode is not None)
    status = bench.cluster.statuses[-1] if mode else bench.store.get(KEY).status
    assert status is not None
    assert (status.current_replicas, status.desired_replicas, status.last_scale_time) == (1, 1, None)
    condition = find(status.conditions, SHADOW)
    assert condition is not None
    assert condition.reason == ("Shadow" if mode else "DryRun")


@in_virtual_time
async def test_a_new_process_goes_on_with_the_count_of_the_shadow() -> None:
    bench = Bench(in_mode("shadow"))
    bench.metrics.values["web"] = 60
    await bench.advance(46)
    before = kept(bench)
    assert before in (3, 4)  # one more every 15 s
    store = InMemory()
    store.put(KEY, record.decode(KEY, record.encode(KEY, bench.store.get(KEY))))
    later = Bench(in_mode("shadow"), store=store, clock=bench.clock)
    later.metrics.values["web"] = 60
    await later.advance(31)
    assert later.cluster.writes == []
    assert kept(later) in (before + 1, before + 2)


@in_virtual_time
async def test_scaling_begins_and_ends_with_the_mode() -> None:
    bench = Bench(in_mode("shadow"))
    bench.metrics.values["web"] = 60
    bench.controller.start()
    await asyncio.sleep(31)
    assert kept(bench) in (2, 3)
    assert bench.cluster.writes == []
    bench.source.put(in_mode("active"))
    await asyncio.sleep(31)
    assert kept(bench) is None
    assert bench.cluster.writes[:2] == [2, 3], "from the count of the target, and no policy was used up"
    written = list(bench.cluster.writes)
    bench.source.put(in_mode("shadow"))
    await asyncio.sleep(31)
    await bench.controller.stop(5)
    assert bench.cluster.writes == written
    assert (kept(bench) or 0) > written[-1], "it goes on from the count of the target"


@pytest.mark.parametrize("seconds", range(30, 45, 3))
@pytest.mark.parametrize("dry_run", [False, True])
@in_virtual_time
async def test_a_pause_that_ends_during_a_turn_writes_nothing(dry_run: bool, seconds: int) -> None:
    """Some turn of these begins in the pause and is decided after its end, since its metrics take eight seconds."""
    until = virtual_time.VirtualClock().now() + timedelta(seconds=seconds)
    found = in_mode(None if dry_run else "shadow")
    annotations = {**(found.metadata.annotations or {}), "hpad.io/paused-until": until.isoformat()}
    found = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, annotations=annotations))
    bench = Bench(found, dry_run=dry_run)

    async def slow() -> int:
        await asyncio.sleep(8)
        return 60

    bench.metrics.values["web"] = slow
    await bench.advance(100)
    assert (bench.cluster.writes, bench.cluster.scales["web"]) == ([], 1)
    assert kept(bench) is not None


class Recorder:
    def __init__(self) -> None:
        self.done: list[Reconcile] = []

    def note(self, done: Reconcile) -> None:
        self.done.append(done)


@in_virtual_time
async def test_a_recording_of_a_shadow_replays_and_gives_its_own_curve() -> None:
    recorder = Recorder()
    bench = Bench(in_mode("shadow"), recorder=recorder)
    bench.controller.start()
    for load in (60, 60, 60, 20, 35, 10):
        bench.metrics.values["web"] = load
        await asyncio.sleep(30)
    await bench.controller.stop(5)
    value: dict[str, Any] = encode_head(recorder.done[0], "web") | {"steps": []}
    value["steps"] = [encode_reconcile(each, new_spec=False) for each in recorder.done]
    found = decode_scenario(json.loads(json.dumps(value)))
    again = list(replay.run(found))
    assert len(again) == len(recorder.done) >= 12
    for before, after in zip(recorder.done, again, strict=True):
        assert replay.results_of(after) == encode_reconcile(before, new_spec=False)["expect"]
    runs = RecordedBacktest("own", found.hpa)
    runs.add(found)
    assert runs.changed.curve == runs.recorded.curve
    assert {count for _, count in runs.changed.curve} >= {1, 2, 6}

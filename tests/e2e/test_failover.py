"""The leader is killed (-9) several times within a stabilization window and a policy's period: its successors decide as
if it had lived on.

The load of three HPAs ends at one moment. One has a stabilization window: it must scale down as soon as the last high
recommendation of any leader is older than the window. The other has a policy that limits the pods lost per period, over
the writes of all leaders. The third keeps its last replica for a time without work, which
no leader may cut short. The replicas are real processes, whose speed depends on the machine, so the checks use the
times of their turns in their records. Other seeds: HPAD_CRASH_SEEDS="1 2 3".
"""

import asyncio
import base64
import contextlib
import itertools
import os
import random
import sys
import zlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from e2e.conftest import AT_LAST, World, worlds

from hpad.api.metadata import Key
from hpad.engine.history import Idleness, PastRecommendation
from hpad.lab.cluster import Cluster
from hpad.store import record

SEEDS = [int(seed) for seed in os.environ.get("HPAD_CRASH_SEEDS", "20260101").split()]
PERIOD = 2
"""Seconds, in the default proportion to the lease, so that a takeover takes less than the gap of four periods."""
WINDOW = 9
POLICY_PODS, POLICY_PERIOD = 3, 5
ZERO_AFTER = 7
KILLS = 3
CUT_SHORT = 1
"""Turns that are saved and repeated, because a leader was killed at their end."""
FLAGS = (
    f"--sync-period={PERIOD}s",
    "--store=cluster",
    "--listen=none",
    "--feature-gates=HPAScaleToZero=true",
    "--log-format=json",
    "--leader-elect",
    "--leader-elect-lease-duration=2s",
    "--leader-elect-renew-deadline=1500ms",
    "--leader-elect-retry-period=200ms",
)
HIGH, LOW = 10, 1


NAMES = ("windowed", "stepped", "sleepy")
DEPTH = [{"type": "External", "external": {"metric": {"name": "depth"}, "target": {"type": "Value", "value": "5"}}}]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds(Cluster(auto_ready=True, scale_to_zero=True)) as made:
        yield made


class Replica:
    """hpad as a process."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self._log = log

    def has_logged(self, text: str) -> bool:
        return text in self._log.read_text(encoding="utf-8")


class Replicas:
    """Two replicas at a time; a killed one gets a successor."""

    def __init__(self, world: Any, folder: Path) -> None:
        self._world = world
        self._folder = folder
        self._config = folder / "hpad.yaml"
        self._config.write_text(f"sources: {{numbers: {{adapter: static, file: {folder / 'depth.yaml'}}}}}\n")
        self._alive: list[Replica] = []
        self._count = 0

    def depth(self, value: int) -> None:
        """Sets the metric of the HPA without pods."""
        (self._folder / "depth.yaml").write_text(f"depth: {value}\n")

    async def start(self) -> Replica:
        kubeconfig = await self._world.cluster.kubeconfig(self._folder / "kubeconfig")
        self._count += 1
        log = self._folder / f"{self._count}.log"
        with log.open("wb") as stderr:
            command = (sys.executable, "-m", "hpad", "run", f"--kubeconfig={kubeconfig}", *FLAGS)
            command = (*command, f"--config={self._config}")
            process = await asyncio.create_subprocess_exec(*command, stderr=stderr)
        self._alive.append(Replica(process, log))
        return self._alive[-1]

    async def kill_the_leader(self) -> None:
        """Kills the leader once the other replica stands by, which leads afterwards."""
        first, second = self._alive
        await self._world.until(lambda: second.has_logged("standing for election"))
        first.process.kill()
        await first.process.wait()
        self._alive.remove(first)
        await self.start()

    async def stop(self) -> None:
        for replica in self._alive:
            with contextlib.suppress(ProcessLookupError):
                replica.process.terminate()
        for replica in self._alive:
            await asyncio.wait_for(replica.process.wait(), AT_LAST)


@pytest.fixture
async def replicas(world: Any, tmp_path: Path) -> AsyncIterator[Replicas]:
    made = Replicas(world, tmp_path)
    try:
        yield made
    finally:
        await made.stop()


class Backend:
    """Collects from all saved records the recommendations (one per turn) and scale-downs of each HPA, and the counts of
    the Deployment `stepped`."""

    def __init__(self, world: Any) -> None:
        self.turns: dict[str, set[PastRecommendation]] = {name: set() for name in NAMES}
        self.falls: dict[str, set[datetime]] = {name: set() for name in NAMES}
        self.idle: set[Idleness] = set()
        self.counts = [HIGH]
        world.cluster.store.subscribe(self._seen)

    def times(self, name: str) -> list[datetime]:
        return sorted({turn.timestamp for turn in self.turns[name]})

    def _seen(self, change: Any) -> None:
        written, meta = change.object, change.object["metadata"]
        if change.resource.plural == "configmaps" and meta["name"] == "hpad-history-0":
            value = (written.get("binaryData") or {}).get("histories")
            if value is not None:
                self._read(zlib.decompress(base64.b64decode(value)))
        if change.resource.plural == "deployments" and meta["name"] == "stepped":
            count = written["spec"]["replicas"]
            self.counts.extend([count] if count != self.counts[-1] else [])

    def _read(self, saved: bytes) -> None:
        _, rows = msgspec.msgpack.decode(saved)
        for namespace, name, data in rows:
            history = record.decode(Key(namespace, name), data).history
            self.turns[name].update(history.recommendations)
            self.falls[name].update(fall.timestamp for fall in history.scale_downs)
            self.idle.update([history.idleness] if history.idleness else [])


def writes(world: Any, name: str) -> list[datetime]:
    """Returns the times of the writes of a Deployment's scale."""
    log = world.cluster.log.writes
    return [write.time for write in log if write.subresource == "scale" and name in write.path and write.status == 200]


@pytest.mark.parametrize("seed", SEEDS)
async def test_the_successor_of_a_killed_leader_removes_no_pod_early(world: Any, replicas: Replicas, seed: int) -> None:
    dice = random.Random(seed)
    policy = {"type": "Pods", "value": POLICY_PODS, "periodSeconds": POLICY_PERIOD}
    down = {"windowed": {"stabilizationWindowSeconds": WINDOW}, "stepped": {"stabilizationWindowSeconds": 0}}
    down["stepped"]["policies"] = [policy]  # type: ignore[assignment]  # a document
    for name, rules in down.items():
        world.workload("Deployment", name, HIGH)
        world.load(name, 50)
        world.hpa(name, behavior={"scaleDown": rules})
    world.workload("Deployment", "sleepy", 1)
    replicas.depth(5)
    made = world.hpa("sleepy", metrics=DEPTH, minReplicas=0)
    annotations = {"hpad.io/zero-after": f"{ZERO_AFTER}s"}
    world.cluster.apply({**made, "metadata": {**made["metadata"], "annotations": annotations}})
    backend = Backend(world)
    await replicas.start()
    await world.until(lambda: len(backend.times("windowed")) > 1 and all(map(backend.times, NAMES)))
    await replicas.start()
    await asyncio.sleep(dice.uniform(PERIOD, 2 * PERIOD))
    world.load("windowed", 0)
    world.load("stepped", 0)
    replicas.depth(0)
    for _ in range(KILLS):
        await asyncio.sleep(dice.uniform(0, 2 * PERIOD))
        await replicas.kill_the_leader()
    for name in ("windowed", "stepped"):
        await world.until(lambda name=name: world.replicas("deployments", name) == LOW)
    await world.until(lambda: len(backend.falls["stepped"]) == 3)
    _check_window(backend, writes(world, "windowed"))
    _check_policy(backend)
    await world.until(lambda: world.replicas("deployments", "sleepy") == 0)
    _check_last_replica(backend, writes(world, "sleepy"))


def _check_last_replica(backend: Backend, moments: list[datetime]) -> None:
    """Asserts one write, once the time without work has passed since the last turn of any leader that began it."""
    (asleep,) = moments
    began = max(idle.seen for idle in backend.idle if idle.seen and idle.seen <= asleep and not idle.lasted)
    assert began + timedelta(seconds=ZERO_AFTER) <= asleep


def _check_window(backend: Backend, moments: list[datetime]) -> None:
    """Asserts one write, in the first turn after the window of the last high recommendation.

    A successor keeps the count for one more turn if a turn of the leader may have been lost.
    """
    (shrunk,) = moments
    times = backend.times("windowed")
    last = max(turn.timestamp for turn in backend.turns["windowed"] if turn.replicas == HIGH)
    over = last + timedelta(seconds=WINDOW)
    assert over <= shrunk
    assert sum(over <= at < shrunk for at in times) <= 1 + CUT_SHORT


def _check_policy(backend: Backend) -> None:
    """Asserts that each period loses as many pods as the policy allows, and no more, over all leaders."""
    assert backend.counts == [10, 7, 4, 1]
    for before, after in itertools.pairwise(sorted(backend.falls["stepped"])):
        over = before + timedelta(seconds=POLICY_PERIOD)
        assert over <= after
        assert sum(over <= at < after for at in backend.times("stepped")) <= CUT_SHORT

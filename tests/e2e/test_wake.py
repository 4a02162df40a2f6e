"""Scale to zero on the embedded cluster: who set the last count is read from `metadata.managedFields`."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from e2e.conftest import IMPATIENT, World, worlds
from e2e.test_competing import somebody

from hpad import settings
from hpad.engine.view import Gates
from hpad.lab.cluster import Cluster

METRIC = {"type": "External", "external": {"metric": {"name": "depth"}, "target": {"type": "Value", "value": "5"}}}
SCALE = "/apis/apps/v1/namespaces/default/deployments/worker/scale"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds(Cluster(auto_ready=True, scale_to_zero=True)) as made:
        yield made


def work(numbers: Path, depth: int) -> None:
    numbers.write_text(f"depth: {depth}")


async def asleep(world: World, numbers: Path) -> None:
    """A Deployment that hpad has scaled to zero, since there is nothing to do."""
    work(numbers, 0)
    world.workload("Deployment", "worker", 1)
    world.hpa("worker", metrics=[METRIC], minReplicas=0)
    source = settings.SourceSettings(name="s", adapter="static", settings={"file": str(numbers)})
    tunables = msgspec.structs.replace(IMPATIENT, gates=Gates(HPAScaleToZero=True))
    await world.hpad(tunables=tunables, sources=(source,))
    await world.until(lambda: world.condition("worker", "ScaledToZero")[0] == "True")


async def set_replicas(world: World, count: int) -> None:
    """As `kubectl scale` does."""
    async with somebody(world, "kubectl/v1.36") as kubectl:
        body = json.dumps({"spec": {"replicas": count}}).encode()
        await kubectl.request("PATCH", SCALE, body=body, content_type="application/merge-patch+json")


async def test_a_target_that_hpad_put_to_sleep_is_woken_whatever_else_is_changed_in_it(
    world: World, tmp_path: Path
) -> None:
    """An upgrade of the image, say, which leaves the replicas alone."""
    await asleep(world, tmp_path / "numbers.yaml")
    body = json.dumps({"spec": {"minReadySeconds": 1}}).encode()
    async with somebody(world, "helm/v4") as helm:
        kind = "application/merge-patch+json"
        await helm.request("PATCH", SCALE.removesuffix("/scale"), body=body, content_type=kind)
    work(tmp_path / "numbers.yaml", 5)
    await world.until(lambda: world.replicas("deployments", "worker") > 0)
    await world.until(lambda: world.condition("worker", "ScaledToZero")[0] == "False")


async def test_a_target_that_was_started_and_stopped_by_hand_between_two_turns_stays_stopped(
    world: World, tmp_path: Path
) -> None:
    """None of the counts that hpad sees is another than it has left."""
    await asleep(world, tmp_path / "numbers.yaml")
    await set_replicas(world, 3)
    await set_replicas(world, 0)
    work(tmp_path / "numbers.yaml", 5)
    status, reason, message = await world.until(
        lambda: (found := world.condition("worker", "ScaledToZero"))[0] == "False" and found
    )
    assert (status, reason) == ("False", "NotScaledToZero")
    assert "another client has set the replica count" in message
    await world.periods(5)
    assert world.replicas("deployments", "worker") == 0
    assert world.condition("worker", "ScalingActive")[1] == "ScalingDisabled"

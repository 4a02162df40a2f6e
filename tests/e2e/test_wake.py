"""Scale to zero on the embedded cluster: `metadata.managedFields` names the client that set the last count."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from e2e.conftest import IMPATIENT, World, worlds
from e2e.test_competing import another_client

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
    """Starts hpad with a Deployment without work, and waits until it is scaled to zero."""
    work(numbers, 0)
    world.workload("Deployment", "worker", 1)
    world.hpa("worker", metrics=[METRIC], minReplicas=0)
    source = settings.SourceSettings(name="s", adapter="static", settings={"file": str(numbers)})
    tunables = msgspec.structs.replace(IMPATIENT, gates=Gates(HPAScaleToZero=True))
    await world.hpad(tunables=tunables, sources=(source,))
    await world.until(lambda: world.condition("worker", "ScaledToZero")[0] == "True")


async def set_replicas(world: World, count: int) -> None:
    """Sets the replicas as `kubectl scale` does."""
    async with another_client(world, "kubectl/v1.36") as kubectl:
        body = json.dumps({"spec": {"replicas": count}}).encode()
        await kubectl.request("PATCH", SCALE, body=body, content_type="application/merge-patch+json")


async def test_a_target_scaled_to_zero_by_hpad_is_woken_after_other_changes(world: World, tmp_path: Path) -> None:
    """Such a change is an upgrade of the image, which does not set the replicas."""
    await asleep(world, tmp_path / "numbers.yaml")
    body = json.dumps({"spec": {"minReadySeconds": 1}}).encode()
    async with another_client(world, "helm/v4") as helm:
        kind = "application/merge-patch+json"
        await helm.request("PATCH", SCALE.removesuffix("/scale"), body=body, content_type=kind)
    work(tmp_path / "numbers.yaml", 5)
    await world.until(lambda: world.replicas("deployments", "worker") > 0)
    await world.until(lambda: world.condition("worker", "ScaledToZero")[0] == "False")


async def test_a_target_stopped_by_another_client_stays_at_zero(world: World, tmp_path: Path) -> None:
    """hpad has to see the other count: the server does not tell who has set the scale to zero."""
    await asleep(world, tmp_path / "numbers.yaml")
    await world.patch_hpa("worker", {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}})
    for count in (3, 0):
        await set_replicas(world, count)
        await world.until(lambda count=count: world.status("worker").get("currentReplicas", 0) == count)
    status, reason, message = await world.until(
        lambda: (found := world.condition("worker", "ScaledToZero"))[0] == "False" and found
    )
    assert (status, reason) == ("False", "NotScaledToZero")
    assert "another client has set the replica count" in message
    work(tmp_path / "numbers.yaml", 5)
    await world.periods(5)
    assert world.replicas("deployments", "worker") == 0
    assert world.condition("worker", "ScalingActive")[1] == "ScalingDisabled"

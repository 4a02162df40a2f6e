"""Pods that are resized in place while hpad runs: from the watch to the decision and to the explanation.

The embedded cluster has no kubelet that resizes, so the tests write what a kubelet writes.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import World
from e2e.test_explain import LISTEN, until_explained

from hpad.cli import main

COUNT = 4


def resize(world: World, spec: str, status: str, *, pending: str = "") -> None:
    """Gives the pods that CPU request in their spec, and the other one as that which their node applies."""
    for pod in world.pods("web"):
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": spec}}
        applied = {"name": "app", "resources": {"requests": {"cpu": status}}, "allocatedResources": {"cpu": status}}
        head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["metadata"]["name"]}}
        conditions = [each for each in pod["status"]["conditions"] if each["type"] != "PodResizePending"]
        if pending:
            conditions.append({"type": "PodResizePending", "status": "True", "reason": pending})
        made: dict[str, Any] = {**pod["status"], "containerStatuses": [applied], "conditions": conditions}
        world.cluster.apply({**head, "spec": pod["spec"], "status": made})


def utilization(world: World) -> int | None:
    """None also while the metric cannot be read, as before the first sample."""
    [metric] = world.status("web").get("currentMetrics") or [{}]
    return int(metric["resource"]["current"]["averageUtilization"]) if "resource" in metric else None


async def started(world: World, **settings: Any) -> None:
    world.workload("Deployment", "web", COUNT)
    world.load("web", 50)
    world.hpa("web")
    await world.hpad(**settings)
    await world.until(lambda: utilization(world) == 50)


@pytest.mark.parametrize("pending", ["Deferred", "Infeasible"])
async def test_a_raise_counts_once_it_is_in_force(world: World, pending: str) -> None:
    """By the spec, 50m of 200m would be half the goal at once, and the target would shrink while it is busy."""
    await started(world)
    resize(world, "200m", "100m", pending=pending)
    world.load("web", 52)  # another value shows that hpad has decided since
    await world.until(lambda: utilization(world) == 52)
    assert world.replicas("deployments", "web") == COUNT
    resize(world, "200m", "200m")
    await world.until(lambda: world.replicas("deployments", "web") < COUNT)


async def test_a_cut_counts_once_it_is_in_force(world: World) -> None:
    """By the spec, 50m of 50m would be twice the goal at once."""
    await started(world)
    resize(world, "50m", "100m")
    world.load("web", 52)
    await world.until(lambda: utilization(world) == 52)
    assert world.replicas("deployments", "web") == COUNT
    resize(world, "50m", "50m")
    await world.until(lambda: world.replicas("deployments", "web") > COUNT)


async def test_a_raise_that_is_not_in_force_is_explained_recorded_and_replayed(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await started(world, record=tmp_path, **LISTEN)
    resize(world, "200m", "100m", pending="Infeasible")
    lines = await until_explained(world, "a resize to 200m is not in force")
    assert any("50%" in line and "a resize to" in line for line in lines)
    await world.daemon.stop()
    [file] = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["replay", str(file)]) == 0
    recorded = [json.loads(line) for line in (await asyncio.to_thread(file.read_text)).splitlines()]
    replayed = [json.loads(line)["steps"] for line in capsys.readouterr().out.splitlines()]
    assert [[step["expect"] for step in scenario["steps"]] for scenario in recorded] == replayed

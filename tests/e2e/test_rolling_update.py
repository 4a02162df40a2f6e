"""Workers of a queue over a rolling update whose new pods take a second until they count as available."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from e2e.conftest import World

from hpad import settings
from hpad.engine.view import Gates, Tunables

COUNT = 10
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "depth"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def template(image: str) -> dict[str, Any]:
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": image}]}}


async def started(world: World, folder: Path, *, kept: bool) -> None:
    (folder / "depth").write_text("depth: 100\n")
    source = settings.SourceSettings(name="broker", adapter="static", settings={"file": str(folder / "depth")})
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    world.workload("Deployment", "web", COUNT, strategy=strategy, minReadySeconds=1, template=template("app:1"))
    world.hpa("web", metrics=[QUEUE], maxReplicas=20)
    await world.until(lambda: available(world) == COUNT)
    tunables = Tunables(downscale_stabilization=timedelta(0), gates=Gates(HPASpecReplicasKept=kept))
    await world.hpad(sources=(source,), tunables=tunables)
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")


def available(world: World) -> int:
    return int(((world.cluster.get("deployments", "web") or {}).get("status") or {}).get("availableReplicas", 0))


def roll_out(world: World) -> None:
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}
    world.cluster.apply({**head, "spec": {"template": template("app:2")}})


async def test_a_rolling_update_of_queue_workers_adds_none(world: World, tmp_path: Path) -> None:
    await started(world, tmp_path, kept=True)
    roll_out(world)
    counts, running = set(), set()

    def rolled() -> bool:
        found = world.cluster.get("deployments", "web") or {}
        counts.add(found["spec"]["replicas"])
        running.add(found["status"].get("replicas"))
        images = {pod["spec"]["containers"][0]["image"] for pod in world.pods("web")}
        return images == {"app:2"} and found["status"].get("replicas") == COUNT

    await world.until(rolled)
    assert COUNT + 1 in running
    assert counts == {COUNT}


async def test_without_the_gate_it_adds_one(world: World, tmp_path: Path) -> None:
    """As Kubernetes does: eleven of ten are within the tolerance (kubernetes#138505)."""
    await started(world, tmp_path, kept=False)
    roll_out(world)
    await world.until(lambda: world.replicas("deployments", "web") > COUNT)

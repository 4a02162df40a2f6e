"""Spare replicas on the embedded cluster: a load that its pods share, and a pod that fails."""

import json
from typing import Any

import pytest
from e2e.conftest import World

LOAD = 240
"""Millicores in all: at 50 % of 100m, five replicas have 48 % of their requests each."""
NEEDED = 5
WINDOWS = {name: {"stabilizationWindowSeconds": 1} for name in ("scaleUp", "scaleDown")}
"""They cover the moments in which the load is seen on fewer or more pods than share it."""


async def _spare(world: World, amount: str | None) -> None:
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    body = json.dumps({"metadata": {"annotations": {"hpad.io/spare": amount}}}).encode()
    client = world.daemon.components.cluster.client
    await client.request("PATCH", path, body=body, content_type="application/merge-patch+json")


async def _rests_at(world: World, count: int) -> None:
    """Waits for the count, and that it stays while the pods share the load anew."""
    await world.until(lambda: world.replicas("deployments", "web") == count == len(world.pods("web")))
    seen = set()
    for _ in range(5):
        await world.periods(1)
        seen.add(world.replicas("deployments", "web"))
    assert seen == {count}


def _averages(world: World) -> list[Any]:
    metrics = world.status("web").get("currentMetrics") or ()
    return [each["resource"]["current"]["averageUtilization"] for each in metrics if "resource" in each]


@pytest.mark.parametrize("first", [1, 10])
async def test_the_spare_replicas_stay_beside_what_the_load_needs(world: World, first: int) -> None:
    world.workload("Deployment", "web", first)
    world.hpa("web", behavior=WINDOWS)
    world.load("web", lambda pods: LOAD // max(1, pods))
    await world.hpad()
    await _rests_at(world, NEEDED)
    await _spare(world, "2")
    await _rests_at(world, NEEDED + 2)
    await world.until(lambda: _averages(world) == [47])  # 7 x 34m over five replicas
    sizes = [text.split()[2] for reason, text in world.events("web") if reason == "SuccessfulRescale"]
    assert f"{NEEDED + 2};" in sizes
    await _spare(world, "100%")
    await _rests_at(world, 2 * NEEDED)
    await _spare(world, None)
    await _rests_at(world, NEEDED)


async def test_a_pod_that_fails_starts_no_other_one(world: World) -> None:
    world.workload("Deployment", "web", NEEDED + 1)
    made = world.hpa("web", behavior=WINDOWS)
    made["metadata"]["annotations"] = {"hpad.io/spare": "1"}
    world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    world.load("web", lambda pods: LOAD // max(1, pods))
    await world.hpad()
    await _rests_at(world, NEEDED + 1)
    written = len(world.events("web"))
    broken = world.pods("web")[0]
    now = "2020-01-01T00:00:00Z"
    state = [{**each, "status": "False", "lastTransitionTime": now} for each in broken["status"]["conditions"]]
    world.load("web", LOAD // NEEDED)  # the others have its part
    world.cluster.set_pod_status(broken["metadata"]["name"], {**broken["status"], "conditions": state})
    for _ in range(3):  # much longer than the window
        await _rests_at(world, NEEDED + 1)
    assert len(world.events("web")) == written

"""HPAs on custom resources, which hpad does not watch: it reads each scale."""

from typing import Any

import pytest
from support import widgets


def widget(world: Any, name: str) -> None:
    """Applies a Widget with four replicas that selects the pods labelled app=web."""
    body = {"spec": {"replicas": 4}, "status": {"replicas": 4, "selector": "app=web"}}
    world.cluster.apply({"apiVersion": widgets.API_VERSION, "kind": "Widget", "metadata": {"name": name}, **body})


def hpa(world: Any, name: str, target: str, goal: int) -> None:
    world.hpa(name, goal=goal, scaleTargetRef={"apiVersion": widgets.API_VERSION, "kind": "Widget", "name": target})


@pytest.mark.parametrize("target", ["web", "twin"])
async def test_two_competing_hpas_scale_nothing_also_after_a_restart(world: Any, target: str) -> None:
    """They have the same target, or targets that select the same pods. One alone scales, so both could have."""
    world.cluster.apply(widgets.DEFINITION)
    for name in {"web", target}:
        widget(world, name)
    world.workload("Deployment", "web", 4)  # creates the pods
    world.load("web", 60)
    hpa(world, "grows", "web", 30)
    hpa(world, "shrinks", target, 90)
    for _ in range(2):
        daemon = await world.hpad()
        await world.until(lambda: world.condition("grows", "ScalingActive")[1] == "AmbiguousSelector")
        await world.until(lambda: world.condition("shrinks", "ScalingActive")[1] == "AmbiguousSelector")
        await world.periods(3)
        assert {world.replicas("widgets", name) for name in ("web", target)} == {4}
        await daemon.stop()
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/shrinks"
    await world.hpad()
    await world.daemon.components.cluster.client.request("DELETE", path)
    await world.until(lambda: world.replicas("widgets", "web") == 8)

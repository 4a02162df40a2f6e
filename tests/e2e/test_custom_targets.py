"""HPAs on custom resources, which hpad does not watch: it asks for their scales one by one."""

from typing import Any

import pytest

GROUP = "oracle.example/v1"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.oracle.example"},
    "spec": {
        "group": "oracle.example",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


def widget(world: Any, name: str) -> None:
    """A custom resource with four replicas, which selects the pods labelled app=web."""
    body = {"spec": {"replicas": 4}, "status": {"replicas": 4, "selector": "app=web"}}
    world.cluster.apply({"apiVersion": GROUP, "kind": "Widget", "metadata": {"name": name}, **body})


def hpa(world: Any, name: str, target: str, goal: int) -> None:
    world.hpa(name, goal=goal, scaleTargetRef={"apiVersion": GROUP, "kind": "Widget", "name": target})


@pytest.mark.parametrize("target", ["web", "twin"])
async def test_of_two_hpas_that_compete_none_acts_after_any_start(world: Any, target: str) -> None:
    """They name the same target, or targets that select the same pods. One alone acts: so both could have."""
    world.cluster.apply(DEFINITION)
    for name in {"web", target}:
        widget(world, name)
    world.workload("Deployment", "web", 4)  # whoever makes the pods
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

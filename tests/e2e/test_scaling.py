"""Workloads follow their load; the state is checked through the API."""

from datetime import timedelta
from typing import Any

import pytest

from hpad.api.metadata import Key
from hpad.lab.cluster import Resource, ScalePaths

ABOVE = "cpu resource utilization (percentage of request) above target"


async def test_php_apache_follows_its_load_up_and_down(world: Any) -> None:
    """Scenario 2: 305 % over a target of 50 % at one replica gives seven; without load one again."""
    world.workload("Deployment", "php-apache", 1, cpu="200m")
    world.load("php-apache", lambda pods: 610 // max(pods, 1))
    world.hpa("php-apache", goal=50)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "php-apache") == 7)
    await world.until(lambda: len(world.pods("php-apache")) == 7)
    detail = "from 1: cpu above target (305% / 50%)"
    event = ("SuccessfulRescale", f"New size: 7; reason: {ABOVE}; {detail}")
    await world.until(lambda: event in world.events("php-apache"))
    world.load("php-apache", 0)
    await world.until(lambda: world.replicas("deployments", "php-apache") == 1)
    await world.until(lambda: world.status("php-apache").get("currentReplicas") == 1)
    event = "New size: 1; reason: All metrics below target; from 7: cpu below target ("
    await world.until(lambda: any(message.startswith(event) for _, message in world.events("php-apache")))


async def test_a_stabilization_window_delays_a_scale_down(world: Any) -> None:
    """The window of scenario 2, shortened by the manifest: no scale-down before it has passed."""
    window = timedelta(seconds=3)
    world.workload("Deployment", "web", 4)
    world.load("web", 50)
    world.hpa("web", behavior={"scaleDown": {"stabilizationWindowSeconds": int(window.total_seconds())}})
    await world.hpad()
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")
    world.load("web", 0)
    await world.until(lambda: world.condition("web", "AbleToScale")[1] == "ScaleDownStabilized")
    recommendations = world.daemon.components.store.get(Key("default", "web")).history.recommendations
    assert world.replicas("deployments", "web") == 4
    await world.until(lambda: world.replicas("deployments", "web") == 1)
    (shrunk,) = [write.time for write in world.cluster.log.writes if write.subresource == "scale"]
    assert shrunk >= max(each.timestamp for each in recommendations if each.replicas == 4) + window


async def test_a_container_without_a_request_stops_scaling_and_is_named(world: Any) -> None:
    """Scenario 4."""
    world.workload("Deployment", "web", 2, cpu=None)
    world.load("web", 500)
    world.hpa("web")
    await world.hpad()
    await world.until(lambda: "missing request" in world.condition("web", "ScalingActive")[2])
    active, reason, message = world.condition("web", "ScalingActive")
    pod = next(name for name in (pod["metadata"]["name"] for pod in world.pods("web")) if name in message)
    assert (active, reason) == ("False", "FailedGetResourceMetric")
    assert f"missing request for cpu in container app of Pod {pod}" in message
    await world.until(
        lambda: {"FailedGetResourceMetric", "FailedComputeMetricsReplicas"} <= {e[0] for e in world.events("web")}
    )
    assert world.replicas("deployments", "web") == 2


async def test_a_failing_metric_blocks_scale_downs_only(world: Any) -> None:
    """Scenario 14: while one metric fails, another may scale up but not down; if all fail, the count stays."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    external = {"metric": {"name": "nobody_knows_it"}, "target": {"type": "AverageValue", "averageValue": "1"}}
    metrics = [{"type": "External", "external": external}, {"type": "Resource", "resource": cpu}]
    world.workload("Deployment", "web", 2)
    world.load("web", 10)
    world.hpa("web", metrics=metrics)
    await world.hpad()
    await world.until(lambda: any(reason == "FailedGetExternalMetric" for reason, _ in world.events("web")))
    await world.periods(3)
    assert world.replicas("deployments", "web") == 2
    world.load("web", lambda pods: 200 // max(pods, 1))
    await world.until(lambda: world.replicas("deployments", "web") == 4)
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")  # so that a new "False" is seen
    await world.patch_hpa("web", {"metrics": metrics[:1]})
    await world.until(lambda: world.condition("web", "ScalingActive")[:2] == ("False", "FailedGetExternalMetric"))
    world.load("web", 1000)
    await world.periods(3)
    assert world.replicas("deployments", "web") == 4


async def test_a_target_set_to_zero_stays_there_until_another_client_scales_it(world: Any) -> None:
    """Scenario 16."""
    world.workload("Deployment", "web", 0)
    world.hpa("web", minReplicas=2)
    await world.hpad()
    await world.until(lambda: world.condition("web", "ScalingActive")[:2] == ("False", "ScalingDisabled"))
    await world.periods(3)
    assert world.replicas("deployments", "web") == 0
    world.load("web", 50)
    world.workload("Deployment", "web", 1)
    await world.until(lambda: world.replicas("deployments", "web") == 2)
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")


@pytest.mark.parametrize(
    ("replicas", "expected", "side"), [(15, 10, "above Spec.MaxReplicas"), (1, 3, "below Spec.MinReplicas")]
)
async def test_a_count_outside_minimum_and_maximum_is_corrected_without_metrics(
    world: Any, replicas: int, expected: int, side: str
) -> None:
    """Scenario 17: no metric has a value, and the count is still brought between minimum and maximum."""
    world.workload("Deployment", "web", replicas)
    world.hpa("web", minReplicas=3)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "web") == expected)
    event = f"New size: {expected}; reason: Current number of replicas {side}"
    await world.until(lambda: any(message.startswith(event) for _, message in world.events("web")))


async def test_a_rolling_update_does_not_change_the_count(world: Any) -> None:
    """Scenario 19: the Deployment is scaled, not its ReplicaSets, and overlapping pods do not change the count."""
    world.workload("Deployment", "web", 4)
    world.load("web", 50)
    world.hpa("web")
    await world.hpad()
    await world.until(lambda: world.condition("web", "ScalingActive")[0] == "True")
    seen: set[int] = set()
    for image in ("app:2", "app:3"):
        deployment = world.cluster.get("deployments", "web")
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = image
        head = {name: deployment[name] for name in ("apiVersion", "kind")}
        template = {"template": deployment["spec"]["template"]}
        world.cluster.apply({**head, "metadata": {"name": "web"}, "spec": template})
        for _ in range(10):
            await world.periods(0.3)
            seen.add(world.replicas("deployments", "web"))
        await world.until(lambda image=image: _images(world, "web") == {image} and len(world.pods("web")) == 4)
    assert seen == {4}
    owners = {owner["kind"] for pod in world.pods("web") for owner in pod["metadata"]["ownerReferences"]}
    assert owners == {"ReplicaSet"}
    assert sorted(found["spec"]["replicas"] for found in world.cluster.list("replicasets")) == [0, 0, 4]


def _images(world: Any, name: str) -> set[str]:
    return {container["image"] for pod in world.pods(name) for container in pod["spec"]["containers"]}


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("Deployment", "deployments"),
        ("StatefulSet", "statefulsets"),
        ("ReplicaSet", "replicasets"),
        ("ReplicationController", "replicationcontrollers"),
    ],
)
async def test_every_kind_with_a_scale_subresource_is_scaled(world: Any, kind: str, plural: str) -> None:
    """Scenario 23."""
    world.workload(kind, "web", 1)
    world.load("web", lambda pods: 150 // max(pods, 1))
    world.hpa("web", kind)
    await world.hpad()
    await world.until(lambda: world.replicas(plural, "web") == 3)
    await world.until(lambda: len(world.pods("web")) == 3)


async def test_a_custom_resource_is_scaled(world: Any) -> None:
    """Scenario 23: an unknown custom kind."""
    world.cluster.serve(
        Resource("example.com", ("v1",), "widgets", "Widget", scale=ScalePaths(selector=".status.selector"))
    )
    manifest = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "web"},
        "spec": {"replicas": 20},
        "status": {"replicas": 20, "selector": "app=web"},
    }
    world.cluster.apply(manifest)
    world.hpa("web", scaleTargetRef={"apiVersion": "example.com/v1", "kind": "Widget", "name": "web"})
    await world.hpad()
    await world.until(lambda: world.replicas("widgets", "web") == 10)


async def test_an_hpa_on_a_daemon_set_reports_the_missing_scale(world: Any) -> None:
    """Scenario 23."""
    world.hpa("web", scaleTargetRef={"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "web"})
    await world.hpad()
    await world.until(lambda: world.condition("web", "AbleToScale")[:2] == ("False", "FailedGetScale"))
    await world.until(lambda: any(reason == "FailedGetScale" for reason, _ in world.events("web")))
    assert "the server could not find the requested resource" in world.condition("web", "AbleToScale")[2]


async def test_two_hpas_on_the_same_pods_scale_nothing(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 500)
    world.hpa("web")
    world.hpa("twin", scaleTargetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"})
    world.cluster.apply(
        {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "alone"}}
        | {"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}, "maxReplicas": 3}}
    )
    await world.hpad()
    for name in ("web", "twin"):
        await world.until(lambda name=name: world.condition(name, "ScalingActive")[1] == "AmbiguousSelector")
        assert "[default/twin default/web]" in world.condition(name, "ScalingActive")[2]

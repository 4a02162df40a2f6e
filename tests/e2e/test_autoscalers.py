"""Autoscalers beside HPAs: they are scaled, reported and left alone as HPAs are."""

from typing import Any

from e2e.conftest import Json
from support.autoscalers import DEFINITION, autoscaler

from hpad.kube import watch

QUICK = watch.ReflectorOptions(initial_backoff=0.05, max_backoff=0.2)


def status(world: Any, name: str) -> Json:
    found: Json = world.cluster.get("autoscalers", name).get("status", {})
    return found


def condition(world: Any, name: str, kind: str) -> Json:
    found = [each for each in status(world, name).get("conditions", []) if each["type"] == kind]
    return found[0] if found else {"status": "", "reason": "", "message": ""}


def rescaled(world: Any) -> set[tuple[str, str, str]]:
    """Returns the objects that events of rescales are about."""
    events = [each for each in world.cluster.list("events") if each["reason"] == "SuccessfulRescale"]
    about = [each["involvedObject"] for each in events]
    return {(each["apiVersion"], each["kind"], each["name"]) for each in about}


async def test_a_kind_that_is_installed_while_hpad_runs_is_scaled_and_reported(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 200)
    daemon = await world.hpad(reflector_options=QUICK)
    assert daemon.problems() == []
    world.cluster.apply(DEFINITION)
    made = autoscaler("web", "web")
    world.cluster.apply({**made, "metadata": {"name": "web", "labels": {"team": "shop"}}})
    await world.until(lambda: world.replicas("deployments", "web") == 6)
    await world.until(lambda: status(world, "web").get("desiredReplicas") == 6)
    found = world.cluster.get("autoscalers", "web")
    assert found["spec"] == made["spec"]  # no default is written into the object
    assert found["metadata"]["labels"] == {"team": "shop"}
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]
    assert found["status"]["targets"] == "cpu: 200%/50%"
    assert "cpu above target (200% / 50%)" in found["status"]["decision"]
    await world.until(lambda: rescaled(world) == {("hpad.io/v1", "Autoscaler", "web")})  # events come after the status


async def test_an_autoscaler_leaves_its_target_to_an_hpa_while_that_exists(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 50)
    world.cluster.apply(DEFINITION)
    world.cluster.apply(autoscaler("web", "web", minReplicas=5))
    world.hpa("web", minReplicas=3)
    daemon = await world.hpad(reflector_options=QUICK)
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    await world.until(lambda: condition(world, "web", "AbleToScale")["reason"] == "CompetingHPA")
    assert "default/web" in condition(world, "web", "CompetingWriters")["message"]
    await world.until(lambda: world.condition("web", "AbleToScale")[0] == "True")
    assert world.condition("web", "CompetingWriters") == ("", "", "")
    assert world.replicas("deployments", "web") == 3
    await daemon.components.cluster.client.request(
        "DELETE", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    )
    await world.until(lambda: world.replicas("deployments", "web") == 5)


async def test_options_win_over_annotations_and_a_shadow_writes_nothing_to_the_target(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 200)
    world.cluster.apply(DEFINITION)
    made = autoscaler("web", "web", options={"mode": "shadow"})
    made["metadata"]["annotations"] = {"hpad.io/mode": "active"}
    world.cluster.apply(made)
    world.hpa("web", minReplicas=2, maxReplicas=2)
    await world.hpad(reflector_options=QUICK)
    await world.until(lambda: condition(world, "web", "Shadow")["message"].endswith("would have it at 6"))
    assert condition(world, "web", "CompetingWriters")["status"] == ""  # it takes nothing from the HPA
    assert world.replicas("deployments", "web") == 2


async def test_what_the_api_server_would_refuse_in_an_hpa_becomes_a_condition(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.cluster.apply(DEFINITION)
    world.cluster.apply(autoscaler("web", "web", minReplicas=5, maxReplicas=3))
    await world.hpad(reflector_options=QUICK)
    await world.until(lambda: condition(world, "web", "AbleToScale")["reason"] == "InvalidSpec")
    assert "spec.maxReplicas: Invalid value: 3" in condition(world, "web", "AbleToScale")["message"]
    assert world.replicas("deployments", "web") == 2
    world.cluster.apply(autoscaler("web", "web", minReplicas=5, maxReplicas=9))
    await world.until(lambda: world.replicas("deployments", "web") == 5)

"""Autoscalers beside HPAs: they are scaled, reported and left alone as HPAs are."""

from pathlib import Path
from typing import Any

from e2e.conftest import Json
from support.autoscalers import autoscaler

from hpad import settings
from hpad.api.metadata import Key
from hpad.kube.reflector import ReflectorOptions
from hpad.lab.autoscaler import definition

QUICK = ReflectorOptions(initial_backoff=0.05, max_backoff=0.2)


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
    world.cluster.apply(definition())
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
    world.cluster.apply(definition())
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
    world.cluster.apply(definition())
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
    world.cluster.apply(definition())
    world.cluster.apply(autoscaler("web", "web", minReplicas=5, maxReplicas=3))
    await world.hpad(reflector_options=QUICK)
    await world.until(lambda: condition(world, "web", "AbleToScale")["reason"] == "InvalidSpec")
    assert "spec.maxReplicas: Invalid value: 3" in condition(world, "web", "AbleToScale")["message"]
    assert world.replicas("deployments", "web") == 2
    world.cluster.apply(autoscaler("web", "web", minReplicas=5, maxReplicas=9))
    await world.until(lambda: world.replicas("deployments", "web") == 5)


async def test_autoscalers_alone_leave_all_hpas_to_the_built_in_controller(world: Any) -> None:
    """With `kinds: autoscalers` an HPA is nobody's of hpad, and its target is left to it all the same."""
    world.workload("Deployment", "web", 2)
    world.workload("Deployment", "worker", 2)
    world.cluster.apply(definition())
    world.cluster.apply(autoscaler("web", "web", minReplicas=5))
    world.cluster.apply(autoscaler("worker", "worker", minReplicas=4))
    world.hpa("web", minReplicas=3)
    daemon = await world.hpad(reflector_options=QUICK, kinds="autoscalers")
    await world.until(lambda: world.replicas("deployments", "worker") == 4)
    await world.until(lambda: condition(world, "web", "AbleToScale")["reason"] == "CompetingHPA")
    assert world.replicas("deployments", "web") == 2
    assert "conditions" not in world.status("web")
    assert daemon.problems() == []


async def test_two_autoscalers_of_one_target_do_not_scale_it(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 200)
    world.cluster.apply(definition())
    world.cluster.apply(autoscaler("one", "web"))
    world.cluster.apply(autoscaler("two", "web"))
    await world.hpad(reflector_options=QUICK)
    for name in ("one", "two"):
        await world.until(lambda name=name: condition(world, name, "ScalingActive")["reason"] == "AmbiguousSelector")
    assert "[default/one default/two]" in condition(world, "one", "ScalingActive")["message"]
    assert world.replicas("deployments", "web") == 2


async def test_without_rights_on_autoscalers_hpas_are_scaled_and_nothing_stored_is_lost(
    world: Any, tmp_path: Path
) -> None:
    """At a start without the rights the state of an Autoscaler is kept until the kind can be read again."""
    world.workload("Deployment", "web", 2)
    world.workload("Deployment", "other", 1)
    world.cluster.apply(definition())
    world.cluster.apply(autoscaler("web", "web", minReplicas=3))
    world.hpa("other", minReplicas=2)
    kept = {"store": settings.StoreSettings(kind="sqlite", path=tmp_path / "history.db"), "reflector_options": QUICK}
    daemon = await world.hpad(**kept)
    await world.until(lambda: status(world, "web").get("desiredReplicas") == 3)
    await daemon.stop()

    world.cluster.faults.add(path="/apis/hpad.io/v1/autoscalers", status=403, times=None)
    daemon = await world.hpad(**kept)
    await world.until(lambda: world.replicas("deployments", "other") == 2)
    assert daemon.problems() == []
    await daemon.stop()

    world.cluster.faults.clear()
    daemon = await world.hpad(**kept)
    assert (await daemon.components.store.get_loaded(Key("default", "web", "autoscaler"))).uid

"""hpad beside other writers of the same targets and statuses: whether it yields, and how it reports them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from e2e.conftest import AT_LAST, Json
from support import widgets

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig

WEB = Key("default", "web")
REF = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}


@asynccontextmanager
async def another_client(world: Any, agent: str) -> AsyncIterator[client.Client]:
    """A client of the API server whose field manager is the first part of its user agent."""
    where = ClusterConfig(server=world.cluster.url)
    async with client.Client(where, SystemClock(), user_agent=agent) as made:
        yield made


def manifest(folder: Path, low: int, name: str = "web") -> None:
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}}
    spec = {"scaleTargetRef": REF, "minReplicas": low, "maxReplicas": 9, "metrics": [CPU]}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))


def condition(world: Any, kind: str) -> Json | None:
    """Returns a condition of the HPA from a file."""
    status = world.daemon.components.store.get(WEB).status
    found = [each for each in (status.conditions if status else ()) if each.type == kind]
    return {"status": found[0].status, "reason": found[0].reason, "message": found[0].message} if found else None


def reason(world: Any, kind: str) -> str | None:
    found = condition(world, kind)
    return found["reason"] if found else None


async def delete_hpa(world: Any, name: str) -> None:
    path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}"
    await world.daemon.components.cluster.client.request("DELETE", path)


async def test_a_manifest_yields_to_an_hpa_of_the_api_server_while_that_exists(world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 50)
    world.hpa("other", scaleTargetRef=REF)
    manifest(tmp_path, 5)
    with structlog.testing.capture_logs() as lines:
        await world.hpad(manifests=tmp_path)
        await world.until(lambda: reason(world, "CompetingWriters") == "OtherHPA")
        await world.periods(4)
    assert world.replicas("deployments", "web") == 2
    able = condition(world, "AbleToScale")
    assert able is not None
    assert (able["status"], able["reason"]) == ("False", "CompetingHPA")
    assert "default/other" in able["message"]
    assert 'hpad_hpa_competing_writer{hpa_name="web",kind="hpa",namespace="default",writer="default/other"} 1.0' in (
        await world.exposed("competing_writer{")
    )
    warnings = [line for line in lines if "default/other" in line["event"] and line["log_level"] == "warning"]
    assert len(warnings) == 1, warnings
    assert "does not scale the target" in warnings[0]["event"]
    last = world.daemon.components.decisions.last(WEB)
    assert "not written: the HPA default/other of the API server" in last.sentence
    await delete_hpa(world, "other")
    await world.until(lambda: world.replicas("deployments", "web") == 5)
    await world.until(lambda: condition(world, "CompetingWriters") is None)
    assert "hpad_hpa_competing_writer{" not in (await world.daemon.telemetry.exposition()).decode()


async def test_a_manifest_yields_to_an_hpa_that_is_created_later(world: Any, tmp_path: Path) -> None:
    """The other HPA may have the same name, and another spelling of the kind."""
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    manifest(tmp_path, 2)
    await world.hpad(manifests=tmp_path)
    await world.until(lambda: world.replicas("deployments", "web") == 2)
    world.hpa("web", scaleTargetRef={**REF, "kind": "deployment"})
    await world.until(lambda: reason(world, "CompetingWriters") == "OtherHPA")
    manifest(tmp_path, 6)
    await world.until(lambda: reason(world, "AbleToScale") == "CompetingHPA")
    assert world.replicas("deployments", "web") == 2
    assert world.status("web").get("conditions") is None


async def test_two_files_of_one_target_do_not_scale_it(world: Any, tmp_path: Path) -> None:
    """The CPU asks for more replicas than there are. Without the second file the target is scaled."""
    world.workload("Deployment", "web", 2)
    world.load("web", 200)
    manifest(tmp_path, 1)
    manifest(tmp_path, 1, "twin")
    daemon = await world.hpad(manifests=tmp_path)
    await world.until(lambda: reason(world, "ScalingActive") == "AmbiguousSelector")
    await world.periods(4)
    assert world.replicas("deployments", "web") == 2
    (tmp_path / "twin.yaml").unlink()
    await world.until(lambda: world.replicas("deployments", "web") > 2)
    assert daemon.problems() == []


async def test_a_setting_lets_both_write(world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 50)
    world.hpa("other", scaleTargetRef=REF)
    manifest(tmp_path, 5)
    await world.hpad(manifests=tmp_path, competing_hpas="write")
    await world.until(lambda: world.replicas("deployments", "web") == 5)
    await world.until(lambda: reason(world, "CompetingWriters") == "OtherHPA")
    assert condition(world, "AbleToScale")["status"] == "True"


@pytest.mark.parametrize(
    "ref", [{**REF, "name": "other"}, {**REF, "kind": "StatefulSet"}, {**REF, "apiVersion": "oracle.example/v1"}]
)
async def test_an_hpa_of_another_target_does_not_compete(world: Any, tmp_path: Path, ref: Json) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    world.hpa("other", scaleTargetRef=ref)
    manifest(tmp_path, 3)
    await world.hpad(manifests=tmp_path)
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    assert condition(world, "CompetingWriters") is None


async def test_without_the_right_to_list_hpas_manifests_are_scaled_and_the_gap_is_reported(
    world: Any, tmp_path: Path
) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    world.cluster.faults.add(path="/apis/autoscaling/v2/horizontalpodautoscalers", status=403, times=None)
    manifest(tmp_path, 3)
    daemon = await world.hpad(manifests=tmp_path)
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    assert any("scale the same targets cannot be seen" in trouble for trouble in daemon.problems())


async def test_hpas_outside_the_selector_compete_by_their_targets(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.load("web", 50)
    world.hpa("other", scaleTargetRef=REF)
    path = world.hpa("web", minReplicas=5)
    world.cluster.apply({**path, "metadata": {"name": "web", "labels": {"by": "hpad"}}})
    await world.hpad(hpa_selector="by=hpad")
    await world.until(lambda: world.condition("web", "CompetingWriters")[:2] == ("True", "OtherHPA"))
    assert world.condition("web", "AbleToScale")[:2] == ("False", "CompetingHPA")
    assert world.replicas("deployments", "web") == 2
    assert world.status("other").get("conditions") is None
    await delete_hpa(world, "other")
    await world.until(lambda: world.replicas("deployments", "web") == 5)
    await world.until(lambda: world.condition("web", "CompetingWriters") == ("", "", ""))


async def test_selected_hpas_do_not_compete_with_themselves(world: Any) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    path = world.hpa("web", minReplicas=3)
    world.cluster.apply({**path, "metadata": {"name": "web", "labels": {"by": "hpad"}}})
    await world.hpad(hpa_selector="by=hpad")
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    assert world.condition("web", "CompetingWriters") == ("", "", "")


@pytest.mark.parametrize(
    ("agent", "name"), [("keda-operator/2.17", "keda-operator"), ("hpad/0.1.0 (another)", "another client")]
)
async def test_a_client_that_sets_the_replicas_after_hpad_is_named(world: Any, agent: str, name: str) -> None:
    """Another hpad has the same name in managedFields, so it is "another client"."""
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    world.hpa("web", minReplicas=3)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    await world.periods(2)
    assert world.condition("web", "CompetingWriters") == ("", "", "")
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    async with another_client(world, agent) as other:
        scale = json.loads(await other.request("GET", path))
        del scale["metadata"]["resourceVersion"]  # the status of the Deployment may change meanwhile
        await other.request("PUT", path, body=json.dumps({**scale, "spec": {"replicas": 2}}).encode())
        await world.until(lambda: world.condition("web", "CompetingWriters")[:2] == ("True", "ScaleWritten"))
    assert name in world.condition("web", "CompetingWriters")[2]
    await world.until(lambda: world.replicas("deployments", "web") == 3)
    assert f'kind="scale",namespace="default",writer="{name}"' in await world.exposed("competing_writer{")


async def test_a_client_that_writes_the_status_is_named(world: Any) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    world.hpa("web")
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    async with another_client(world, "kube-controller-manager/v1.36.0 (linux/amd64)") as other:

        async def write(**status: Any) -> None:
            found = json.loads(await other.request("GET", path))
            del found["metadata"]["resourceVersion"]  # hpad may write meanwhile, which is no conflict then
            body = {**found, "status": {**found.get("status", {}), "desiredReplicas": 7, **status}}
            await other.request("PUT", f"{path}/status", body=json.dumps(body).encode())

        await write(currentReplicas=4)  # a write before the start of hpad is not a competing one
        await world.hpad()
        await world.until(lambda: world.status("web").get("desiredReplicas") == 1)
        await world.periods(3)
        assert world.condition("web", "CompetingWriters") == ("", "", "")
        async with asyncio.timeout(
            AT_LAST
        ):  # times have whole seconds: a write within the second of the first looks the same
            while world.condition("web", "CompetingWriters")[:2] != ("True", "StatusWritten"):
                await write(currentReplicas=5)
                await world.periods(1)
    assert "kube-controller-manager" in world.condition("web", "CompetingWriters")[2]
    assert 'kind="status",namespace="default",writer="kube-controller-manager"' in (
        await world.exposed("competing_writer{")
    )


async def test_a_client_that_sets_the_replicas_of_a_custom_resource_is_noticed_by_the_count(world: Any) -> None:
    """hpad reads only the scale of a custom resource, so it does not know its managers."""
    world.cluster.apply(widgets.DEFINITION)
    spec = {"spec": {"replicas": 1}, "status": {"replicas": 1, "selector": "app=web"}}
    head = {"apiVersion": "oracle.example/v1", "kind": "Widget", "metadata": {"name": "web"}}
    world.cluster.apply({**head, **spec})
    world.load("web", 50)
    ref = {"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "web"}
    world.hpa("web", scaleTargetRef=ref, minReplicas=3)
    await world.hpad()
    await world.until(lambda: world.replicas("widgets", "web") == 3)
    await world.periods(3)
    assert world.condition("web", "CompetingWriters") == ("", "", "")
    path = "/apis/oracle.example/v1/namespaces/default/widgets/web/scale"
    async with another_client(world, "rollouts/1") as other:
        scale = json.loads(await other.request("GET", path))
        await other.request("PUT", path, body=json.dumps({**scale, "spec": {"replicas": 2}}).encode())
    await world.until(lambda: world.condition("web", "CompetingWriters")[:2] == ("True", "ScaleWritten"))
    assert "another client" in world.condition("web", "CompetingWriters")[2]
    await world.until(lambda: world.replicas("widgets", "web") == 3)


async def test_the_last_written_count_is_dropped_with_the_manifest(world: Any, tmp_path: Path) -> None:
    world.workload("Deployment", "web", 1)
    world.load("web", 50)
    manifest(tmp_path, 2)
    await world.hpad(manifests=tmp_path)
    await world.until(lambda: world.replicas("deployments", "web") == 2)
    written = world.daemon.components.cluster._competitors._written
    await world.until(lambda: len(written) == 1)
    (tmp_path / "web.yaml").unlink()
    await world.until(lambda: not written)

"""`hpad doctor` on targets that other clients scale as well, in an embedded cluster."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli.test_doctor import found

from hpad.cli import doctor
from hpad.cli.doctor_checks import Finding
from hpad.clock import SystemClock
from hpad.engine.view import Gates, Tunables
from hpad.kube import client
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster, discovery
from hpad.settings import Settings

WEB = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def hpa(name: str, ref: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"scaleTargetRef": ref or WEB, "maxReplicas": 3, "metrics": [{"type": "Resource", "resource": cpu}]},
    }


def write(folder: Path, *hpas: dict[str, Any]) -> Path:
    hpad = folder / "hpas"
    hpad.mkdir()
    (hpad / "all.yaml").write_text(yaml.safe_dump_all(hpas))
    return hpad


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as made:
        pods = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
        spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pods}
        made.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        yield made


async def scale(cluster: Cluster, agent: str, replicas: int) -> None:
    """Sets the replicas of the Deployment as a client with this user agent does."""
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    async with client.Client(ClusterConfig(server=cluster.url), SystemClock(), user_agent=agent) as other:
        found = json.loads(await other.request("GET", path))
        del found["metadata"]["resourceVersion"]  # the controller of Deployments may have written meanwhile
        await other.request("PUT", path, body=json.dumps({**found, "spec": {"replicas": replicas}}).encode())


async def edit(cluster: Cluster, replicas: int) -> None:
    """Sets the replicas in the Deployment itself, as `kubectl edit` does."""
    async with client.Client(ClusterConfig(server=cluster.url), SystemClock(), user_agent="kubectl/v1.36.0") as other:
        path, body = "/apis/apps/v1/namespaces/default/deployments/web", {"spec": {"replicas": replicas}}
        await other.request("PATCH", path, body=json.dumps(body).encode(), content_type="application/merge-patch+json")


async def targets(folder: Path, cluster: Cluster, **changes: Any) -> list[Finding]:
    return [each for each in await found(folder, cluster.url, **changes) if each.check == "targets"]


async def test_an_hpa_from_a_file_and_one_of_the_api_server_with_one_target(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(hpa("other"))
    folder = write(tmp_path, hpa("mine"))
    [finding] = await targets(tmp_path, cluster, manifests=folder)
    assert finding.level == "error"
    assert "HPA default/other of the API server and HPA default/mine of the manifests" in finding.says
    assert "Deployment/web in default: hpad leaves the target to the API server's HPA" in finding.says
    [finding] = await targets(tmp_path, cluster, manifests=folder, competing_hpas="write")
    assert "both write its replicas" in finding.says


async def test_an_hpa_from_a_file_that_alone_has_its_target(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(hpa("other", {**WEB, "name": "another"}))
    assert [each.level for each in await targets(tmp_path, cluster, manifests=write(tmp_path, hpa("mine")))] == ["ok"]


async def test_a_dry_run_beside_an_hpa_with_the_same_target_is_no_failure(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(hpa("keda-hpa-web"))
    [finding] = await targets(tmp_path, cluster, manifests=write(tmp_path, hpa("mine")), dry_run=True)
    assert (finding.level, "HPA default/keda-hpa-web of the API server" in finding.says) == ("note", True)


async def test_two_hpas_from_files_with_one_target(cluster: Cluster, tmp_path: Path) -> None:
    folder = write(tmp_path, hpa("mine"), hpa("yours", {**WEB, "kind": "deployment"}))
    [finding] = await targets(tmp_path, cluster, manifests=folder)
    assert finding.level == "error"
    assert finding.says.startswith("HPAs default/mine, default/yours scale the same target Deployment/web")


async def test_two_hpas_of_the_api_server_with_one_target(cluster: Cluster, tmp_path: Path) -> None:
    cluster.apply(hpa("mine", by="hpad"))
    cluster.apply(hpa("other"))
    [finding] = await targets(tmp_path, cluster)
    assert finding.says.startswith("HPAs default/mine, default/other scale the same target Deployment/web")
    [finding] = await targets(tmp_path, cluster, hpa_selector="by=hpad")
    assert "HPA default/other of the API server and HPA default/mine of hpad's" in finding.says


@pytest.mark.parametrize(("agent", "levels"), [("keda-operator/2", ["warning"]), ("hpad/1", ["ok"])])
async def test_a_client_that_scales_the_target(cluster: Cluster, tmp_path: Path, agent: str, levels: list[str]) -> None:
    cluster.apply(hpa("mine"))
    await scale(cluster, agent, 2)
    findings = await targets(tmp_path, cluster)
    assert [each.level for each in findings] == levels
    assert ("keda-operator has set the replicas of Deployment/web" in findings[0].says) == (levels == ["warning"])


async def test_hpas_of_the_api_server_that_cannot_be_listed(cluster: Cluster, tmp_path: Path) -> None:
    cluster.faults.add(path="/apis/autoscaling/v2/horizontalpodautoscalers", status=403, times=None)
    [finding] = await targets(tmp_path, cluster, manifests=write(tmp_path, hpa("mine")))
    assert (finding.level, finding.says.partition(":")[0]) == (
        "note", "HPAs of the API server that scale the same targets cannot be seen"
    )  # fmt: skip


def test_with_files_the_right_to_list_hpas_is_optional() -> None:
    needed = doctor.needs(Settings(manifests=Path("hpas")), "default")
    levels = {need.level for need in needed if str(need.right).startswith("list horizontalpodautoscalers")}
    assert levels == {"note"}


@pytest.mark.parametrize(
    ("version", "configured", "warns"),
    [
        ("v1.36.0", Settings(), True),
        ("v1.37.0", Settings(), False),
        ("v1.37.0", Settings(names_zero=True), True),
        ("v1.36.0", Settings(tunables=Tunables(gates=Gates(HPAScaleToZero=True))), False),
    ],
)
async def test_a_minimum_of_zero_without_its_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, configured: Settings, warns: bool
) -> None:
    monkeypatch.setitem(discovery.VERSION, "gitVersion", version)
    metric = {"metric": {"name": "depth"}, "target": {"type": "Value", "value": "1"}}
    made = hpa("mine")
    made["spec"] |= {"minReplicas": 0, "metrics": [{"type": "External", "external": metric}]}
    async with Cluster(scale_to_zero=True) as cluster:
        cluster.apply(made)
        changes = {name: getattr(configured, name) for name in ("tunables", "names_zero")}
        about = [each for each in await found(tmp_path, cluster.url, **changes) if each.check == "zero"]
    assert [each.level for each in about] == (["warning"] if warns else [])
    assert not warns or ("default/mine" in about[0].says and "HPAScaleToZero" in about[0].says)


async def asleep(folder: Path, minimum: int, *, applied: bool, **changes: Any) -> list[Finding]:
    """The findings on a target that was applied with zero replicas, or scaled to zero."""
    metric = {"metric": {"name": "depth"}, "target": {"type": "Value", "value": "1"}}
    made = hpa("mine")
    made["spec"] |= {"minReplicas": minimum, "metrics": [{"type": "External", "external": metric}]}
    pods = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pods}
    async with Cluster(scale_to_zero=True) as cluster:
        cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec})
        if applied:
            await edit(cluster, 0)
        else:
            await scale(cluster, "keda/v0.0.0 (linux/amd64)", 0)
        cluster.apply(made)
        on = Tunables(gates=Gates(HPAScaleToZero=True))
        return [each for each in await found(folder, cluster.url, tunables=on, **changes) if each.check == "zero"]


@pytest.mark.parametrize(
    ("minimum", "applied", "text"),
    [
        (0, True, "default/mine does not wake it: kubectl has set it"),
        (0, False, "default/mine does not wake it: nothing tells who has set it"),
        (2, True, ""),
        (2, False, ""),
    ],
)
async def test_a_target_at_zero(tmp_path: Path, minimum: int, applied: bool, text: str) -> None:
    shown = await asleep(tmp_path, minimum, applied=applied)
    assert [each.level for each in shown] == (["warning"] if text else [])
    wake = "kubectl scale -n default --replicas=1 deployment/web"
    assert all("Deployment/web in default" in each.says and text in each.says and wake in each.do for each in shown)

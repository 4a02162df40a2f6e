"""minReplicas 0 with the feature gate HPAScaleToZero off and on, by a setting or by the version of the API server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from e2e.conftest import worlds
from e2e.test_competing import another_client

from hpad import settings
from hpad.engine.view import Gates, Tunables
from hpad.kube import access
from hpad.lab.cluster import Cluster, discovery

METRIC = {"name": "depth"}
DEPTH = [{"type": "External", "external": {"metric": METRIC, "target": {"type": "AverageValue", "averageValue": "10"}}}]
KEDA = "keda/v0.0.0 (linux/amd64)"
NOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}
ON = Tunables(gates=Gates(HPAScaleToZero=True))
OFF = {"tunables": Tunables(), "names_zero": True}


@pytest.fixture
async def zero() -> AsyncIterator[Any]:
    async with worlds(Cluster(auto_ready=True, scale_to_zero=True)) as made:
        yield made


def upgrade(monkeypatch: pytest.MonkeyPatch, minor: int) -> None:
    monkeypatch.setitem(discovery.VERSION, "gitVersion", f"v1.{minor}.0-rc.1+lab")


def depth(folder: Path, value: int) -> tuple[settings.SourceSettings, ...]:
    """Returns a source with one value; another call changes the value."""
    file = folder / "depth.yaml"
    file.write_text(f"depth: {value}\n")
    return (settings.SourceSettings(name="file", adapter="static", settings={"file": str(file)}),)


def workload(world: Any) -> None:
    world.workload("Deployment", "web", 2)
    world.hpa("web", minReplicas=0, metrics=DEPTH, behavior=NOW)


async def test_without_the_gate_one_replica_stays_and_the_gate_is_named(zero: Any, tmp_path: Path) -> None:
    workload(zero)
    with structlog.testing.capture_logs() as lines:
        await zero.hpad(sources=depth(tmp_path, 0), tunables=Tunables())
        await zero.until(lambda: zero.replicas("deployments", "web") == 1)
        await zero.until(lambda: zero.condition("web", "ScalingLimited")[1] == "ScaleToZeroDisabled")
        await zero.periods(3)
    assert zero.replicas("deployments", "web") == 1
    assert "HPAScaleToZero" in zero.condition("web", "ScalingLimited")[2]
    logged = [line for line in lines if "minReplicas is 0, but the feature gate HPAScaleToZero is off" in line["event"]]
    assert [line["log_level"] for line in logged] == ["warning"]
    assert 'condition="ScalingLimited",hpa_name="web",namespace="default",reason="ScaleToZeroDisabled"' in (
        await zero.exposed("ScaleToZeroDisabled")
    )
    depth(tmp_path, 30)
    await zero.until(lambda: zero.replicas("deployments", "web") == 3)


@pytest.mark.parametrize(("minor", "options"), [(37, {"tunables": Tunables()}), (36, {"tunables": ON})])
async def test_with_the_gate_the_target_is_scaled_to_zero_and_woken(
    zero: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minor: int, options: dict[str, Any]
) -> None:
    """The gate is on by default with a server of 1.37."""
    upgrade(monkeypatch, minor)
    workload(zero)
    await zero.hpad(sources=depth(tmp_path, 0), **options)
    await zero.until(lambda: zero.replicas("deployments", "web") == 0)
    await zero.until(lambda: zero.condition("web", "ScaledToZero")[0] == "True")
    depth(tmp_path, 30)
    await zero.until(lambda: zero.replicas("deployments", "web") == 3)


async def test_a_gate_set_to_off_stays_off_with_any_server(
    zero: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgrade(monkeypatch, 37)
    workload(zero)
    await zero.hpad(sources=depth(tmp_path, 0), **OFF)
    await zero.until(lambda: zero.condition("web", "ScalingLimited")[1] == "ScaleToZeroDisabled")
    assert zero.replicas("deployments", "web") == 1


@pytest.mark.parametrize(("minor", "accepted"), [(36, False), (37, True)])
async def test_a_minimum_of_zero_in_a_manifest_depends_on_the_server(
    zero: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minor: int, accepted: bool
) -> None:
    upgrade(monkeypatch, minor)
    zero.workload("Deployment", "web", 2)
    folder = tmp_path / "hpas"
    folder.mkdir()
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": ref, "minReplicas": 0, "maxReplicas": 9, "metrics": DEPTH, "behavior": NOW}
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    (folder / "web.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    daemon = await zero.hpad(sources=depth(tmp_path, 0), manifests=folder)
    if accepted:
        await zero.until(lambda: zero.replicas("deployments", "web") == 0)
    assert any("0 needs the feature gate HPAScaleToZero" in each for each in daemon.problems()) != accepted


async def stop(world: Any, agent: str) -> None:
    """Sets the replicas to zero as a client with this user agent does."""
    body = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web", "namespace": "default"}}
    path = "/apis/apps/v1/namespaces/default/deployments/web/scale"
    async with another_client(world, agent) as other:
        await other.request("PUT", path, body=json.dumps({**body, "spec": {"replicas": 0}}).encode())


async def test_a_target_that_slept_before_stays_asleep_once_the_hpa_of_keda_is_deleted(
    zero: Any, tmp_path: Path
) -> None:
    """The ScaledObject was deleted while its target was asleep; until its HPA is gone, hpad yields to it."""
    zero.workload("Deployment", "web", 2)
    await stop(zero, KEDA)
    zero.hpa("web", metrics=DEPTH)
    folder = tmp_path / "hpas"
    folder.mkdir()
    ref = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"scaleTargetRef": ref, "minReplicas": 0, "maxReplicas": 9, "metrics": DEPTH}
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "mine"}}
    (folder / "mine.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
    with structlog.testing.capture_logs() as lines:
        await zero.hpad(sources=depth(tmp_path, 30), manifests=folder, tunables=ON)
        await zero.until(lambda: any("hpad does not scale the target" in line["event"] for line in lines))
        zero.cluster.delete("horizontalpodautoscalers", "web")
        await zero.until(lambda: any("nothing tells who has set it" in line["event"] for line in lines))
    await zero.periods(3)
    assert zero.replicas("deployments", "web") == 0


@pytest.mark.parametrize("agent", [KEDA, "kubectl/v1"])
async def test_what_was_stopped_before_stays_so_as_the_server_does_not_tell_by_whom(
    zero: Any, tmp_path: Path, agent: str
) -> None:
    zero.workload("Deployment", "web", 2)
    await stop(zero, agent)
    zero.hpa("web", minReplicas=0, metrics=DEPTH, behavior=NOW)
    with structlog.testing.capture_logs() as lines:
        await zero.hpad(sources=depth(tmp_path, 30), tunables=ON)
        await zero.until(lambda: zero.condition("web", "ScalingActive")[1] == "ScalingDisabled")
        # The line is written after the scale.
        await zero.until(lambda: any("nothing tells who has set it" in line["event"] for line in lines))
    await zero.periods(2)
    assert zero.replicas("deployments", "web") == 0
    assert "nothing tells who has set it" in zero.condition("web", "ScalingActive")[2]


async def test_a_target_that_its_manifest_leaves_at_zero_stays_there(zero: Any, tmp_path: Path) -> None:
    zero.workload("Deployment", "web", 0)
    zero.hpa("web", minReplicas=0, metrics=DEPTH, behavior=NOW)
    await zero.hpad(sources=depth(tmp_path, 30), tunables=ON)
    await zero.until(lambda: " has set it, and metrics wake only" in zero.condition("web", "ScalingActive")[2])
    await zero.periods(2)
    assert zero.replicas("deployments", "web") == 0
    assert "set its replicas to 1 or more to go on" in zero.condition("web", "ScalingActive")[2]


async def test_a_server_without_a_version_does_not_delay_hpad(zero: Any, tmp_path: Path) -> None:
    zero.cluster.faults.add(path="/version", status=403, times=None)
    workload(zero)
    await zero.hpad(sources=depth(tmp_path, 0))
    await zero.until(lambda: zero.replicas("deployments", "web") == 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("v1.37.0", (1, 37)), ("v1.36.4-gke.1", (1, 36)), ("1.37+", (1, 37)), ("", None), ("main", None)],
)
def test_version_formats_of_servers(text: str, expected: tuple[int, int] | None) -> None:
    assert access.numbers(text) == expected


def test_a_gate_in_any_setting_overrides_the_server(tmp_path: Path) -> None:
    file = tmp_path / "hpad.yaml"
    file.write_text("feature_gates: {HPAScaleToZero: false}\n")
    named, other = settings.load(file, {}, {}), settings.load(None, {"HPAD_FEATURE_GATES": "HPAHugeProposals=true"}, {})
    assert named.on_server((1, 37)).tunables.gates.HPAScaleToZero is False
    assert other.on_server((1, 37)).tunables.gates.HPAScaleToZero is True
    assert other.on_server((1, 36)).tunables.gates.HPAScaleToZero is False
    assert other.on_server(None) == other

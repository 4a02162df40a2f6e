"""The patches of `hpad advise`, applied by a real kubectl, and by kustomize."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import yaml
from support import assessments, kubectl_binaries

from hpad.api import hpa as v2
from hpad.api.metadata import AUTOSCALER_KEY
from hpad.cli import advise_patches
from hpad.manifests import documents, hpas
from hpad.simulation.advice.assessment import SettingChange
from hpad.simulation.advice.summary import FleetAdvice

pytest_plugins = ("support.kubectl_fixtures",)
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default, labels: {team: shop}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 10
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
    - {type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: "30"}}}
  behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}
"""
AUTOSCALER = HPA.replace("autoscaling/v2", "hpad.io/v1").replace("HorizontalPodAutoscaler", "Autoscaler")
CHANGES = (
    SettingChange(assessments.CPU_GOAL, 50, 65),
    SettingChange("spec.maxReplicas", 10, 20),
    SettingChange("spec.behavior.scaleDown.policies[0].value", 1, 4),
    SettingChange("spec.behavior.scaleDown.stabilizationWindowSeconds", 300, 60),
)


def patched(text: str, folder: Path) -> tuple[str, str]:
    """Writes the manifest and its patch; returns the name of the patch, and the command in it without kubectl."""
    (folder / "web.yaml").write_text(text)
    (document,) = documents.read(folder / "web.yaml")
    hpa = hpas.load(document).hpa
    assert hpa is not None
    advice = assessments.advice(1.0, changes=CHANGES)
    found = msgspec.structs.replace(assessments.assessment("web"), key=hpa.key, advice=advice)
    now = datetime(2026, 1, 5, tzinfo=UTC)
    (file,) = advise_patches.write(folder / "patches", FleetAdvice(now, now, "", {hpa.key: hpa}, [found]))
    assert bool(hpa.key.kind == AUTOSCALER_KEY) == ("_autoscaler" in file.name)
    command = file.read_text().splitlines()[2].removeprefix("# kubectl ")
    return file.name, command.replace(file.name, str(file))


def assert_changed(spec: dict[str, object]) -> None:
    """Everything that the advice changes is as it says; nothing else is lost."""
    found = v2.from_builtins({"metadata": {"name": "web", "namespace": "default"}, "spec": spec}).spec
    assert found.metrics is not None
    cpu, queue = found.metrics
    assert cpu.resource is not None
    assert queue.external is not None
    assert cpu.resource.target.average_utilization == 65
    assert str(queue.external.target.average_value) == "30"
    assert (found.min_replicas, found.max_replicas) == (2, 20)
    assert found.behavior is not None
    down = found.behavior.scale_down
    assert down is not None
    assert down.stabilization_window_seconds == 60
    assert [(policy.type, policy.value, policy.period_seconds) for policy in down.policies or ()] == [("Pods", 4, 60)]


@kubectl_binaries.EACH
async def test_kubectl_patches_an_hpa_by_the_command_in_the_file(kubectl, world, tmp_path: Path) -> None:
    _, command = await asyncio.to_thread(patched, HPA, tmp_path)
    await kubectl(f"apply -f {tmp_path}/web.yaml")
    assert "patched" in await kubectl(command)
    assert_changed(world.cluster.get("horizontalpodautoscalers", "web")["spec"])
    assert "no change" in await kubectl(command)


async def test_kubectl_patches_an_autoscaler_by_the_command_in_the_file(kubectl, world, tmp_path: Path) -> None:
    _, command = await asyncio.to_thread(patched, AUTOSCALER, tmp_path)
    await kubectl(f"apply -f {kubectl_binaries.ROOT}/config/crd/autoscalers.hpad.io.yaml")
    await kubectl(f"apply -f {tmp_path}/web.yaml")
    assert "patched" in await kubectl(command)
    assert_changed(world.cluster.get("autoscalers", "web")["spec"])


async def test_kustomize_takes_the_patch(kubectl, world, tmp_path: Path) -> None:
    for text in (HPA, AUTOSCALER):
        file, _ = await asyncio.to_thread(patched, text, tmp_path)
        kustomization = {"resources": ["web.yaml"], "patches": [{"path": f"patches/{file}"}]}
        await asyncio.to_thread((tmp_path / "kustomization.yaml").write_text, yaml.safe_dump(kustomization))
        built = yaml.safe_load(await kubectl(f"kustomize {tmp_path}"))
        assert built["metadata"]["labels"] == {"team": "shop"}
        assert_changed(built["spec"])

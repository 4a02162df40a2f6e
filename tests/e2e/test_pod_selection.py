"""`hpad.io/pod-selection: owner`: Deployments whose pods have the same labels, and pods of nobody."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support import widgets

from hpad import settings
from hpad.cli import main
from hpad.lab.cluster.pods import owner_reference

OWNER = {"hpad.io/pod-selection": "owner"}
LABELS = {"app": "shared"}
HPAS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"


class Shared:
    """Deployments with one label, their HPAs with a target of 50m per pod, and the CPU usage of all pods of each."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.usage: dict[str, int] = {}
        """In millicores, by the first word of the names of the pods; 1000 for others."""

    def apply(self, name: str, annotations: dict[str, str], *, paused: bool = False, **spec: Any) -> None:
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
        template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}}
        chosen = {"selector": {"matchLabels": LABELS}, "paused": paused}
        self.world.workload("Deployment", name, 2, template=template, **chosen)
        made = self.world.hpa(name, **spec)
        made["metadata"]["annotations"] = annotations
        self.world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})

    def lone_pod(self, name: str, **head: Any) -> None:
        """Creates a ready pod with the label and no owner, unless `head` names one."""
        spec = {"containers": [{"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}]}
        metadata = {"name": name, "labels": LABELS, **head}
        self.world.cluster.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    async def annotate(self, name: str, annotations: dict[str, str | None]) -> None:
        body = json.dumps({"metadata": {"annotations": annotations}}).encode()
        client = self.world.daemon.components.cluster.client
        await client.request("PATCH", f"{HPAS}/{name}", body=body, content_type="application/merge-patch+json")

    def burn(self) -> None:
        groups: dict[str, list[str]] = {}
        for pod in self.world.pods("shared"):
            name = pod["metadata"]["name"]
            groups.setdefault(name.partition("-")[0], []).append(name)
        for group, names in groups.items():
            cpu = {"app": {"cpu": f"{self.usage.get(group, 1000) // len(names)}m"}}
            for name in names:
                self.world.cluster.usage.set(f"default/{name}", cpu)

    async def until(self, condition: Any) -> None:
        def met() -> bool:
            self.burn()
            return bool(condition())

        await self.world.until(met)

    def replicas(self, name: str) -> int:
        return int(self.world.replicas("deployments", name))

    def active(self, name: str) -> tuple[str, str, str]:
        found: tuple[str, str, str] = self.world.condition(name, "ScalingActive")
        return found


@pytest.fixture
def shared(world: Any) -> Shared:
    return Shared(world)


async def test_each_of_two_deployments_with_the_same_labels_follows_its_own_pods(shared: Shared) -> None:
    shared.usage = {"api": 200, "batch": 50}
    shared.apply("api", {})
    shared.apply("batch", {})
    await shared.world.hpad()
    await shared.until(lambda: shared.active("api")[1] == shared.active("batch")[1] == "AmbiguousSelector")
    assert (shared.replicas("api"), shared.replicas("batch")) == (2, 2)
    await shared.annotate("api", dict(OWNER))
    await shared.until(lambda: shared.replicas("api") == 4)
    # The other one still counts the pods of both.
    assert shared.active("batch")[:2] == ("False", "AmbiguousSelector")
    await shared.annotate("batch", dict(OWNER))
    await shared.until(lambda: shared.replicas("batch") == 1)
    shared.usage = {"api": 100, "batch": 150}
    await shared.until(lambda: (shared.replicas("api"), shared.replicas("batch")) == (2, 3))
    assert shared.active("api")[:2] == shared.active("batch")[:2] == ("True", "ValidMetricFound")


async def test_two_hpas_of_one_target_stay_ambiguous(shared: Shared) -> None:
    shared.apply("api", OWNER)
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
    made = shared.world.hpa("other", scaleTargetRef=target)
    made["metadata"]["annotations"] = OWNER
    shared.world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    await shared.world.hpad()
    await shared.until(lambda: shared.active("api")[1] == shared.active("other")[1] == "AmbiguousSelector")


async def test_hpas_of_a_custom_resource_and_of_its_deployment_stay_ambiguous(shared: Shared) -> None:
    """They scale the same pods. The HPA of another Deployment with the same labels goes on."""
    world = shared.world
    shared.usage = {"api": 200, "batch": 200}
    world.cluster.apply(widgets.DEFINITION)
    body = {"spec": {"replicas": 2}, "status": {"replicas": 2, "selector": "app=shared"}}
    widget = world.cluster.apply(
        {"apiVersion": widgets.API_VERSION, "kind": "Widget", "metadata": {"name": "w"}, **body}
    )
    for name in ("api", "batch"):
        shared.apply(name, OWNER)
    api = world.cluster.get("deployments", "api")
    api["metadata"]["ownerReferences"] = [owner_reference(widgets.WIDGETS, widget)]
    world.cluster.apply({key: api[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    made = world.hpa("outer", scaleTargetRef={"apiVersion": widgets.API_VERSION, "kind": "Widget", "name": "w"})
    made["metadata"]["annotations"] = OWNER
    world.cluster.apply({key: made[key] for key in ("apiVersion", "kind", "metadata", "spec")})
    await world.hpad()
    await shared.until(lambda: shared.active("api")[1] == shared.active("outer")[1] == "AmbiguousSelector")
    assert "default/outer" in shared.active("api")[2]
    assert "default/api" in shared.active("outer")[2]
    await shared.until(lambda: shared.replicas("batch") == 4)
    assert (shared.replicas("api"), world.replicas("widgets", "w")) == (2, 2)
    world.cluster.delete("horizontalpodautoscalers", "outer")
    await shared.until(lambda: shared.replicas("api") == 4)


async def test_pods_of_nobody_and_of_a_job_do_not_count(
    shared: Shared, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them uses 1000m: with either, the count would be the maximum. The recording holds only what counts."""
    shared.usage = {"api": 150}
    shared.lone_pod("lone")
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "report", "uid": "0f0f", "controller": True}
    shared.lone_pod("report-1", ownerReferences=[job])
    shared.apply("api", OWNER)
    await shared.world.hpad(record=tmp_path)
    await shared.until(lambda: shared.replicas("api") == 3)
    await shared.until(lambda: shared.world.status("api").get("currentReplicas") == 3)
    usage = {"averageUtilization": 50, "averageValue": "50m"}
    metric = {"type": "Resource", "resource": {"name": "cpu", "current": usage}}
    await shared.until(lambda: shared.world.status("api").get("currentMetrics") == [metric])
    assert shared.replicas("api") == 3
    await shared.world.daemon.stop()
    [file] = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    recorded = file.read_text()
    assert "report-1" not in recorded
    assert '"lone"' not in recorded
    capsys.readouterr()
    assert await asyncio.to_thread(main, ["replay", str(file)]) == 0
    # A process that stood still meanwhile begins another scenario.
    scenarios, replayed = (list(map(json.loads, text.splitlines())) for text in (recorded, capsys.readouterr().out))
    expected = [[step["expect"] for step in scenario["steps"]] for scenario in scenarios]
    assert 3 in {step["scaleTo"] for steps in expected for step in steps}
    assert expected == [each["steps"] for each in replayed]


async def test_a_value_for_the_whole_target_counts_its_own_ready_pods(shared: Shared, tmp_path: Path) -> None:
    """60 of 30 is twice the two pods of the Deployment; with the lone ones it would be twice four."""
    numbers = tmp_path / "numbers.yaml"
    numbers.write_text("queue: 60\n")
    shared.lone_pod("lone-1")
    shared.lone_pod("lone-2")
    queue = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}
    shared.apply("api", OWNER, metrics=[{"type": "External", "external": queue}])
    source = settings.SourceSettings(name="numbers", adapter="static", settings={"file": str(numbers)})
    await shared.world.until(lambda: len(shared.world.pods("shared")) == 4)
    await shared.world.hpad(sources=(source,))
    rescales = await shared.world.until(
        lambda: [text for reason, text in shared.world.events("api") if reason == "SuccessfulRescale"]
    )
    assert rescales[0].startswith("New size: 4;")


async def test_without_the_right_to_list_replica_sets_nothing_is_decided(shared: Shared) -> None:
    shared.usage = {"api": 200}
    shared.apply("api", OWNER)
    fault = shared.world.cluster.faults.add(path="/replicasets", times=None, status=403)
    await shared.world.hpad()
    await shared.until(lambda: shared.active("api")[1] == "FailedGetResourceMetric")
    status, _, message = shared.active("api")
    assert status == "False"
    assert 'belongs to Deployment "api": replicasets.apps: ' in message
    assert shared.replicas("api") == 2
    assert fault.hits
    shared.world.cluster.faults.clear()
    await shared.until(lambda: shared.replicas("api") == 4)


async def test_a_value_for_the_whole_target_says_why_its_pods_are_not_known(shared: Shared, tmp_path: Path) -> None:
    """A Value is multiplied by the ready pods; an AverageValue needs none, and decides."""
    numbers = tmp_path / "numbers.yaml"
    numbers.write_text("queue: 60\nshare: 40\n")
    queue = {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "30"}}
    share = {"metric": {"name": "share"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    shared.apply("api", OWNER, metrics=[{"type": "External", "external": queue}])
    shared.apply("batch", OWNER, metrics=[{"type": "External", "external": share}])
    shared.world.cluster.faults.add(path="/replicasets", times=None, status=403)
    source = settings.SourceSettings(name="numbers", adapter="static", settings={"file": str(numbers)})
    await shared.world.hpad(sources=(source,))
    await shared.until(lambda: shared.active("api")[1] == "FailedGetExternalMetric")
    assert 'belongs to Deployment "api": replicasets.apps: ' in shared.active("api")[2]
    await shared.until(lambda: shared.replicas("batch") == 4)
    assert shared.replicas("api") == 2


async def test_a_selector_of_other_pods_alone_is_an_error(shared: Shared) -> None:
    shared.lone_pod("lone")
    shared.apply("api", OWNER, paused=True)
    await shared.world.hpad()
    await shared.until(lambda: shared.active("api")[1] == "FailedGetResourceMetric")
    assert 'of the pods that match the selector (1), none belongs to Deployment "api"' in shared.active("api")[2]
    assert shared.replicas("api") == 2

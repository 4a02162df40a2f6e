"""Deployments, stateful sets and their HPAs, used through real kubectls."""

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import kubectl_binaries

import hpad.serve
from hpad import settings
from hpad.daemon import app
from hpad.engine.view import Tunables
from hpad.kube.auth.credentials import ClusterConfig

pytest_plugins = ("support.kubectl_fixtures",)
CALM = timedelta(seconds=1.5)
"""A sync period for tests of a status: metrics must arrive within half of it to appear there."""


def utilization(world: Any, name: str) -> int | None:
    metrics = world.status(name).get("currentMetrics") or [{}]
    return metrics[0].get("resource", {}).get("current", {}).get("averageUtilization")


@kubectl_binaries.EACH
async def test_an_hpa_created_by_kubectl_autoscale(world, kubectl, recordings):
    """Scenario 20.

    The walkthrough of the Kubernetes documentation: 305 % at one replica gives seven; get, describe and delete work.
    """
    world.workload("Deployment", "php-apache", 1, cpu="200m")
    world.load("php-apache", lambda pods: 610 // pods)
    await world.hpad(sync_period=CALM)
    output = await kubectl("autoscale deployment php-apache --cpu-percent=50 --min=1 --max=10")
    assert output == "horizontalpodautoscaler.autoscaling/php-apache autoscaled\n"
    await world.until(lambda: world.replicas("deployments", "php-apache") == 7)
    await world.until(lambda: utilization(world, "php-apache") == 43)
    await world.until(lambda: any(message.startswith("New size: 7") for _, message in world.events("php-apache")))
    recorded = kubectl_binaries.recorded_text(recordings, "get_hpa")
    header, row = kubectl_binaries.rows(await kubectl("get hpa php-apache"))
    assert header == kubectl_binaries.rows(recorded)[0]
    assert row[:-1] == ["php-apache", "Deployment/php-apache", "cpu: 43%/50%", "1", "10", "7"]
    old, new = [
        await kubectl.json(f"get horizontalpodautoscalers.{version}.autoscaling php-apache") for version in ("v1", "v2")
    ]
    assert old["spec"]["targetCPUUtilizationPercentage"] == 50
    assert old["status"]["currentCPUUtilizationPercentage"] == 43
    assert new["spec"]["metrics"][0]["resource"] == {
        "name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50},
    }
    assert old["metadata"]["uid"] == new["metadata"]["uid"]
    described = await kubectl("describe hpa php-apache")
    assert re.search(r"Normal +SuccessfulRescale +\S+ +horizontal-pod-autoscaler +New size: 7; reason: cpu", described)
    assert re.search(r"above target; from 4: cpu above target \(\d+% / 50%\)\n", described)
    assert await kubectl("delete hpa php-apache") in (
        'horizontalpodautoscaler.autoscaling "php-apache" deleted\n',
        'horizontalpodautoscaler.autoscaling "php-apache" deleted from default namespace\n',
    )
    _, out, err = await kubectl.run("get", "hpa")
    assert (out, err) == ("", "No resources found in default namespace.\n")


@kubectl_binaries.EACH
async def test_the_command_that_the_empty_page_names_makes_an_hpa(world, kubectl):
    """`--cpu` exists from kubectl 1.34 on and `--cpu-percent` is deprecated there: the command has neither."""
    page = (Path(hpad.serve.__file__).parent / "web" / "list.js").read_text("utf-8")
    (command,) = re.findall(r'"kubectl (autoscale [^"]+)"', page)
    world.workload("Deployment", "web", 2, cpu="200m")
    assert await kubectl(command) == "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    (metric,) = (await kubectl.json("get horizontalpodautoscalers.v2.autoscaling web"))["spec"]["metrics"]
    assert metric["resource"] == {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}


@kubectl_binaries.EACH
async def test_describe_hpa_is_laid_out_as_recorded(world, kubectl, recordings):
    """Scenario 20.

    Of one in the same state as the recording's first: 50 % of 50 %, four replicas, no more than that.
    """
    recorded = kubectl_binaries.recorded_text(recordings, "describe_hpa_all").partition("\n\n\n")[0]
    world.workload("Deployment", "above", 4, cpu="200m")
    world.load("above", 100)
    world.hpa("above", maxReplicas=4, behavior=None)
    await world.hpad(sync_period=CALM)
    await world.until(lambda: utilization(world, "above") == 50)
    described = await kubectl("describe hpa above")
    if "Target CPU utilization" in described:  # a kubectl that does not know autoscaling/v2 yet
        assert "Target CPU utilization:   50%\nCurrent CPU utilization:  50%\nMin replicas:" in described
        return
    found, expected = kubectl_binaries.labels_of(described), kubectl_binaries.labels_of(recorded)
    assert found[: len(expected) - 3] == expected[:-3]
    assert [line.split()[0] for line in found[-3:]] == [line.split()[0] for line in expected[-3:]]
    same = "  resource cpu on pods  (as a percentage of request):  50% (100m) / 50%"
    assert same in recorded
    assert same in described


@pytest.mark.parametrize("options", ["", "--server-side"], ids=["client-side", "server-side"])
async def test_a_deployment_from_apply_to_delete(kubectl, world, options):
    """Scenario 21: nginx with two replicas is described, gets another image and four replicas, and is deleted."""
    done = "serverside-applied" if options else "created"
    assert (
        await kubectl.apply(kubectl_binaries.nginx(2, "nginx:1.14.2"), options=options)
        == f"deployment.apps/nginx {done}\n"
    )
    assert "successfully rolled out" in await kubectl("rollout status deployment/nginx --timeout=100s")
    described = await kubectl("describe deployment nginx")
    for line in (
        r"Annotations: +deployment\.kubernetes\.io/revision: 1",
        r"Replicas: +2 desired \| 2 updated \| 2 total \| 2 available \| 0 unavailable",
        r"Image: +nginx:1\.14\.2",
        r"NewReplicaSet: +nginx-\w+ \(2/2 replicas created\)",
        r"Normal +ScalingReplicaSet +\S+ +deployment-controller +Scaled up replica set nginx-\w+ from 0 to 2",
    ):
        assert re.search(line, described), f"{line} in {described}"
    first = await kubectl.names()
    done = "serverside-applied" if options else "configured"
    assert (
        await kubectl.apply(kubectl_binaries.nginx(2, "nginx:1.16.1"), options=options)
        == f"deployment.apps/nginx {done}\n"
    )
    await kubectl("rollout status deployment/nginx --timeout=100s")
    await world.until(lambda: len(world.pods("nginx")) == 2)
    second = await kubectl.names()
    assert len(second) == 2
    assert not first & second
    await kubectl.apply(kubectl_binaries.nginx(4, "nginx:1.16.1"), options=options)
    await kubectl("rollout status deployment/nginx --timeout=100s")
    assert len(await kubectl.names()) == 4
    assert second < await kubectl.names()
    assert await kubectl("delete deployment nginx") in (
        'deployment.apps "nginx" deleted\n',
        'deployment.apps "nginx" deleted from default namespace\n',
    )
    await world.until(lambda: not world.pods("nginx"))
    assert await kubectl.names("rs") == set()


async def test_a_rolling_update_under_an_hpa(world, kubectl):
    """The HPA scales the Deployment, not its ReplicaSets, and keeps the count while old and new pods overlap."""
    world.workload("Deployment", "web", 3, cpu="200m")
    world.load("web", 100)
    world.hpa("web", minReplicas=3, maxReplicas=9)
    await world.hpad()
    await world.until(lambda: utilization(world, "web") == 50)
    before = await kubectl.names()
    await kubectl("set image deployment/web app=app:2")
    assert "successfully rolled out" in await kubectl("rollout status deployment/web --timeout=100s")
    await world.periods(3)
    assert world.replicas("deployments", "web") == 3
    assert len(world.pods("web")) == 3
    assert not before & await kubectl.names()
    scaled = [write for write in world.cluster.log.writes if write.resource == "replicasets"]
    assert scaled == []
    listed = await kubectl("rollout history deployment/web")
    assert [row[0] for row in kubectl_binaries.rows(listed)[2:]] == ["1", "2"]


async def test_a_stateful_pod_is_replaced_after_it_is_gone(processes):
    """Scenario 22: a gracefully deleted pod is Terminating; after a forced deletion its successor gets the name."""
    stubborn = {"name": "app", "command": ["sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"]}
    spec = {"containers": [stubborn], "terminationGracePeriodSeconds": 600}
    labels = {"app": "web"}
    body = {"replicas": 2, "selector": {"matchLabels": labels}, "serviceName": "web"}
    body["template"] = {"metadata": {"labels": labels}, "spec": spec}
    await processes.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": body})
    await processes("rollout status statefulset/web --timeout=100s")
    async with asyncio.timeout(kubectl_binaries.SECONDS):
        while "deaf" not in await processes("logs web-0"):  # noqa: ASYNC110  # it runs before it has said so
            await asyncio.sleep(0.1)
    first = await processes.json("get pod web-0")
    assert await processes("delete pod web-0 --wait=false") in (
        'pod "web-0" deleted\n',
        'pod "web-0" deleted from default namespace\n',
    )
    waiting = await processes.json("get pod web-0")
    assert waiting["metadata"]["uid"] == first["metadata"]["uid"]
    assert waiting["metadata"]["deletionGracePeriodSeconds"] == 600
    assert {row[0]: row[2] for row in kubectl_binaries.rows(await processes("get pods"))[1:]} == {
        "web-0": "Terminating",
        "web-1": "Running",
    }
    assert 'pod "web-0" force deleted' in await processes("delete pod web-0 --grace-period=0 --force")
    await processes("rollout status statefulset/web --timeout=100s")
    successor = await processes.json("get pod web-0")
    assert successor["metadata"]["uid"] != first["metadata"]["uid"]
    described = await processes("describe statefulset web")
    assert re.search(r"Replicas: +2 desired \| 2 total", described)
    assert "create Pod web-0 in StatefulSet web successful" in described
    assert re.search(r"Controlled By: +StatefulSet/web", await processes("describe pod web-0"))
    await processes("delete statefulset web --cascade=false")
    await processes("delete pods --all --grace-period=0 --force")


async def test_apply_conflicts_with_the_replicas_of_the_autoscaler(world, kubectl):
    """The apply works without the replicas, which then stay, or with --force-conflicts."""
    await kubectl.apply(kubectl_binaries.nginx(2, "nginx:1"), options="--server-side")
    world.hpa("nginx", minReplicas=4)
    await world.hpad()
    await world.until(lambda: world.replicas("deployments", "nginx") == 4)
    manifest = yaml.safe_dump(kubectl_binaries.nginx(2, "nginx:2"))
    complaint = await kubectl.refused("apply --server-side -f -", input_text=manifest)
    assert re.search(
        r'Apply failed with 1 conflict: conflict with "\S+" with subresource "scale" using apps/v1: \.spec\.replicas',
        complaint,
    )
    without_replicas = kubectl_binaries.nginx(2, "nginx:2")
    del without_replicas["spec"]["replicas"]
    await kubectl.apply(without_replicas, options="--server-side")
    assert world.replicas("deployments", "nginx") == 4
    await kubectl.apply(kubectl_binaries.nginx(5, "nginx:2"), options="--server-side --force-conflicts")
    assert world.replicas("deployments", "nginx") == 5


async def test_an_hpa_ignores_stateful_pods_that_are_terminating(pending):
    """Scenario 22: one pod is at the metric target, the other is Terminating at ten times that: the count stays."""
    cluster, kubectl = pending
    labels = {"app": "web"}
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "nodeName": "somewhere"}}
    body = {"replicas": 2, "podManagementPolicy": "Parallel", "selector": {"matchLabels": labels}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": body})
    await kubectl("autoscale statefulset web --cpu-percent=100 --min=1 --max=10")
    async with asyncio.timeout(kubectl_binaries.SECONDS):
        while len(cluster.list("pods")) < 2:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.02)
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}]
    status = {"phase": "Running", "startTime": "2020-01-01T00:00:00Z", "conditions": ready}
    for ordinal, usage in enumerate(("100m", "1000m")):
        cluster.set_pod_status(f"web-{ordinal}", status)
        cluster.usage.set(f"default/web-{ordinal}", {"app": {"cpu": usage}})
    await kubectl("delete pod web-1 --wait=false")
    assert "deletionTimestamp" in cluster.get("pods", "web-1")["metadata"]
    impatient = Tunables(cpu_initialization_period=timedelta(0), initial_readiness_delay=timedelta(0))
    options = settings.Settings(sync_period=CALM, listen=None, tunables=impatient)
    async with app.App(options, cluster_config=ClusterConfig(server=cluster.url)):
        async with asyncio.timeout(kubectl_binaries.SECONDS):
            while "100%/100%" not in await kubectl("get hpa web"):  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.1)
        await asyncio.sleep(2 * CALM.total_seconds())
        assert "100%/100%" in await kubectl("get hpa web")
    assert cluster.get("statefulsets", "web")["spec"]["replicas"] == 2

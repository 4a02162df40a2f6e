"""HPAs on the CPU usage of real processes."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from hpad import settings
from hpad.daemon import app
from hpad.engine.view import Tunables
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster

WORKER = """
import pathlib, sys, time
busy = pathlib.Path(sys.argv[1])
while True:
    until = time.process_time() + (0.02 if busy.exists() else 0)
    while time.process_time() < until:
        pass
    time.sleep(0.08)
"""


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(sampling_seconds=0.5, grace_seconds=1) as made:
        yield made


@pytest.mark.cluster
async def test_busy_processes_are_scaled_up_and_down(cluster: Cluster, tmp_path: Path) -> None:
    """Scenario 2 with usage from the process tree: each busy worker uses about 200m, and the target is 50m.

    The usage is above the target while a worker gets at least a tenth of a core.
    """
    busy = tmp_path / "busy"
    await asyncio.to_thread(busy.touch)
    container = {
        "name": "app",
        "command": [sys.executable, "-c", WORKER, str(busy)],
        "resources": {"requests": {"cpu": "100m"}},
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    head = {"metadata": {"name": "web"}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
    target = {"type": "Utilization", "averageUtilization": 50}
    hpa = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 3,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
    }
    cluster.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": hpa})
    options = settings.Settings(
        sync_period=timedelta(seconds=0.5),
        listen=None,
        tunables=Tunables(cpu_initialization_period=timedelta(0), initial_readiness_delay=timedelta(0)),
    )
    async with app.App(options, cluster_config=ClusterConfig(server=cluster.url)):
        await _until(cluster, 3)
        assert len(cluster.pids()) >= 1
        await asyncio.to_thread(busy.unlink)
        await _until(cluster, 1)


async def _until(cluster: Cluster, replicas: int) -> None:
    async with asyncio.timeout(180):
        while (cluster.get("deployments", "web") or {})["spec"]["replicas"] != replicas:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.05)

"""The JSON API of a daemon: it has the decisions of the controller, and the role of the process."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hpad import settings
from hpad.daemon import app
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab.cluster import Cluster
from hpad.settings.model import Election

HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""
SOON = 240
PATH = "/api/v1/hpas/default/web"


async def answers(folder: Path, **changes: Any) -> tuple[Any, ...]:
    """Returns the first event, the HPA, its history, its last decision and the replicas."""
    (folder / "web.yaml").write_text(HPA)
    chosen = settings.Settings(sync_period=timedelta(seconds=0.5), listen=("127.0.0.1", 0), manifests=folder, **changes)
    async with (
        asyncio.timeout(SOON),
        Cluster(auto_ready=True) as cluster,
        app.App(chosen, cluster_config=ClusterConfig(server=cluster.url)) as daemon,
        aiohttp.ClientSession(trust_env=False) as session,
    ):
        assert daemon.server is not None
        url = daemon.server.url

        async def get(path: str) -> Any:
            async with session.get(f"{url}{path}") as response:
                return await response.json()

        async with session.get(f"{url}/api/v1/decisions") as stream:
            while (line := await stream.content.readline()) and not line.startswith(b"data: "):
                pass
        paths = (PATH, f"{PATH}/history", f"{PATH}/decision", "/api/v1/replicas")
        return line.decode(), *[await get(path) for path in paths]


@pytest.mark.parametrize(
    ("role", "election"),
    [
        ("single", Election()),
        ("leader", Election(enabled=True)),
    ],
)
async def test_the_api_has_the_decisions_of_the_controller(tmp_path: Path, role: str, election: Election) -> None:
    event, hpa, history, decision, replicas = await answers(tmp_path, election=election)
    # There is no Deployment of this name.
    assert '"heldBy":"target_unreadable"' in event
    assert hpa["states"] == ["failing"]
    assert hpa["sentence"] == hpa["trace"]["sentence"] == decision["sentence"]
    assert hpa["trace"]["halt"]["reason"] == "FailedGetScale"
    assert hpa["trace"]["timing"]["observe"] >= 0
    assert [entry["action"] for entry in history["items"]] == ["none"]
    assert replicas["items"] == [{"identity": replicas["self"], "role": role, "owned": 1}]

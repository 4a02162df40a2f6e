"""API servers that are older than hpad: the oldest one with autoscaling/v2, and one without it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog
from e2e.conftest import World, worlds
from support.relay import Relay
from support.widgets import WIDGETS

from hpad.cli import main
from hpad.kube.auth.credentials import ClusterConfig
from hpad.lab import cluster as lab

STATUS_OF_1_23 = {
    "observedGeneration",
    "lastScaleTime",
    "currentReplicas",
    "desiredReplicas",
    "currentMetrics",
    "conditions",
}
"""Fields of the autoscaling/v2 HorizontalPodAutoscalerStatus since its first release."""
HPAS = r"^/apis/autoscaling/v2(/|$)"


class Old:
    """A World whose API server behaves as one of 1.23, and the bytes of its requests."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sent: list[bytes] = []

    def recorded(self, data: bytes) -> bytes:
        """Records the bytes of a request, and returns them."""
        self.sent.append(data)
        return data

    def written(self) -> list[dict[str, Any]]:
        """Returns the bodies of all writes of a status."""
        text = b"".join(self.sent)
        found = []
        for piece in text.split(b"PUT ")[1:]:
            path, _, rest = piece.partition(b" ")
            if path.endswith(b"/status"):
                body, _ = json.JSONDecoder().raw_decode(rest[rest.index(b"\r\n\r\n") + 4 :].decode())
                found.append(body)
        return found


@pytest.fixture
async def old() -> AsyncIterator[Old]:
    async with worlds(lab.Cluster(auto_ready=True, kinds=[WIDGETS])) as world:
        made = Old(world)
        # no streaming lists, which exist since 1.27: their parameter is forbidden for a watch
        made.world.cluster.faults.add(path="sendInitialEvents=true", times=None, status=422)
        yield made


@contextlib.asynccontextmanager
async def relayed(old: Old) -> AsyncIterator[ClusterConfig]:
    relay = Relay(int(old.world.cluster.url.rpartition(":")[2]), rewrite=old.recorded)
    await relay.start()
    try:
        yield ClusterConfig(server=f"http://127.0.0.1:{relay.port}")
    finally:
        await relay.stop()


async def test_the_oldest_server_with_autoscaling_v2(old: Old) -> None:
    """With paged lists and no later fields, built-in and custom targets are scaled."""
    world = old.world
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    widget = {"apiVersion": "oracle.example/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"replicas": 15}}
    world.cluster.apply({**widget, "status": {"replicas": 15, "selector": "app=w"}})
    world.hpa("w", scaleTargetRef={"apiVersion": "oracle.example/v1", "kind": "Widget", "name": "w"})
    async with relayed(old) as where:
        await world.hpad(cluster_config=where)
        for plural, name in (("deployments", "web"), ("widgets", "w")):
            await world.until(lambda plural=plural, name=name: world.replicas(plural, name) == 10)
            await world.until(lambda name=name: world.status(name).get("desiredReplicas") == 10)
        await world.until(lambda: len(world.events("w")) > 0)
        await world.daemon.stop()
    sent = b"".join(old.sent)
    assert b"GET /apis/oracle.example HTTP" in sent
    assert b"GET /apis/oracle.example/v1 HTTP" in sent
    statuses = old.written()
    assert statuses
    for body in statuses:
        assert body.keys() == {"apiVersion", "kind", "metadata", "spec", "status"}
        assert body["status"].keys() <= STATUS_OF_1_23


async def test_a_server_without_autoscaling_v2_is_named(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log, /readyz and the doctor name it; hpad starts to scale once the server is upgraded."""
    world.workload("Deployment", "web", 15)
    world.hpa("web")
    world.cluster.faults.add(path=HPAS, times=None, status=404)
    kubeconfig = await world.cluster.kubeconfig(tmp_path / "kubeconfig")
    with structlog.testing.capture_logs() as logs:
        await world.hpad(ready=False, listen=("127.0.0.1", 0))
        await world.until(lambda: len(world.daemon.unready()) > 1)
        assert world.daemon.server is not None
        async with (
            aiohttp.ClientSession(trust_env=False) as session,
            session.get(f"{world.daemon.server.url}/readyz") as answer,
        ):
            assert answer.status == 503
            assert "has no autoscaling/v2: hpad needs Kubernetes 1.23 or later" in await answer.text()
    assert "autoscaling/v2" in world.daemon.status()
    (error,) = [line for line in logs if line["log_level"] == "error"]
    assert "hpad needs Kubernetes 1.23 or later" in error["error"]
    assert await asyncio.to_thread(main, ["doctor", f"--kubeconfig={kubeconfig}"]) == 1
    assert "hpad needs Kubernetes 1.23 or later" in capsys.readouterr().out
    assert world.replicas("deployments", "web") == 15
    world.cluster.faults.clear()
    await world.until(lambda: world.replicas("deployments", "web") == 10)
    assert world.daemon.unready() == []

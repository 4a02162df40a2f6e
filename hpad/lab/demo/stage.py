"""What the demo plays on: the embedded cluster with real processes, and hpad as it runs in production."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from hpad import settings
from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.api.metadata import Key
from hpad.clock import Clock, SystemClock
from hpad.daemon import app
from hpad.engine.view import Tunables
from hpad.kube import errors
from hpad.kube.auth import credentials
from hpad.kube.client import Client
from hpad.lab.cluster import cluster as clusters
from hpad.lab.demo.documents import Document
from hpad.lab.demo.errors import DemoError

NAMESPACE = "default"
SYNC_PERIOD = timedelta(seconds=1)
SAMPLING_SECONDS = 2.0
TICK = 0.02
PATIENCE = 30.0
PATHS = {
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "HorizontalPodAutoscaler": f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers",
}


class Stage:
    """Where things are put up and seen: the API server's objects, the real processes, and hpad's own words."""

    def __init__(self, cluster: clusters.Cluster, daemon: app.App, client: Client, clock: Clock) -> None:
        self.clock = clock
        self._cluster = cluster
        self._daemon = daemon
        self._client = client

    async def apply(self, documents: Sequence[Document]) -> None:
        """Create objects through the API; raises kube.errors.ApiError with the server's own message."""
        for document in documents:
            await self._client.request("POST", PATHS[document["kind"]], body=msgspec.json.encode(document))

    async def delete(self, name: str) -> None:
        """Delete a Deployment and its HPA, and wait until the last of its processes has gone; raises DemoError."""
        for path in reversed(PATHS.values()):
            with contextlib.suppress(errors.ApiError):
                await self._client.request("DELETE", f"{path}/{name}")
        async with _patience(f"{name} did not go away"):
            while self.processes(name):
                await self.clock.sleep(TICK)

    async def next_metrics(self, name: str) -> None:
        """Return when usage was measured, so that what follows fills the next measurement; raises DemoError."""
        before = self._measured(name)
        async with _patience(f"usage of {name} was not measured"):
            while self._measured(name) == before:
                await self.clock.sleep(TICK)

    def hpa(self, name: str) -> HorizontalPodAutoscaler | None:
        """The HPA as the API server has it, None where there is none."""
        found = self._cluster.get("horizontalpodautoscalers", name, NAMESPACE)
        return from_builtins(found) if found else None

    def processes(self, name: str) -> list[int]:
        """The process ids of a Deployment's pods that run now."""
        return sorted(pid for pod, pid in self._cluster.pids().items() if pod.startswith(f"{NAMESPACE}/{name}-"))

    def decision(self, name: str) -> tuple[object, str]:
        """When (None: not yet) and what hpad decided last, as one sentence."""
        last = self._daemon.components.store.get(Key(NAMESPACE, name)).last
        return (last.at, last.sentence) if last else (None, "")

    def requests(self) -> int:
        """How many requests hpad has sent to the API server."""
        return self._cluster.log.count() - sum(self._client.requests.values())

    def _measured(self, name: str) -> frozenset[object]:
        """The times of the last measurements of a Deployment's pods."""
        pods = (key.rpartition("/")[0] for key in self._cluster.pids())
        readings = (self._cluster.usage.reading(pod) for pod in pods if pod.startswith(f"{NAMESPACE}/{name}-"))
        return frozenset(reading.time for reading in readings if reading)


@contextlib.asynccontextmanager
async def _patience(otherwise: str) -> AsyncIterator[None]:
    """Bound what should take no time; raises DemoError with what is wrong if it does."""
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise DemoError(f"{otherwise} within {PATIENCE:.0f} s") from None


@contextlib.asynccontextmanager
async def opened(directory: Path, sources: Sequence[settings.SourceSettings]) -> AsyncIterator[Stage]:
    """Cluster and daemon, started; everything they run is gone when the context ends.

    `directory` takes the kubeconfig, and the folders and logs of the pods. Raises OSError, DemoError.
    """
    clock = SystemClock()
    pods = directory / "pods"
    await asyncio.to_thread(pods.mkdir, parents=True, exist_ok=True)
    async with clusters.Cluster(sampling_seconds=SAMPLING_SECONDS, directory=pods, clock=clock) as cluster:
        kubeconfig = await cluster.kubeconfig(directory / "kubeconfig")
        told = told_to(str(kubeconfig), sources)
        async with (
            Client(credentials.ClusterConfig(cluster.url), clock, user_agent="hpad-demo") as client,
            app.App(told, clock=clock) as daemon,
        ):
            async with _patience("hpad did not get ready"):
                await daemon.ready()
            yield Stage(cluster, daemon, client, clock)


def told_to(kubeconfig: str, sources: Sequence[settings.SourceSettings]) -> settings.Settings:
    """The daemon's settings: a short period, and no patience for slow starters, as these start in no time."""
    tunables = Tunables(cpu_initialization_period=timedelta(), initial_readiness_delay=timedelta())
    return settings.Settings(
        kubeconfig=kubeconfig, sync_period=SYNC_PERIOD, tunables=tunables, sources=tuple(sources), listen=None
    )

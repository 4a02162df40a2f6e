"""The stage of the demo: the embedded cluster with real processes, and hpad's daemon."""

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
from hpad.lab.demo import DemoError
from hpad.lab.demo.documents import Document

NAMESPACE = "default"
SYNC_PERIOD = timedelta(seconds=1)
SAMPLING_SECONDS = 2.0
POLL_SECONDS = 0.02
TIMEOUT_SECONDS = 30.0
PATHS = {
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "HorizontalPodAutoscaler": f"/apis/autoscaling/v2/namespaces/{NAMESPACE}/horizontalpodautoscalers",
}


class Stage:
    """Gives access to the objects of the API server, the processes, and the decisions of hpad."""

    def __init__(self, cluster: clusters.Cluster, daemon: app.App, client: Client, clock: Clock) -> None:
        self.clock = clock
        self._cluster = cluster
        self._daemon = daemon
        self._client = client

    async def apply(self, documents: Sequence[Document]) -> None:
        """Creates objects through the API; raises kube.errors.ApiError with the server's message."""
        for document in documents:
            await self._client.request("POST", PATHS[document["kind"]], body=msgspec.json.encode(document))

    async def delete(self, name: str) -> None:
        """Deletes a Deployment and its HPA, and waits for the end of its processes; raises DemoError on timeout."""
        for path in reversed(PATHS.values()):
            with contextlib.suppress(errors.ApiError):
                await self._client.request("DELETE", f"{path}/{name}")
        async with _timeout(f"the processes of {name} did not end"):
            while self.processes(name):
                await self.clock.sleep(POLL_SECONDS)

    async def next_metrics(self, name: str) -> None:
        """Waits for a measurement of usage; raises DemoError on timeout.

        A load that starts right afterwards fills the whole next interval, so the first reading shows all of it.
        """
        before = self._measured(name)
        async with _timeout(f"usage of {name} was not measured"):
            while self._measured(name) == before:
                await self.clock.sleep(POLL_SECONDS)

    def hpa(self, name: str) -> HorizontalPodAutoscaler | None:
        """Returns the HPA as stored, None if it does not exist."""
        found = self._cluster.get("horizontalpodautoscalers", name, NAMESPACE)
        return from_builtins(found) if found else None

    def processes(self, name: str) -> list[int]:
        """Returns the pids of the running pods of a Deployment, sorted."""
        return sorted(pid for pod, pid in self._cluster.pids().items() if pod.startswith(f"{NAMESPACE}/{name}-"))

    def decision(self, name: str) -> tuple[object, str]:
        """Returns time and sentence of hpad's last decision, None and `""` before the first one."""
        last = self._daemon.components.decisions.last(Key(NAMESPACE, name))
        return (last.view.now, last.sentence) if last else (None, "")

    def requests(self) -> int:
        """Returns the number of requests of hpad to the API server, without those of this class."""
        return self._cluster.log.count() - sum(self._client.requests.values())

    def _measured(self, name: str) -> frozenset[object]:
        """Returns the times of the last measurements of a Deployment's pods."""
        pods = (key.rpartition("/")[0] for key in self._cluster.pids())
        readings = (self._cluster.usage.reading(pod) for pod in pods if pod.startswith(f"{NAMESPACE}/{name}-"))
        return frozenset(reading.time for reading in readings if reading)


@contextlib.asynccontextmanager
async def _timeout(problem: str) -> AsyncIterator[None]:
    """Raises DemoError with the problem if the body takes longer than TIMEOUT_SECONDS."""
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            yield
    except TimeoutError:
        raise DemoError(f"{problem} within {TIMEOUT_SECONDS:.0f} s") from None


@contextlib.asynccontextmanager
async def opened(directory: Path, sources: Sequence[settings.SourceSettings]) -> AsyncIterator[Stage]:
    """Starts cluster and daemon, and stops them with all processes when the context ends.

    `directory` gets the kubeconfig, and the folders and logs of the pods. Raises OSError, DemoError.
    """
    clock = SystemClock()
    pods = directory / "pods"
    await asyncio.to_thread(pods.mkdir, parents=True, exist_ok=True)
    async with clusters.Cluster(sampling_seconds=SAMPLING_SECONDS, directory=pods, clock=clock) as cluster:
        kubeconfig = await cluster.kubeconfig(directory / "kubeconfig")
        daemon_settings = settings_for(str(kubeconfig), sources)
        async with (
            Client(credentials.ClusterConfig(cluster.url), clock, user_agent="hpad-demo") as client,
            app.App(daemon_settings, clock=clock) as daemon,
        ):
            async with _timeout("hpad did not get ready"):
                await daemon.ready()
            yield Stage(cluster, daemon, client, clock)


def settings_for(kubeconfig: str, sources: Sequence[settings.SourceSettings]) -> settings.Settings:
    """Returns the daemon's settings: a short period, and no delays for starting pods, since these start at once."""
    tunables = Tunables(cpu_initialization_period=timedelta(), initial_readiness_delay=timedelta())
    return settings.Settings(
        kubeconfig=kubeconfig, sync_period=SYNC_PERIOD, tunables=tunables, sources=tuple(sources), listen=None
    )

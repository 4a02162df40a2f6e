"""Idle pods go first where kube-controller-manager's own ReplicaSet controller chooses: by the costs that hpad sets.

Pods are objects here, each with an address of loopback, where a server says whether the pod works.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kube.contract.conftest import Api, started
from kube.contract.test_contract import hpa
from support import apiserver

from hpad import settings
from hpad.daemon import app
from hpad.kube.auth import kubeconfig

pytestmark = pytest.mark.real_kube_apiserver
CONTROLLER = "kube-controller-manager"
PODS, BUSY, ROUNDS = 10, 3, 8
PATH, HPAS = "/api/v1/{ns}/pods", "/apis/autoscaling/v2/{ns}/horizontalpodautoscalers"
DEPLOYMENTS = "/apis/apps/v1/{ns}/deployments"
COST = "controller.kubernetes.io/pod-deletion-cost"
ADDRESSES = [f"127.0.0.{number}" for number in range(1, PODS + 1)]
Json = dict[str, Any]


class Workers:
    """The pods of a Deployment: `busy` are the names of those that work; a server at each address says so."""

    def __init__(self, api: Api) -> None:
        self.busy: set[str] = set()
        self.port = 0
        self._api = api
        self._addresses: dict[str, str] = {}

    async def pods(self) -> list[Json]:
        items: list[Json] = (await self._api.ask("GET", PATH))["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    async def want(self, count: int) -> None:
        await self._api.ask("PATCH", f"{HPAS}/worker", {"spec": {"minReplicas": count}})

    async def delete_hpa(self) -> None:
        await self._api.ask("DELETE", f"{HPAS}/worker")

    async def play(self) -> None:
        """Makes new pods ready, at a free address, until cancelled: the part of a kubelet."""
        while True:
            pods = await self.pods()
            names = {pod["metadata"]["name"] for pod in pods}
            self._addresses = {name: at for name, at in self._addresses.items() if name in names}
            for pod in pods:
                name = pod["metadata"]["name"]
                free = [address for address in ADDRESSES if address not in self._addresses.values()]
                if name not in self._addresses and free:
                    self._addresses[name] = free[0]
                    await self._start(name, free[0])
            await asyncio.sleep(0.05)

    async def _start(self, name: str, address: str) -> None:
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
        await self._api.ask("PATCH", f"{PATH}/{name}/status", {"status": status})

    async def handle(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        name = next((name for name, at in self._addresses.items() if at == address), None)
        return web.json_response({"running": int(name in self.busy), "total": len(self.busy)})

    async def until_ready(self, count: int) -> list[Json]:
        """Waits until there are as many pods, all of them ready; returns them, the youngest first."""
        async with asyncio.timeout(120):
            while True:
                pods = await self.pods()
                deployment = await self._api.ask("GET", f"{DEPLOYMENTS}/worker")
                ready = [pod for pod in pods if pod["status"].get("podIP")]
                if len(ready) == len(pods) == count == deployment["status"].get("readyReplicas"):
                    return sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]), reverse=True)
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def served(workers: Workers) -> AsyncIterator[None]:
    runner = web.ServerRunner(web.Server(workers.handle), shutdown_timeout=0.1)
    await runner.setup()
    for address in ADDRESSES:
        await web.TCPSite(runner, address, workers.port).start()
        workers.port = runner.addresses[0][1]
    playing = asyncio.create_task(workers.play())
    try:
        yield
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)
        await runner.cleanup()


def controller(running: apiserver.Running, folder: Path) -> Any:
    binary = Path(os.environ["KUBEBUILDER_ASSETS"]) / CONTROLLER
    flags = [
        f"--kubeconfig={running.kubeconfig}",
        "--controllers=deployment-controller,replicaset-controller",
        "--leader-elect=false",
        "--secure-port=0",
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]
    return apiserver.process([str(binary), *flags], folder / f"{CONTROLLER}.log")


async def create(api: Api) -> None:
    labels = {"app": "worker"}
    container = {"name": "app", "image": "none"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": PODS, "selector": {"matchLabels": labels}, "template": template}
    await api.ask("POST", DEPLOYMENTS, {"metadata": {"name": "worker"}, "spec": spec})
    sparing = {
        "hpad.io/scale-down-order": "idle-first",
        "hpad.io/keep-busy": "true",
        "hpad.io/busy-metric": "jobs_running",
    }
    made = hpa("worker", annotations=sparing)
    made["spec"] |= {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
        "minReplicas": PODS,
        "maxReplicas": PODS,
        "metrics": [
            {
                "type": "External",
                "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "1"}},
            }
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    await api.ask("POST", HPAS, made)


@pytest.fixture
async def workers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workers]:
    """Ten pods of a Deployment, whose controllers are the real ones, and hpad."""
    if (reason := apiserver.missing(CONTROLLER)) is not None:
        pytest.skip(reason)
    real = request.getfixturevalue("real")
    async with started(real.kubeconfig) as api, contextlib.AsyncExitStack() as stack:
        workers = Workers(api)
        await stack.enter_async_context(served(workers))
        await asyncio.to_thread(stack.enter_context, controller(real, tmp_path))
        await create(api)
        address = f"http://{ADDRESSES[0]}:{workers.port}/"
        metrics = {
            "jobs": {"url": address, "path": "total"},
            "jobs_running": {"url": f"http://pod:{workers.port}/", "path": "running", "pods": "each"},
        }
        source = settings.SourceSettings(name="workers", adapter="http-json", settings={"metrics": metrics})
        config = await asyncio.to_thread(kubeconfig.load_cluster_config, str(real.kubeconfig))
        period = timedelta(seconds=5)
        options = settings.Settings(namespaces=(api.namespace,), sync_period=period, listen=None, sources=(source,))
        await stack.enter_async_context(app.App(options, cluster_config=config))
        yield workers


async def test_in_fifty_scale_downs_the_replica_set_controller_removes_no_busy_pod(workers: Workers) -> None:
    """The youngest pods are busy, which go first without costs."""
    for number in range(ROUNDS):
        await workers.want(PODS)
        pods = await workers.until_ready(PODS)
        workers.busy = {pod["metadata"]["name"] for pod in pods[:BUSY]}
        for count in range(PODS - 1, BUSY - 1, -1):
            await workers.want(count)
            left = {pod["metadata"]["name"] for pod in await workers.until_ready(count)}
            assert workers.busy <= left, f"round {number}, from {count + 1} to {count}"
    assert all(COST not in pod["metadata"].get("annotations", {}) for pod in await workers.pods())
    assert ROUNDS * (PODS - BUSY) >= 50


async def test_a_pod_that_stays_loses_its_cost_although_the_hpa_was_deleted(workers: Workers) -> None:
    """Nine pods go, so the one that is busy gets a higher cost than they have."""
    [*_, oldest] = await workers.until_ready(PODS)
    name = oldest["metadata"]["name"]
    workers.busy = {name}
    await workers.want(1)
    [left] = await workers.until_ready(1)
    assert (left["metadata"]["name"], left["metadata"]["annotations"][COST]) == (name, "1")
    await workers.delete_hpa()
    async with asyncio.timeout(120):
        while (await workers.pods())[0]["metadata"].get("annotations"):  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.1)

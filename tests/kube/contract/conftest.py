"""Runs the contract tests against the embedded API server, and against a real one if its binaries are installed."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support import apiserver, widgets

from hpad.clock import SystemClock
from hpad.kube.auth.kubeconfig import load_cluster_config
from hpad.kube.client import Client
from hpad.kube.cluster import Cluster, Watching
from hpad.kube.errors import ApiError
from hpad.kube.reflector import ReflectorOptions
from hpad.lab import cluster as lab

Json = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class Api:
    """An API server, a namespace for one test, and plain requests that do not use the code under test.

    `kubeconfig` is for separate processes.
    """

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.namespace = f"contract-{secrets.token_hex(4)}"

    async def ask(self, method: str, path: str, body: Any = None, **params: str) -> Any:
        """Sends a request for JSON; raises ApiError. `{ns}` in the path is replaced by the namespace."""
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        path = path.replace("{ns}", f"namespaces/{self.namespace}")
        return json.loads(await self.client.request(method, path, params=params, body=data, content_type=kind))

    def cluster(self, **options: Any) -> Cluster:
        """Returns the caches of the namespace; `options` are those of Cluster."""
        timing = ReflectorOptions(page_size=7, initial_backoff=0.1, max_backoff=1.0)
        defaults = {"namespaces": (self.namespace,), "options": timing}
        return Cluster(self.client, Watching(**{**defaults, **options}))


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[apiserver.Running]:
    with apiserver.start(tmp_path_factory.mktemp("apiserver")) as running:
        yield running


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_kube_apiserver)])
async def api(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Api]:
    """The API server under test, which serves the kind Widget."""
    if request.param == "real":
        if (reason := apiserver.missing()) is not None:
            pytest.skip(reason)
        running = request.getfixturevalue("real")
        async with started(running.kubeconfig) as api:
            await serve(api, widgets.DEFINITION, "/apis/oracle.example/v1/{ns}/widgets")
            yield api
    else:
        embedded = lab.Cluster(controllers=False, kubelet=False, kinds=[widgets.WIDGETS])
        async with embedded, started(await embedded.kubeconfig(tmp_path / "kubeconfig")) as api:
            yield api


@asynccontextmanager
async def started(kubeconfig: Path) -> AsyncIterator[Api]:
    """Connects to an API server, and creates a namespace."""
    config = await asyncio.to_thread(load_cluster_config, str(kubeconfig))
    async with Client(config, SystemClock(), timeout=60.0) as client:
        api = Api(client, kubeconfig)
        await api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": api.namespace}})
        yield api


async def serve(api: Api, definition: Json, path: str) -> None:
    """Creates a CustomResourceDefinition unless it exists, and waits until `path` lists objects of its kind."""
    try:
        await api.ask("POST", DEFINITIONS, definition, fieldValidation="Strict")
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    async with asyncio.timeout(60):
        while True:
            try:
                await api.ask("GET", path)
            except ApiError:
                await asyncio.sleep(0.2)
            else:
                return


@pytest.fixture
async def cluster(api: Api, running: Any) -> Cluster:
    """A running Cluster whose caches have synced."""
    cluster = api.cluster()
    running(cluster.run())
    await asyncio.wait_for(cluster.ready(), 60)
    return cluster

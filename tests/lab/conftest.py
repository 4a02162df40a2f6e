"""Clusters and an HTTP client for the tests of the lab."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from hpad.lab.cluster import Cluster
from hpad.lab.servers import ports

Json = dict[str, Any]


class Client:
    """An HTTP client of one cluster."""

    def __init__(self, cluster: Cluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.session = session

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Sends a request; returns status code and body, decoded if it is JSON. Header names have underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else body if isinstance(body, str) else json.dumps(body)
        if data is not None:
            named.setdefault("Content-Type", "application/json")
        async with self.session.request(method, self.cluster.url + path, data=data, headers=named) as response:
            text = await response.text()
            return response.status, json.loads(text) if "json" in response.content_type else text

    async def get(self, path: str) -> Any:
        status, body = await self.ask("GET", path)
        assert status == 200, body
        return body

    async def watch(self, path: str, count: int, timeout: float = 240) -> list[Json]:
        """Returns the first `count` events of a watch, fewer if the server ends it before."""
        events: list[Json] = []
        async with asyncio.timeout(timeout), self.session.get(self.cluster.url + path) as response:
            assert response.status == 200
            async for line in response.content:
                events.append(json.loads(line))
                if len(events) == count:
                    break
        return events


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Starts clusters: `client = await start(auto_ready=True)`; stops them at the end of the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def begin(**options: Any) -> Client:
            cluster = await stack.enter_async_context(Cluster(**options))
            session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
            return Client(cluster, session)

        yield begin


@pytest.fixture
def unused_tcp_port() -> int:
    """A free port for a server that takes seconds to start."""
    return ports.free(1)[0]


@pytest.fixture
def until() -> Callable[..., Awaitable[Any]]:
    """`await until(lambda: ...)` waits until a condition is true and returns its value."""

    async def wait(condition: Callable[[], Any], timeout: float = 240) -> Any:
        async with asyncio.timeout(timeout):
            while not (value := condition()):  # noqa: ASYNC110 - the condition may be about processes
                await asyncio.sleep(0.02)
        return value

    return wait


@pytest.fixture
def workload() -> Callable[..., Json]:
    """Creates manifests of workloads: `workload("Deployment", "web", replicas=2, command=[...])`."""
    return manifest


def manifest(kind: str, name: str, *, replicas: int | None = None, command: Any = None, **spec: Any) -> Json:
    container = {"name": "app", "command": command or ["sleep", "1000"]}
    container["resources"] = {"requests": {"cpu": "200m"}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    full: Json = {"template": template, **spec}
    full["selector"] = {"app": name} if kind == "ReplicationController" else {"matchLabels": {"app": name}}
    if replicas is not None:
        full["replicas"] = replicas
    version = "v1" if kind == "ReplicationController" else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": full}

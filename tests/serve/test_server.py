"""The HTTP server, requested as a browser, a probe and a scraper do."""

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from support import http_server

from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.api.metadata import Key
from hpad.engine.history import Memory
from hpad.serve.api import Shown
from hpad.serve.api_types import Status
from hpad.serve.server import ServeError, Server
from hpad.store.store import InMemory
from hpad.telemetry import Telemetry

MODE = Status(doing="Scaling by 2 HPAs", dry_run=False)
NASTY = "<script>alert('&')</script>"


class Source(http_server.NoHpas):
    def __init__(self, *found: HorizontalPodAutoscaler) -> None:
        self.found = found

    def values(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self.found


def hpa(name: str, **status: Any) -> HorizontalPodAutoscaler:
    return from_builtins(
        {
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}, "maxReplicas": 9},
            "status": {"desiredReplicas": 3, "currentReplicas": 2, **status},
        }
    )


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str, reasons: list[str], store: InMemory) -> None:
        self.session, self.url, self.reasons, self.store = session, url, reasons, store

    async def get(self, path: str) -> tuple[int, str, Any]:
        async with self.session.get(self.url + path) as response:
            is_json = response.content_type == "application/json"
            return response.status, response.content_type, await (response.json() if is_json else response.text())


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with contextlib.AsyncExitStack() as stack:
        store, reasons = InMemory(), list[str]()
        server = Server(
            ("127.0.0.1", 0),
            Shown(Source(hpa("web"), hpa("api")), store),
            http_server.Present(lambda: reasons, lambda: [NASTY], lambda: MODE),
            Telemetry(),
        )
        await server.start()
        stack.push_async_callback(server.stop)
        session = await stack.enter_async_context(aiohttp.ClientSession(trust_env=False))
        yield Client(session, server.url, reasons, store)


async def test_the_status_in_memory_wins(client: Client) -> None:
    remembered = hpa("web", desiredReplicas=8).status
    client.store.put(Key("shop", "web"), Memory(status=remembered))
    assert (await client.get("/api/v1/hpas/shop/web"))[2]["desiredReplicas"] == 8


async def test_probes(client: Client) -> None:
    assert (await client.get("/livez"))[0] == 200
    assert (await client.get("/readyz"))[::2] == (200, "ok\n")
    client.reasons.append("waiting for the cluster")
    assert (await client.get("/livez"))[0] == 200
    assert (await client.get("/readyz"))[::2] == (503, "waiting for the cluster\n")


async def test_metrics(client: Client) -> None:
    status, _, text = await client.get("/metrics")
    assert status == 200
    assert "horizontal_pod_autoscaler_controller_reconciliations_total" in text


async def test_the_error_of_an_address_in_use_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = Server(
            ("127.0.0.1", port), Shown(Source(), InMemory()), http_server.Present(mode=lambda: MODE), Telemetry()
        )
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{port}"):
            await server.start()

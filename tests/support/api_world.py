"""A server with HPAs, their state and their decisions, and a client of its JSON API."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
from support import http_server
from support.engine import Workload, external, series

from hpad.api.hpa import KIND, HorizontalPodAutoscaler, from_builtins
from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.election import owner
from hpad.election.leader import KnownReplica
from hpad.engine.history import Memory
from hpad.engine.turn import Reconcile
from hpad.records.history import DecisionHistory
from hpad.records.recent import RecentReconciles
from hpad.serve.api_types import Status
from hpad.serve.server import Server
from hpad.settings.model import Serving
from hpad.store.store import InMemory

QUEUE = external("queue", {"queue": "orders"}, averageValue="10")


def scaled_up() -> Workload:
    """Returns a workload of 2 replicas that wanted 10 for 95 messages, 10 each, and got 6 by its policies."""
    work = Workload(QUEUE, replicas=2)
    work.reconcile(series(95))
    return work


def other_queue() -> dict[str, Any]:
    """Returns a second metric."""
    return external("mails", averageValue="10")


def hpa(name: str, namespace: str = "default", *, target: str = "", **fields: Any) -> HorizontalPodAutoscaler:
    """Returns an HPA without metrics. `fields` replace fields of the spec; `status` and `labels` are its own."""
    status, labels = fields.pop("status", {}), fields.pop("labels", None)
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": target or name, "apiVersion": "apps/v1"},
        "maxReplicas": 10,
        **fields,
    }
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return from_builtins({"metadata": metadata, "spec": spec, "status": status})


class Hpas(http_server.NoHpas):
    """A source whose HPAs a test replaces."""

    def __init__(self) -> None:
        self.found: dict[Key, HorizontalPodAutoscaler] = {}

    def values(self) -> tuple[Any, ...]:
        return tuple(self.found.values())

    def get(self, key: Key) -> HorizontalPodAutoscaler | None:
        return self.found.get(key)

    def put(self, *hpas: HorizontalPodAutoscaler) -> None:
        self.found |= {hpa.key: hpa for hpa in hpas}


class World:
    """A server with HPAs, their state and their decisions; `get` requests a path."""

    server: Server
    session: aiohttp.ClientSession

    def __init__(self) -> None:
        self.source, self.store, self.decisions = Hpas(), InMemory(), DecisionHistory()
        self.others: list[KnownReplica] = []
        """The processes beside this one."""
        self.recent = RecentReconciles(SystemClock(), seconds=600, memory=1 << 20)

    def decided(self, work: Workload, name: str = "web", namespace: str = "default", kind: str = KIND) -> Reconcile:
        """Takes over the last decision of a workload as that of an HPA of this name, as a reconcile does."""
        assert work.done is not None
        metadata = {"name": name, "namespace": namespace, "annotations": dict(work.annotations or {})}
        made = msgspec.structs.replace(work.hpa, metadata=from_builtins({"metadata": metadata}).metadata, kind=kind)
        done = msgspec.structs.replace(work.done, view=msgspec.structs.replace(work.done.view, hpa=made))
        self.source.put(made)
        self.store.put(made.key, Memory(shadow=work.shadow))
        self.decisions.add(done)
        self.recent.note(done)
        return done

    async def get(self, path: str) -> tuple[int, Any]:
        """Returns status and JSON of a path under /api/v1/."""
        async with self.session.get(f"{self.server.url}/api/v1/{path}") as response:
            assert response.content_type == "application/json", await response.text()
            return response.status, await response.json()

    async def names(self, path: str) -> list[str]:
        """Returns the names of the HPAs of a list."""
        status, answer = await self.get(path)
        assert status == 200, answer
        return [item["name"] for item in answer["items"]]


@contextlib.asynccontextmanager
async def opened(serving: Serving = Serving(), *, dry_run: bool = False) -> AsyncIterator[World]:  # noqa: B008
    """Starts a server without HPAs."""
    world = World()
    mode = Status(doing="Scaling by HPAs", dry_run=dry_run)
    server = http_server.opened(
        serving,
        source=world.source,
        store=world.store,
        decisions=world.decisions,
        mode=mode,
        recent=world.recent,
        replicas=lambda: [*owner.alone(), *world.others],
    )
    async with server as world.server, aiohttp.ClientSession(trust_env=False) as world.session:
        yield world

"""A real API server with its etcd and a metrics server, filled with a population.

The programs are those of the folder KUBEBUILDER_ASSETS. Neither kubelet nor other controllers run: all statuses are
written here, and nothing changes them.
"""

import asyncio
import contextlib
import json
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
from support import apiserver

from tools.bench.cluster import population, worlds
from tools.bench.cluster.population import Document, Population
from tools.bench.cluster.scraped import Scrape, fetch
from tools.bench.cluster.worlds import ChildWorld

_REQUESTS: Final = "apiserver_request_total"
_VERBS: Final = {"PUT": "update", "POST": "create"}
_HPAS: Final = "/apis/autoscaling/v2/horizontalpodautoscalers"
_GROUP: Final = "metrics.k8s.io"
_OF_CONTROLLERS: Final = frozenset({
    "horizontalpodautoscalers", "pods", "deployments", "replicasets", "statefulsets", "replicationcontrollers",
    "events", "configmaps",
})  # fmt: skip
"""Resources that the API server itself does not ask for."""
_CLIENTS: Final = 48
_METRICS_SECONDS: Final = 60.0
_COUNT_SECONDS: Final = 2.0


class RealWorld:
    """The running servers. Counting the HPAs lists them, so it is done at most every two seconds."""

    def __init__(self, running: apiserver.Running, metrics: ChildWorld) -> None:
        self.kubeconfig = running.kubeconfig
        self.processes = {**running.pids, **metrics.processes}
        self._metrics = metrics
        self._running = running
        self._trust = ssl.create_default_context(cafile=str(running.authority))
        self._marked: Mapping[str, str] = {}
        self._reconciled = 0
        self._counted_at = 0.0

    def counts(self) -> Mapping[str, float]:
        scrape = Scrape.of(self.read("/metrics"), (_REQUESTS,))
        found: Counter[str] = Counter()
        for labels, count in scrape.samples.get(_REQUESTS, {}).items():
            named = dict(labels)
            if named["resource"] in _OF_CONTROLLERS:
                found[_described(named)] += int(count)
        return {**found, **self._metrics.counts()}  # the API server does not count what it passes on

    def reconciled(self) -> int:
        if time.monotonic() - self._counted_at >= _COUNT_SECONDS:
            versions = self._versions()
            self._reconciled = sum(version != self._marked.get(name) for name, version in versions.items())
            self._counted_at = time.monotonic()
        return self._reconciled

    def mark(self) -> None:
        self._marked, self._reconciled = self._versions(), 0

    def read(self, path: str) -> str:
        return fetch(f"{self._running.url}{path}", self._trust, self._running.token)

    def _versions(self) -> dict[str, str]:
        items = json.loads(self.read(_HPAS))["items"]
        return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


def _described(labels: Mapping[str, str]) -> str:
    """Returns the name of a request as the stub has it."""
    resource, subresource = labels["resource"], labels.get("subresource", "")
    group = f".{_GROUP}" if labels.get("group") == _GROUP else ""
    verb = _VERBS.get(labels["verb"], labels["verb"].lower())
    return f"{verb} {resource}{group}{'/' if subresource else ''}{subresource}"


@contextlib.contextmanager
def started(folder: Path, of: Population) -> Iterator[RealWorld]:
    """Starts the servers and fills them; blocks. Raises RuntimeError if the programs are missing or do not start."""
    if (reason := apiserver.missing()) is not None:
        raise RuntimeError(reason)
    files, front = worlds.certificates(_made(folder / "metrics")), worlds.certificates(_made(folder / "front"))
    flags = (
        f"--requestheader-client-ca-file={folder / 'front' / 'ca.crt'}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={front['certificate']}",
        f"--proxy-client-key-file={front['key']}",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
    )
    metrics = worlds.child("tools.bench.cluster.metrics_server", folder / "metrics", of, files)
    with apiserver.start(folder, flags) as running, metrics as process:
        server = ChildWorld("metrics-server", process, folder / "metrics", None)
        world = RealWorld(running, server)
        asyncio.run(_fill(running, of, int(server.url.rpartition(":")[2])))
        _wait_for_metrics(world)
        yield world


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _wait_for_metrics(world: RealWorld) -> None:
    deadline = time.monotonic() + _METRICS_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            world.read(f"/apis/{_GROUP}/v1beta1/namespaces/{population.namespace(0)}/pods")
            return
        time.sleep(0.3)
    raise RuntimeError("the API server does not reach the metrics server")


class _Writer:
    """Creates objects, as an administrator."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def create(self, path: str, document: Document) -> None:
        """Creates an object, and writes its status if it has one. Raises RuntimeError."""
        await self._send("POST", path, document, "application/json")
        if "status" in document:
            own = f"{path}/{document['metadata']['name']}/status"
            await self._send("PATCH", own, {"status": document["status"]}, "application/merge-patch+json")

    async def _send(self, method: str, path: str, document: Document, media_type: str) -> None:
        headers = {"Content-Type": media_type}
        async with self._session.request(method, path, data=json.dumps(document), headers=headers) as answer:
            text = await answer.text()
            if answer.status not in (200, 201):
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]}")


async def _fill(running: apiserver.Running, of: Population, port: int) -> None:
    """Creates the population and the registration of the metrics server."""
    connector = aiohttp.TCPConnector(ssl=ssl.create_default_context(cafile=str(running.authority)), limit=_CLIENTS)
    headers = {"Authorization": f"Bearer {running.token}", "User-Agent": "kubectl/bench"}
    async with aiohttp.ClientSession(running.url, connector=connector, headers=headers) as session:
        writer = _Writer(session)
        await _register(writer, port)
        for index in range(of.namespaces):
            await writer.create("/api/v1/namespaces", {"metadata": {"name": population.namespace(index)}})
        for documents in (_workloads(of), _pods(of), _hpas(of)):
            await _each(documents, lambda pair: writer.create(*pair))


async def _register(writer: _Writer, port: int) -> None:
    service = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "name": "https"}]}
    named = {"name": "bench-metrics"}
    await writer.create("/api/v1/namespaces/default/services", {"metadata": named, "spec": service})
    there = {"service": {"namespace": "default", **named, "port": port}, "insecureSkipTLSVerify": True}
    spec = {"group": _GROUP, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, **there}
    document = {"metadata": {"name": f"v1beta1.{_GROUP}"}, "spec": spec}
    await writer.create("/apis/apiregistration.k8s.io/v1/apiservices", document)


def _workloads(of: Population) -> Iterator[tuple[str, Document]]:
    for number in range(of.hpas):
        made = population.deployment(of, number)
        yield f"/apis/apps/v1/namespaces/{of.namespace(number)}/deployments", made


def _pods(of: Population) -> Iterator[tuple[str, Document]]:
    for number in range(of.hpas):
        for index in range(of.pods):
            made = {**population.pod(of, number, index), "status": population.pod_status(number, index)}
            yield f"/api/v1/namespaces/{of.namespace(number)}/pods", made


def _hpas(of: Population) -> Iterator[tuple[str, Document]]:
    for number in range(of.hpas):
        path = f"/apis/autoscaling/v2/namespaces/{of.namespace(number)}/horizontalpodautoscalers"
        yield path, population.hpa(of, number)


async def _each(items: Iterable[Any], act: Callable[[Any], Awaitable[None]]) -> None:
    """Acts on each item, so many at a time as there are connections."""
    rest = iter(items)

    async def work() -> None:
        for item in rest:
            await act(item)

    await asyncio.gather(*(work() for _ in range(_CLIENTS)))

"""Benchmark of hpad.kube: `python tools/bench/kube.py` prints the costs of pods, of status writes and of requests.

50,000 pods of 10,000 workloads, in pages of 500 as an API server sends them, are put into a pod cache with its index. A
status is written to the embedded API server by PUT and by merge patch; the CPU time includes that of the server, which
runs in the same process. Requests go to a server in another thread, and the CPU time is that of the client alone.
`--short` uses 1,000 pods and 10 writes.
"""

import asyncio
import json
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.clock import SystemClock
from hpad.daemon import process
from hpad.kube import hpas, paths, pods, watch
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cache import HpaCache
from hpad.kube.client import Client
from hpad.kube.exchange import HttpRequest
from hpad.kube.pods import PodCache
from hpad.kube.reflector import WatchScope
from hpad.kube.session import Session
from hpad.lab.cluster import Cluster

SHORT = "--short" in sys.argv[1:]
PODS, EACH, PAGE = 1_000 if SHORT else 50_000, 5, 500
WRITES = 10 if SHORT else 300
WARM, REQUESTS = 5, 20 if SHORT else 3000
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
NOW = "2026-01-01T00:00:00Z"


def pod(number: int) -> dict[str, Any]:
    """Returns a pod of about 4 kB, most of which no decision reads."""
    app = f"web-{number // EACH}"
    mounts = [
        {"name": f"volume-{index}", "mountPath": f"/var/lib/data/{index}", "readOnly": True} for index in range(8)
    ]
    container = {
        "name": "app",
        "image": "registry.example.com/team/app@sha256:" + "0" * 64,
        "env": [{"name": f"SETTING_{index}", "value": "x" * 40} for index in range(12)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": mounts,
    }
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": NOW, "lastProbeTime": None}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    labels = {"app": app, "pod-template-hash": f"{number // EACH:010x}"}
    head = {"name": f"{app}-{number % EACH}", "namespace": f"ns{number % 50}", "uid": f"{number:036}", "labels": labels}
    return {
        "metadata": {**head, "resourceVersion": str(number), "annotations": {"note": "y" * 300}},
        "spec": {"containers": [container], "nodeName": f"node-{number % 400}", "serviceAccountName": "default"},
        "status": {"phase": "Running", "startTime": NOW, "conditions": conditions, "podIP": "10.0.0.1"},
    }


def page(first: int) -> bytes:
    items = [pod(number) for number in range(first, first + PAGE)]
    return json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()


def resident() -> int:
    """Returns the resident memory in bytes."""
    with open("/proc/self/statm", encoding="ascii") as figures:
        return int(figures.read().split()[1]) * resource.getpagesize()


def watched() -> None:
    cache = PodCache(WatchScope(Client(ClusterConfig("http://127.0.0.1:1"), SystemClock())))
    bodies = [page(first) for first in range(0, PODS, PAGE)]
    size, before, began = sum(map(len, bodies)), resident(), time.process_time()
    for body in bodies:
        for raw in watch.page(body).items or ():
            record = pods.pod(raw)
            cache.put(record, listed=True)
    spent, kept = time.process_time() - began, resident() - before
    each = f"{spent / PODS * 1e6:.1f} µs and {kept / PODS:,.0f} bytes of {size / PODS:,.0f} kept"
    print(f"kube: a pod of a list costs {each}, index included ({PODS:,} pods: {kept / 2**20:.0f} MiB)")


async def written() -> None:
    async with Cluster(controllers=False, kubelet=False) as cluster:
        target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
        cluster.apply({**head, "spec": {"scaleTargetRef": target, "maxReplicas": 10}})
        async with Client(ClusterConfig(cluster.url), SystemClock()) as client:
            print(f"kube: a status costs {await put(client):,.0f} µs by PUT, {await patched(client):,.0f} µs by PATCH")


async def put(client: Client) -> float:
    """Writes statuses by PUT; returns µs of CPU of client and server per write."""
    cache = HpaCache(WatchScope(client))
    cache.put(hpas.decode(await client.request("GET", path())))
    (held,) = cache.values()
    began = time.process_time()
    for number in range(WRITES):
        held = await cache.write_status(held, HorizontalPodAutoscalerStatus(desired_replicas=number % 9))
    return (time.process_time() - began) / WRITES * 1e6


async def patched(client: Client) -> float:
    """Writes statuses by merge patch; returns µs of CPU of client and server per write."""
    began = time.process_time()
    for number in range(WRITES):
        body = msgspec.json.encode({"status": {"desiredReplicas": number % 9, "currentMetrics": None}})
        hpas.hpa(await client.request("PATCH", path("status"), body=body, content_type="application/merge-patch+json"))
    return (time.process_time() - began) / WRITES * 1e6


class Answering(asyncio.Protocol):
    """Answers each read, which is a whole request, with an object of 1 kB."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)


@contextmanager
def answering() -> Iterator[str]:
    """Serves in another thread; yields the URL."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(Answering, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


async def requested(url: str) -> float:
    """Sends requests one after another; returns µs of CPU of the client per request."""
    session = Session(ClusterConfig(url), "bench", 2**20)
    headers = {"Accept": "application/json", "Authorization": "Bearer " + "x" * 900}
    began = 0.0
    for number in range(-WARM, REQUESTS):
        if number == 0:
            began = time.thread_time()
        await session.send(HttpRequest("PUT", path("status"), headers, b"x" * 1000), 10.0)
    spent = time.thread_time() - began
    await session.aclose()
    return spent / REQUESTS * 1e6


def sent() -> None:
    with answering() as url, asyncio.Runner(loop_factory=process.loop_factory()) as runner:
        print(f"kube: a request costs {runner.run(requested(url)):,.0f} µs")


def path(*more: str) -> str:
    return "/".join([paths.HPAS.collection("default"), "web", *more])


if __name__ == "__main__":
    watched()
    asyncio.run(written())
    sent()

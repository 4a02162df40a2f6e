"""Benchmark of watching: `python tools/bench/kube.py` prints time and memory per pod, and two ways to write a status.

50,000 pods of 10,000 workloads, in pages of 500 as an API server sends them, are put into a pod cache with its index. A
status is written to the embedded API server by PUT and by merge patch; the CPU time includes that of the server, which
runs in the same process. `--short` uses 1,000 pods and 10 writes.
"""

import asyncio
import json
import resource
import sys
import time
from typing import Any

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.clock import SystemClock
from hpad.kube import codec, paths, status
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cache import HpaCache, PodCache
from hpad.kube.client import Client
from hpad.kube.reflector import Kind
from hpad.kube.watch import WatchScope
from hpad.lab.cluster import Cluster

SHORT = "--short" in sys.argv[1:]
PODS, EACH, PAGE = 1_000 if SHORT else 50_000, 5, 500
WRITES = 10 if SHORT else 300
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
        for raw in codec.page(body).items or ():
            record = codec.pod(raw)
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
    cache = HpaCache(WatchScope(client), Kind(paths.HPAS, status.decode, lambda hpa: hpa.metadata.resource_version))
    cache.put(status.decode(await client.request("GET", path())))
    (held,) = cache.values()
    began = time.process_time()
    for number in range(WRITES):
        written = await status.write(client, cache, held, HorizontalPodAutoscalerStatus(desired_replicas=number % 9))
        cache.offer(written)
        held = written.value
    return (time.process_time() - began) / WRITES * 1e6


async def patched(client: Client) -> float:
    """Writes statuses by merge patch; returns µs of CPU of client and server per write."""
    began = time.process_time()
    for number in range(WRITES):
        body = msgspec.json.encode({"status": {"desiredReplicas": number % 9, "currentMetrics": None}})
        codec.hpa(await client.request("PATCH", path("status"), body=body, content_type="application/merge-patch+json"))
    return (time.process_time() - began) / WRITES * 1e6


def path(*more: str) -> str:
    return "/".join([paths.HPAS.collection("default"), "web", *more])


if __name__ == "__main__":
    watched()
    asyncio.run(written())

"""A cluster that lives: hpad scales Deployments under moving loads, and a Prometheus scrapes it, for `hpad advise`.

The API server is the embedded one, the pods are objects whose CPU usage a model gives, and the series are those of
kube-state-metrics and cAdvisor:

    python -m tools.advice_world FOLDER      until Ctrl-C; FOLDER/journal.jsonl has what really was
    hpad advise --prometheus http://127.0.0.1:PORT --kubeconfig FOLDER/kubeconfig --from 1h --step 15s
"""

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from aiohttp import web

from hpad.daemon.process import stop_on_signals
from hpad.lab.cluster import Cluster, strategy
from hpad.lab.servers import ports
from hpad.lab.servers.prometheus import PrometheusServer
from hpad.simulation.load import Load, parse, together
from tools import kube_series

TICK: Final = 5.0
"""Seconds between two steps of the model of the pods."""
USAGE_TICKS: Final = 3
"""metrics-server reads the usage every 15 seconds."""
STARTUP: Final = 12.0
"""Seconds until a new pod is ready."""
MI: Final = 2**20


class Planned(NamedTuple):
    """A workload: its loads in millicores of work (a queue: messages per second), and the HPA of it.

    `request`, `limit`: millicores of a pod. `memory`: MiB that each pod holds, whatever it serves; its request is 512.
    `rate`: messages per second of a worker; 0 for a service, whose ready pods share the load. `bare`: a second
    container without requests.
    """

    name: str
    loads: tuple[str, ...]
    metric: Mapping[str, Any]
    minimum: int
    maximum: int
    behavior: Mapping[str, Any] | None = None
    request: int = 200
    limit: int = 400
    memory: float = 120
    rate: float = 0.0
    bare: bool = False


def resource(name: str, goal: int) -> Mapping[str, Any]:
    target = {"type": "Utilization", "averageUtilization": goal}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def queue(goal: int) -> Mapping[str, Any]:
    target = {"type": "AverageValue", "averageValue": str(goal)}
    return {"type": "External", "external": {"metric": {"name": "mails"}, "target": target}}


def window(seconds: int) -> Mapping[str, Any]:
    return {"scaleDown": {"stabilizationWindowSeconds": seconds}}


WORKLOADS: Final = (
    Planned("web", ("sine:mean=1200,amplitude=900,period=20m",), resource("cpu", 60), 2, 20, window(120)),
    Planned("cart", ("constant:240", "spikes:height=1600,every=12m,for=3m"), resource("cpu", 50), 2, 20),
    Planned("search", ("sine:mean=600,amplitude=150,period=150s",), resource("cpu", 50), 1, 20, window(0)),
    Planned("checkout", ("sine:mean=1100,amplitude=500,period=30m",), resource("cpu", 60), 1, 4),
    Planned("thumbs", ("constant:150",), resource("cpu", 60), 6, 12),
    Planned("encode", ("sine:mean=700,amplitude=500,period=25m",), resource("cpu", 95), 1, 12, limit=200),
    Planned("api", ("sine:mean=800,amplitude=80,period=30m",), resource("cpu", 70), 3, 12),
    Planned("mailer", ("constant:2", "spikes:height=12,every=15m,for=2m"), queue(20), 1, 10, rate=1.0),
    Planned("report", ("constant:300",), resource("cpu", 60), 1, 6, bare=True),
    Planned("fixed", ("constant:300",), resource("cpu", 60), 3, 3),
    Planned("session", ("sine:mean=300,amplitude=200,period=20m",), resource("memory", 60), 1, 5, memory=400),
    Planned("stock", ("sine:mean=600,amplitude=200,period=20m",), resource("cpu", 40), 1, 20),
)
CHANGED: Final = ("stock", 1800.0, resource("cpu", 70))
"""The HPA whose metric changes in the middle: its name, after how many seconds, and the new metric."""
NAMESPACE: Final = "shop"


def documents(planned: Planned) -> Iterator[dict[str, Any]]:
    """Yields the Deployment of a workload and its HPA."""
    resources = {
        "requests": {"cpu": f"{planned.request}m", "memory": "512Mi"},
        "limits": {"cpu": f"{planned.limit}m"},
    }
    containers: list[dict[str, Any]] = [{"name": "app", "image": "app:1", "resources": resources}]
    containers += [{"name": "sidecar", "image": "sidecar:1"}] if planned.bare else []
    labels, head = {"app": planned.name}, {"name": planned.name, "namespace": NAMESPACE}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": planned.minimum, "selector": {"matchLabels": labels}, "template": template}
    yield {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": head, "spec": spec}
    scaled = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": planned.name},
        "minReplicas": planned.minimum,
        "maxReplicas": planned.maximum,
        "metrics": [planned.metric],
    }
    scaled |= {"behavior": planned.behavior} if planned.behavior else {}
    yield {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": scaled}


class Pods:
    """The pods of one workload: makes new ones ready after their startup, and lets them share the load."""

    def __init__(self, planned: Planned, cluster: Cluster, dice: random.Random) -> None:
        self.planned, self._cluster, self._dice = planned, cluster, dice
        self._load: Load = together([parse(each) for each in planned.loads])
        self.seconds: dict[str, float] = {}
        """CPU seconds that the container `app` of each pod has used."""
        self._before: dict[str, float] = {}
        self.published = self.acked = 0.0
        self.lost = 0.0
        """Millicore-seconds of work that nobody did."""

    def found(self) -> list[dict[str, Any]]:
        name = self.planned.name
        return [pod for pod in self._cluster.list("pods", NAMESPACE) if pod["metadata"]["labels"].get("app") == name]

    def step(self, at: float, usage: bool) -> dict[str, Any]:
        """Moves one tick on; with `usage` it becomes visible to metrics-server. Returns a line of the journal."""
        pods = self.found()
        ready = [pod["metadata"]["name"] for pod in pods if self._is_ready(pod)]
        names = {pod["metadata"]["name"] for pod in pods}
        self.seconds = {name: self.seconds.get(name, 0.0) for name in names}
        load = self._load(at)
        each = self.served(load, len(ready))
        for name in ready:
            self.seconds[name] += max(0.0, each * self._dice.gauss(1, 0.03)) / 1000 * TICK
        if usage:
            self._show(names)
        deployment = self._cluster.get("deployments", self.planned.name, NAMESPACE)
        assert deployment is not None
        return {
            "time": time.time(),
            "name": self.planned.name,
            "replicas": deployment["spec"]["replicas"],
            "pods": len(pods),
            "ready": len(ready),
            "load": load,
            "each": each,
            "lost": self.lost,
            "backlog": self.published - self.acked,
        }

    def served(self, load: float, ready: int) -> float:
        """Returns the millicores that each ready pod uses."""
        planned = self.planned
        if planned.rate:
            self.published += load * TICK
            done = min(self.published - self.acked, ready * planned.rate * TICK)
            self.acked += done
            return 100 * done / (ready * planned.rate * TICK) if ready else 0.0
        each = min(load / ready, planned.limit) if ready else 0.0
        self.lost += (load - each * ready) * TICK
        return each

    def _is_ready(self, pod: dict[str, Any]) -> bool:
        """Returns whether the pod serves; starts it if it is new, and makes it ready once it has started."""
        status, now = pod.get("status") or {}, datetime.now(UTC)
        name = pod["metadata"]["name"]
        if status.get("phase") != "Running":
            self._cluster.set_pod_status(name, self._status(pod, strategy.timestamp(now), "False"), NAMESPACE)
            return False
        if any(each["type"] == "Ready" and each["status"] == "True" for each in status["conditions"]):
            return True
        if (now - datetime.fromisoformat(status["startTime"])).total_seconds() >= STARTUP:
            self._cluster.set_pod_status(name, self._status(pod, status["startTime"], "True"), NAMESPACE)
        return False

    def _status(self, pod: dict[str, Any], start: str, ready: str) -> dict[str, Any]:
        now = strategy.timestamp(datetime.now(UTC))
        kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        conditions = [
            {"type": kind, "status": ready if "Ready" in kind else "True", "lastTransitionTime": now} for kind in kinds
        ]
        return {"phase": "Running", "startTime": start, "conditions": conditions}

    def _show(self, names: set[str]) -> None:
        """Publishes the usage since the last time by metrics.k8s.io; a pod is there from its second reading on."""
        length = TICK * USAGE_TICKS
        now = datetime.now(UTC)
        for name in names & self._before.keys():
            cores = (self.seconds[name] - self._before[name]) / length
            usage = {"app": {"cpu": f"{cores * 1e9:.0f}n", "memory": f"{self.planned.memory * 1024:.0f}Ki"}}
            usage |= {"sidecar": {"cpu": "5m", "memory": "20Mi"}} if self.planned.bare else {}
            self._cluster.usage.set(f"{NAMESPACE}/{name}", usage, time=now, window=length)
        for name in self._before.keys() - names:
            self._cluster.usage.clear(f"{NAMESPACE}/{name}")
        self._before = {name: self.seconds[name] for name in names}


class World:
    """All workloads, moved by one loop, and the pages that Prometheus scrapes."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._workloads = [Pods(each, cluster, random.Random(f"{seed} {each.name}")) for each in WORKLOADS]

    async def run(self, journal: IO[str]) -> None:
        """Moves the world until cancelled."""
        begun, tick, changed = time.monotonic(), 0, False
        while True:
            at = tick * TICK
            for each in self._workloads:
                journal.write(json.dumps(each.step(at, tick % USAGE_TICKS == 0)) + "\n")
            journal.flush()
            if not changed and at >= CHANGED[1]:
                self._change()
                changed = True
            self._cluster.log.clear()
            tick += 1
            await asyncio.sleep(max(0.0, begun + tick * TICK - time.monotonic()))

    def _change(self) -> None:
        name, _, metric = CHANGED
        found = self._cluster.get("horizontalpodautoscalers", name, NAMESPACE)
        assert found is not None
        self._cluster.apply(
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"metrics": [metric]},
            }
        )

    async def objects(self, request: web.Request) -> web.Response:
        """Answers as kube-state-metrics does."""
        rows: list[kube_series.Row] = []
        kinds = {
            "horizontalpodautoscalers": kube_series.of_hpa,
            "deployments": kube_series.of_deployment,
            "replicasets": kube_series.of_replica_set,
            "pods": kube_series.of_pod,
        }
        for plural, of in kinds.items():
            for each in self._cluster.list(plural, NAMESPACE):
                rows += of(each)
        return web.Response(text=kube_series.text(rows))

    async def containers(self, request: web.Request) -> web.Response:
        """Answers as cAdvisor does."""
        rows: list[kube_series.Row] = []
        for each in self._workloads:
            memory = {"app": each.planned.memory * MI} | ({"sidecar": 20.0 * MI} if each.planned.bare else {})
            for pod in each.found():
                used = each.seconds.get(pod["metadata"]["name"])
                if used is not None:
                    seconds = {"app": used} | ({"sidecar": used / 20} if each.planned.bare else {})
                    rows += kube_series.of_containers(pod, seconds, memory)
        return web.Response(text=kube_series.text(rows))

    async def queues(self, request: web.Request) -> web.Response:
        """Answers as a broker's exporter does."""
        rows: list[kube_series.Row] = []
        for each in self._workloads:
            if each.planned.rate:
                labels = {"vhost": "/", "queue": each.planned.name}
                rows.append(("rabbitmq_queue_messages", labels, each.published - each.acked))
                rows.append(("rabbitmq_queue_messages_published_total", labels, each.published))
                rows.append(("rabbitmq_queue_messages_acked_total", labels, each.acked))
        return web.Response(text=kube_series.text(rows))

    @contextlib.asynccontextmanager
    async def serving(self, port: int) -> Any:
        application = web.Application()
        application.router.add_get("/objects", self.objects)
        application.router.add_get("/containers", self.containers)
        application.router.add_get("/queues", self.queues)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        try:
            yield
        finally:
            await runner.cleanup()


def scrapes(port: int) -> str:
    """Returns the configuration of Prometheus."""
    jobs = {"kube-state-metrics": "/objects", "kubelet": "/containers", "rabbitmq": "/queues"}
    targets = [{"targets": [f"127.0.0.1:{port}"]}]
    configs = [
        {"job_name": name, "metrics_path": path, "honor_labels": True, "static_configs": targets}
        for name, path in jobs.items()
    ]
    return json.dumps({"global": {"scrape_interval": "15s"}, "scrape_configs": configs})


def settings(prometheus: str) -> str:
    """Returns the configuration of hpad: its queue is read from Prometheus."""
    query = 'sum(rabbitmq_queue_messages{queue="mailer"})'
    source = {"adapter": "prometheus", "url": prometheus, "metrics": {"mails": {"query": query}}}
    return json.dumps({"sources": {"prometheus": source}})


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="for the kubeconfig, hpad.json, the journal and hpad's log")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    port, listen = ports.free(2)
    async with (
        stop_on_signals() as stop,
        Cluster(kubelet=False, history_limit=5_000) as cluster,
        PrometheusServer(config=scrapes(port)) as prometheus,
    ):
        for planned in WORKLOADS:
            for document in documents(planned):
                cluster.apply(document)
        (folder / "hpad.json").write_text(settings(prometheus.url), encoding="utf-8")
        kubeconfig = await cluster.kubeconfig(folder / "kubeconfig")
        world = World(cluster, options.seed)
        command = (sys.executable, "-m", "hpad", "run", f"--config={folder / 'hpad.json'}")
        flags = (f"--kubeconfig={kubeconfig}", f"--listen=127.0.0.1:{listen}", f"--record={folder / 'records'}")
        with (folder / "journal.jsonl").open("w", encoding="utf-8") as journal, (folder / "hpad.log").open("wb") as log:
            async with world.serving(port):
                moving = asyncio.create_task(world.run(journal))
                hpad = await asyncio.create_subprocess_exec(*command, *flags, stderr=log)
                print(f"hpad advise --prometheus {prometheus.url} --kubeconfig {kubeconfig} --from 1h --step 15s")
                print(f"hpad: http://127.0.0.1:{listen}/", flush=True)
                try:
                    await asyncio.wait([asyncio.create_task(stop.wait()), moving], return_when=asyncio.FIRST_COMPLETED)
                    if moving.done():
                        moving.result()
                finally:
                    moving.cancel()
                    hpad.terminate()
                    await hpad.wait()


if __name__ == "__main__":
    asyncio.run(main())

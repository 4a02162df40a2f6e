"""Measures how long a target at zero takes to begin its first task, and what each part of that takes.

Runs a RabbitMQ, `hpad cluster` with real processes, hpad, and a Celery worker that hpad puts to sleep and wakes again:

  python -m tools.coldstart --sync-period 15s --rounds 8
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
from celery import Celery

from hpad.lab.cluster import Cluster
from hpad.lab.servers import ports
from hpad.lab.servers.rabbitmq import Queue, RabbitMQServer

ROOT: Final = Path(__file__).parents[1]
_POLL: Final = 0.02
PARTS: Final = ("seen by hpad", "scale written", "pod started", "first task begun")

app = Celery("coldstart", broker=os.environ.get("BROKER", "memory://"))
app.conf.update(task_ignore_result=True, task_default_queue="tasks", broker_connection_retry_on_startup=True)


@app.task(name="work")
def work(file: str) -> None:
    """Writes when it began."""
    Path(file).write_text(str(time.time()), encoding="utf-8")


def documents(broker: str, period: str) -> list[dict[str, Any]]:
    """Returns the Deployment of the worker and its HPA."""
    command = [sys.executable, "-m", "celery", "-A", "tools.coldstart", "worker", "-P", "solo", "-Q", "tasks"]
    environment = {"BROKER": broker, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"], "HOME": "/tmp"}
    env = [{"name": name, "value": value} for name, value in environment.items()]
    labels = {"app": "worker"}
    pod = {"containers": [{"name": "app", "image": "celery", "command": command, "env": env}]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "worker"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    metric = {"name": "queue_messages", "selector": {"matchLabels": {"queue": "tasks"}}}
    target = {"type": "AverageValue", "averageValue": "10"}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "worker", "annotations": {"hpad.io/zero-after": "0s", "hpad.io/sync-period": period}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "minReplicas": 0,
            "maxReplicas": 5,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
        },
    }
    return [deployment, hpa]


async def until(found: Callable[[], Any], seconds: float = 180) -> Any:
    """Returns what `found` returns once it is true. Raises TimeoutError."""
    for _ in range(int(seconds / _POLL)):
        if value := found():
            return value
        await asyncio.sleep(_POLL)
    raise TimeoutError(f"nothing within {seconds:g} s")


class Measured:
    """The times of one wake-up after another; `started` are those of pods that run."""

    def __init__(self, cluster: Cluster, port: int, folder: Path) -> None:
        self._cluster, self._port, self._folder = cluster, port, folder
        self._started: dict[str, float] = {}
        cluster.store.subscribe(self._changed)

    def _changed(self, change: Any) -> None:
        found = change.object
        if change.resource.plural == "pods" and (found.get("status") or {}).get("phase") == "Running":
            self._started.setdefault(found["metadata"]["name"], time.time())

    def _writes(self) -> list[float]:
        return [write.time.timestamp() for write in self._cluster.log.writes if write.subresource == "scale"]

    async def _decided(self, since: float) -> float:
        """Returns when hpad had read the message that it woke the target for."""
        url = f"http://127.0.0.1:{self._port}/api/v1/hpas/default/worker/history?limit=20"
        while True:
            async with aiohttp.ClientSession() as http, http.get(url) as response:
                for entry in (await response.json())["items"]:
                    at = datetime.fromisoformat(entry["began"]).timestamp()
                    if entry["action"] == "scale_up" and at >= since:
                        return at
            await asyncio.sleep(0.2)

    async def round(self, number: int, phase: float) -> list[float]:
        """Returns the seconds of each part of one wake-up, `phase` seconds after the target fell asleep."""
        await until(lambda: not self._cluster.get("deployments", "worker")["spec"]["replicas"])
        await until(lambda: not self._cluster.list("pods"))
        await asyncio.sleep(phase)
        writes, pods, file = len(self._writes()), set(self._started), self._folder / f"{number}.txt"
        published = time.time()
        await asyncio.to_thread(app.send_task, "work", (str(file),))
        begun = float(await until(lambda: file.exists() and file.read_text(encoding="utf-8")))
        started = min(at for name, at in self._started.items() if name not in pods)
        times = [published, await self._decided(published), self._writes()[writes], started, begun]
        return [later - earlier for earlier, later in itertools.pairwise(times)]


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sync-period", default="15s")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    dice, port = random.Random(options.seed), ports.free(1)[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with RabbitMQServer(queues=(Queue("tasks"),)) as broker, Cluster(scale_to_zero=True) as cluster:
            admin = broker.admin
            url = f"amqp://{admin.name}:{admin.password}@127.0.0.1:{broker.amqp_port}/"
            app.conf.broker_url = url
            source = {"adapter": "rabbitmq", "url": broker.management_url, "username": admin.name}
            config = {
                "feature_gates": {"HPAScaleToZero": True},
                "sources": {"broker": source | {"password": admin.password}},
            }
            (folder / "hpad.json").write_text(json.dumps(config), encoding="utf-8")
            for document in documents(url, options.sync_period):
                cluster.apply(document)
            kubeconfig = await cluster.kubeconfig(folder / "kubeconfig")
            flags = (f"--config={folder / 'hpad.json'}", f"--listen=127.0.0.1:{port}", f"--kubeconfig={kubeconfig}")
            with (folder / "hpad.log").open("wb") as log:
                hpad = await asyncio.create_subprocess_exec(sys.executable, "-m", "hpad", "run", *flags, stderr=log)
            try:
                measured, rows = Measured(cluster, port, folder), []
                period = float(options.sync_period.removesuffix("s"))
                for number in range(options.rounds):
                    rows.append(await measured.round(number, dice.uniform(0, period)))
                    print(*(f"{part:7.3f}" for part in rows[-1]), flush=True)
            except BaseException:
                print((folder / "hpad.log").read_text(encoding="utf-8")[-3000:])
                raise
            finally:
                hpad.terminate()
                await hpad.wait()
    for index, part in enumerate((*PARTS, "in all")):
        column = [row[index] if index < len(PARTS) else sum(row) for row in rows]
        print(f"{part:>18}: median {statistics.median(column):.2f} s, largest {max(column):.2f} s")


if __name__ == "__main__":
    asyncio.run(main())

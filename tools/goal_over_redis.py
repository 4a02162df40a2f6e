"""A goal in seconds with real Celery workers over a real Redis: a backlog beside arrivals, on the embedded cluster.

    python -m tools.goal_over_redis --seeds 1 2 3 4 5 --late

prints, for each seed, after which part of the goal the last task of the backlog began, how many tasks ran twice or
never, the most pods, and the replica-seconds. Needs redis-server and the extras `celery`, `redis` and `demo`.

The same file is the Celery application: `BROKER_URL`, `LATE` (1 for late acknowledgement), `PREFETCH`.
"""

import argparse
import asyncio
import contextlib
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from hpad import settings
from hpad.lab.demo import stage
from hpad.lab.servers import ports

BROKER = os.environ.get("BROKER_URL", "redis://localhost:6379/0")
NAME, QUEUE, CONCURRENCY = "mail", "mail", 4
BEGAN, DONE = "test:began", "test:done"
PATIENCE = 200.0

app = Celery("goal", broker=BROKER)
app.conf.update(
    task_acks_late=os.environ.get("LATE") == "1",
    worker_prefetch_multiplier=int(os.environ.get("PREFETCH", "1")),
    task_ignore_result=True,
    task_default_queue=QUEUE,
    broker_connection_retry_on_startup=True,
)
_notes = redis.Redis.from_url(BROKER, retry=Retry(ConstantBackoff(0.5), 100))


@app.task(name="work")
def work(number: int, seconds: float) -> None:
    """Notes its begin and its end."""
    _notes.hset(BEGAN, number, time.time())
    time.sleep(seconds)
    _notes.rpush(DONE, number)


def manifests(url: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    labels = {"app": NAME}
    root = str(Path(__file__).parents[1])
    environment = {"BROKER_URL": url, "LATE": str(int(options.late)), "PREFETCH": str(options.prefetch)}
    environment |= {"PYTHONPATH": root, "PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = [sys.executable, "-m", "celery", "-A", "tools.goal_over_redis", "worker", "-n", "worker@$(POD_NAME)"]
    command += ["-c", str(CONCURRENCY), "-P", options.pool, "-Q", QUEUE, "--without-gossip", "--without-mingle"]
    container = {
        "name": "worker",
        "image": "none",
        "command": command,
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            *({"name": name, "value": value} for name, value in environment.items()),
        ],
    }
    pod = {"terminationGracePeriodSeconds": 60, "containers": [container]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    goal = {"queue": QUEUE, "goal": f"{options.goal:g}s", "startup": f"{options.startup:g}s"}
    metric = {"name": "celery_workers_to_clear", "selector": {"matchLabels": goal}}
    target = {"type": "AverageValue", "averageValue": str(CONCURRENCY)}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": NAME},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
            "minReplicas": 1,
            "maxReplicas": 30,
            "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
                "scaleDown": {"stabilizationWindowSeconds": 5},
            },
        },
    }
    return [deployment, hpa]


class Sender:
    """Sends tasks at random times and of random length, and remembers how many."""

    def __init__(self, url: str, options: argparse.Namespace, seed: int) -> None:
        self._app = Celery("sender", broker=url)
        self._mean, self._rate = options.seconds, options.rate
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.sent = 0

    def send(self, count: int) -> range:
        """Sends tasks and returns their numbers."""
        with self._lock, self._app.connection_for_write() as connection:
            for _ in range(count):
                seconds = self._chance.uniform(0.5, 1.5) * self._mean
                self._app.send_task("work", (self.sent, seconds), queue=QUEUE, connection=connection)
                self.sent += 1
            return range(self.sent - count, self.sent)

    async def arrivals(self) -> None:
        while True:
            await asyncio.sleep(self._chance.expovariate(self._rate))
            with contextlib.suppress(OperationalError):
                await asyncio.to_thread(self.send, 1)


async def played(options: argparse.Namespace, seed: int, folder: Path) -> None:
    [port] = ports.free(1)
    url = f"redis://127.0.0.1:{port}/0"
    redis_server = shutil.which("redis-server")
    assert redis_server is not None
    command = [redis_server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    servers = [await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)]

    async def trouble() -> None:
        """Restarts Redis with its data, in the middle of the backlog."""
        await asyncio.sleep(15.0)
        stop = await asyncio.create_subprocess_exec("redis-cli", "-p", str(port), "shutdown", "save")
        await stop.wait()
        await servers[0].wait()
        await asyncio.sleep(3.0)
        servers.append(await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL))

    try:
        await asyncio.sleep(1.0)
        await _scaled(options, seed, url, folder, trouble if options.restart else None)
    finally:
        servers[-1].terminate()
        await servers[-1].wait()


async def _scaled(
    options: argparse.Namespace,
    seed: int,
    url: str,
    folder: Path,
    trouble: Callable[[], Coroutine[Any, Any, None]] | None,
) -> None:
    notes = redis.Redis.from_url(url, retry=Retry(ConstantBackoff(0.5), 100))
    sender = Sender(url, options, seed)
    source = {"redis": {"url": url}, "queues": [QUEUE], "default_queue": QUEUE, "workers": {"timeout": "400ms"}}
    named = settings.SourceSettings(name="celery", adapter="celery", settings=source)
    async with stage.opened(folder, [named]) as on:
        await on.apply(manifests(url, options))
        arrivals = asyncio.create_task(sender.arrivals())
        await asyncio.sleep(options.before)
        began = last = time.time()
        backlog = await asyncio.to_thread(sender.send, options.backlog)
        troubled = asyncio.create_task(trouble()) if trouble is not None else None
        spent, peak, cleared, said = 0.0, 1, None, ""
        while cleared is None or len(on.processes(NAME)) > options.until:
            await asyncio.sleep(0.5)
            now, running = time.time(), len(on.processes(NAME))
            spent, peak, last = spent + (now - last) * running, max(peak, running), now
            if options.verbose and (sentence := on.decision(NAME)[1]) != said:
                print(f"  {now - began:5.1f} {running} {sentence}")
                said = sentence
            if cleared is None and (troubled is None or troubled.done()):
                times = notes.hmget(BEGAN, [str(number) for number in backlog])
                if all(times):
                    cleared = max(float(each) for each in times) - began
            if now - began > PATIENCE:
                begun = sum(notes.hexists(BEGAN, str(number)) for number in backlog)
                sys.exit(f"seed {seed}: {begun} of {len(backlog)} tasks began; {notes.hlen('unacked')} are fetched")
        arrivals.cancel()
        for _ in range(120):
            if notes.llen(DONE) >= sender.sent:
                break
            await asyncio.sleep(0.5)
        runs = Counter(int(each) for each in notes.lrange(DONE, 0, -1))
        lost, twice = sender.sent - len(runs), sum(count > 1 for count in runs.values())
        await on.delete(NAME)
    print(
        f"{'late' if options.late else 'early'} seed {seed}: backlog begun after {cleared:.1f} s = "
        f"{cleared / options.goal:.2f} of the goal, at most {peak} pods, {spent:.0f} replica-seconds in "
        f"{last - began:.0f} s; of {sender.sent} tasks {lost} lost, {twice} run twice",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--late", action="store_true", help="with late acknowledgement")
    parser.add_argument("--pool", default="prefork")
    parser.add_argument("--prefetch", type=int, default=1)
    parser.add_argument("--goal", type=float, default=60.0)
    parser.add_argument("--startup", type=float, default=12.0)
    parser.add_argument("--backlog", type=int, default=240)
    parser.add_argument("--rate", type=float, default=1.5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--before", type=float, default=40.0, help="seconds of arrivals before the backlog")
    parser.add_argument("--until", type=int, default=3, help="pods at which a run ends")
    parser.add_argument("--restart", action="store_true", help="restart Redis while the backlog is worked off")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(played(options, seed, Path(folder)))


if __name__ == "__main__":
    main()

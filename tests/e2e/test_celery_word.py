"""Idle workers go first by the word of real Celery workers: many scale-downs, counted against what the workers did.

Takes minutes, so that it is run by hand: HPAD_TEST_CELERY=13 (rounds of four scale-downs each, for each combination).
HPAD_TEST_CELERY_LONG=1 takes tasks of up to three minutes, and an hour for 13 rounds of one combination.
HPAD_TEST_CELERY_REPORT names a file that gets a line of JSON for each combination.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from e2e.conftest import World, worlds
from support import redis_lab

from hpad import settings, testing
from hpad.adapter import AdapterError, or_error
from hpad.lab.cluster import Cluster
from hpad.lab.servers import ports, rabbitmq
from hpad_adapters.celery import Settings
from hpad_adapters.celery.workers import CeleryWorkers

ROUNDS = int(os.environ.get("HPAD_TEST_CELERY", "1"))
pytestmark = pytest.mark.cluster
MOST, FEWEST = 6, 2
PERIOD, TIMEOUT = 10.0, "1200ms"
"""A scale-down waits for what its pods do for at most 15 % of the period."""
LONG = "HPAD_TEST_CELERY_LONG" in os.environ
PER_SECOND, SHORTEST, LONGEST = (0.015, 30.0, 180.0) if LONG else (1.2, 0.3, 4.0)
COMPARISONS, PAUSE = (8, 5.0) if LONG else (1, 0.0)
"""Before each scale-down, and the seconds after each of them."""
HELD = 300.0 if LONG else 25.0
"""Seconds that a scale-down may wait for an idle worker."""
LOST = 400.0 if LONG else 45.0
"""Seconds after the last task in which all are to be done."""
RACE = 1.0
"""Seconds between the reading and the removal, in which a worker may fetch a task."""
CONDITIONS = ("ScalingActive", "ScalingLimited", "IdleFirst")
SPARING = {"hpad.io/scale-down-order": "idle-first", "hpad.io/keep-busy": "true"}
TESTS = Path(__file__).parents[1]


class Diary:
    """What the workers did."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.file.touch()

    def entries(self) -> list[dict[str, Any]]:
        return sorted((json.loads(line) for line in self.file.read_text().splitlines()), key=lambda each: each["at"])

    def count(self, what: str) -> int:
        return sum(each["what"] == what for each in self.entries())

    def removals(self) -> Iterator[tuple[float, bool, list[str]]]:
        """Yields of each pod that shut down the age of its task (0: idle), and the pods that were idle then."""
        entries = self.entries()
        for gone in (each for each in entries if each["what"] == "shutdown"):
            before = [each for each in entries if each["at"] <= gone["at"]]
            alive = {each["pod"] for each in before if each["what"] == "ready"}
            alive -= {each["pod"] for each in before if each["what"] == "shutdown"}
            running: dict[str, dict[int, float]] = {}
            for each in before:
                if each["what"] == "begin":
                    running.setdefault(each["pod"], {})[each["task"]] = each["at"]
                elif each["what"] == "end":
                    running.get(each["pod"], {}).pop(each["task"], None)
            own = running.get(gone["pod"], {})
            age = gone["at"] - min(own.values()) if own else 0.0
            yield age, bool(own), sorted(pod for pod in alive if not running.get(pod))

    def unfinished(self) -> Iterator[tuple[int, str, float | None]]:
        """Yields each task that began and never ended: its pod, and how long before the end of the pod it began."""
        entries = self.entries()
        ended = {each["task"] for each in entries if each["what"] == "end"}
        gone = {each["pod"]: each["at"] for each in entries if each["what"] == "shutdown"}
        for each in entries:
            if each["what"] == "begin" and each["task"] not in ended:
                left = gone[each["pod"]] - each["at"] if each["pod"] in gone else None
                yield each["task"], each["pod"], left


class Sender:
    """Sends tasks of random length, until it is cancelled."""

    def __init__(self, url: str, seed: int) -> None:
        from celery import Celery as App

        self._app = App("sender", broker=url)
        self._random = random.Random(seed)
        self.sent = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(PER_SECOND))
            seconds = self._random.uniform(SHORTEST, LONGEST)
            await asyncio.to_thread(self._app.send_task, "work", (self.sent, seconds), queue="mail")
            self.sent += 1


@contextlib.asynccontextmanager
async def brokers(kind: str, folder: Path) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yields the URL for Celery, and the settings of the source."""
    if kind == "redis":
        [port] = ports.free(1)
        with redis_lab.started(redis_lab.Server(folder / "redis", port, {})):
            yield (
                f"redis://127.0.0.1:{port}/0",
                {"redis": {"url": f"redis://127.0.0.1:{port}"}, "workers": {"timeout": TIMEOUT}},
            )
        return
    async with rabbitmq.RabbitMQServer() as server:
        user, at = server.admin, f"127.0.0.1:{server.amqp_port}"
        options = {"url": server.management_url, "username": user.name, "password": user.password}
        yield (
            f"amqp://{user.name}:{user.password}@{at}//",
            {"rabbitmq": options, "workers": {"url": f"amqp://{at}", "timeout": TIMEOUT}},
        )


def deploy(world: World, url: str, diary: Path, pool: str, configuration: dict[str, Any]) -> None:
    environment: dict[str, str] = {"BROKER": url, "DIARY": str(diary), "PYTHONPATH": str(TESTS)}
    environment |= {"CONFIGURATION": json.dumps(configuration)}
    concurrency = "1" if pool == "prefork" else "2"
    command = [sys.executable, "-m", "celery", "-A", "support.celery_diary", "worker", "-P", pool, "-c", concurrency]
    command += ["-n", "worker@$(POD_NAME)", "-Q", "mail", "--without-gossip", "--without-mingle"]
    env: list[dict[str, Any]] = [{"name": name, "value": value} for name, value in environment.items()]
    env.append({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    pod = {
        "terminationGracePeriodSeconds": 400 if LONG else 60,
        "containers": [{"name": "app", "image": "python", "command": command, "env": env}],
    }
    world.workload("Deployment", "mail", MOST, template={"metadata": {"labels": {"app": "mail"}}, "spec": pod})
    metric = {"name": "celery_tasks", "selector": {"matchLabels": {"queue": "mail"}}}
    metrics = [{"type": "External", "external": {"metric": metric, "target": {"type": "Value", "value": "10k"}}}]
    made = world.hpa("mail", metrics=metrics, minReplicas=MOST)
    world.cluster.apply({**made, "metadata": {**made["metadata"], "annotations": SPARING}})


async def compare(workers: CeleryWorkers, diary: Diary) -> list[tuple[str, int, int]]:
    """Returns of each pod in which nothing moved meanwhile: tasks in work by its worker, and by the diary."""
    begun = time.time()
    found = await or_error(workers.read, 0.0)
    reports = () if isinstance(found, AdapterError) else found.reports
    said = {report.name.partition("@")[2]: report for report in reports}
    ended = time.time()
    await asyncio.sleep(0.2)
    entries = diary.entries()
    moved = {each["pod"] for each in entries if begun - 0.3 <= each["at"] <= ended + 0.1}
    alive = {each["pod"] for each in entries if each["what"] == "ready"}
    alive -= {each["pod"] for each in entries if each["what"] == "shutdown"}
    number = Counter[str]()
    for each in (each for each in entries if each["at"] < begun):
        number[each["pod"]] += {"begin": 1, "end": -1}.get(each["what"], 0)
    return [(pod, len(said[pod].active), number[pod]) for pod in sorted(alive - moved) if pod in said]


def append(path: Path, line: str) -> None:
    with path.open("a") as file:
        file.write(f"{line}\n")


@pytest.mark.parametrize("prefetch", [1, 4])
@pytest.mark.parametrize("acks", ["late", "early"])
@pytest.mark.parametrize("pool", ["prefork", "threads"])
@pytest.mark.parametrize("kind", ["redis", "rabbitmq"])
async def test_no_busy_worker_goes_while_one_is_idle(
    kind: str, pool: str, acks: str, prefetch: int, tmp_path: Path
) -> None:
    diary = Diary(tmp_path / "diary")
    configuration = {"task_acks_late": acks == "late", "worker_prefetch_multiplier": prefetch, "broker_heartbeat": 0}
    compared: list[tuple[str, int, int]] = []
    held, why = 0, list[str]()
    async with brokers(kind, tmp_path) as (url, options), worlds(Cluster(sampling_seconds=60)) as world:
        source = {**options, "queues": ["mail"]}
        deploy(world, url, diary.file, pool, configuration)
        source_settings = settings.SourceSettings(name="celery", adapter="celery", settings=source)
        await world.hpad(sources=(source_settings,), sync_period=timedelta(seconds=PERIOD))
        sender = Sender(url, seed=len(kind) * 1000 + len(pool) * 100 + len(acks) * 10 + prefetch)
        async with testing.context("celery") as context:
            workers = CeleryWorkers(msgspec.convert(source, Settings), context)
            sending = asyncio.create_task(sender.run())
            for _ in range(ROUNDS):
                await world.patch_hpa("mail", {"minReplicas": MOST})
                await world.until(lambda: diary.count("ready") - diary.count("shutdown") == MOST)
                for count in range(MOST - 1, FEWEST - 1, -1):
                    for _ in range(COMPARISONS):
                        compared += await compare(workers, diary)
                        await asyncio.sleep(PAUSE)
                    await world.patch_hpa("mail", {"minReplicas": count})
                    gone = diary.count("shutdown")
                    with contextlib.suppress(TimeoutError):
                        await world.until(lambda gone=gone: diary.count("shutdown") > gone, HELD)
                        continue
                    held += 1
                    why.append(" | ".join(world.condition("mail", kind)[2] for kind in CONDITIONS))
            sending.cancel()
            removals = list(diary.removals())
            with contextlib.suppress(TimeoutError):
                await world.until(lambda: diary.count("end") >= sender.sent, LOST)
            await asyncio.sleep(1)
            await workers.aclose()
    wrong = [round(age, 3) for age, busy, idle in removals if busy and idle]
    begun = Counter(each["task"] for each in diary.entries() if each["what"] == "begin")
    ended = Counter(each["task"] for each in diary.entries() if each["what"] == "end")
    report = {
        "broker": kind,
        "pool": pool,
        "acks": acks,
        "prefetch": prefetch,
        "scale_downs": len(removals),
        "held": held,
        "why": why[:3],
        "busy_though_idle": len([age for age in wrong if age >= RACE]),
        "raced": [age for age in wrong if age < RACE],
        "all_busy": sum(busy and not idle for _, busy, idle in removals),
        "tasks": sender.sent,
        "lost": sender.sent - len(ended),
        "unfinished": list(diary.unfinished()),
        "twice": sum(number > 1 for number in begun.values()),
        "compared": len(compared),
        "differs": [each for each in compared if each[1] != each[2]],
    }
    if path := os.environ.get("HPAD_TEST_CELERY_REPORT"):
        await asyncio.to_thread(append, Path(path), json.dumps(report))
    assert (report["busy_though_idle"], report["lost"], report["twice"], report["differs"]) == (0, 0, 0, []), report

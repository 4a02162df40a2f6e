"""Idle workers go first: real consumers of a real RabbitMQ, as processes that a ReplicaSet removes one by one."""

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e.conftest import World, worlds

from hpad import settings, testing
from hpad.adapter import Member, PodSample
from hpad.lab.cluster import Cluster
from hpad.lab.demo.workloads import amqp
from hpad.lab.servers import rabbitmq
from hpad_adapters import rabbitmq as adapters

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.rabbitmq,
    pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT),
]
CONSUMERS, BUSY, ROUNDS = 10, 3, 3
WORKER = Path(__file__).parents[1] / "support" / "holding_worker.py"
QUICK = (
    "collect_statistics_interval = 500",
    *(f"management.sample_retention_policies.{kind}.minute = 1" for kind in ("global", "basic", "detailed")),
)
"""Statistics each second, so that the test need not wait for five."""
SPARING = {"hpad.io/scale-down-order": "idle-first", "hpad.io/keep-busy": "true"}
Json = dict[str, Any]


class Workers:
    """Ten consumers of a queue as a Deployment with its HPA, and the jobs that they hold."""

    def __init__(self, world: World, server: rabbitmq.RabbitMQServer, folder: Path) -> None:
        admin = server.admin
        self.options = {"url": server.management_url, "username": admin.name, "password": admin.password}
        self.url = f"amqp://{admin.name}:{admin.password}@127.0.0.1:{server.amqp_port}/"
        self._world = world
        self._folder = folder

    def start(self) -> None:
        environment = [
            {"name": "AMQP_URL", "value": self.url},
            {"name": "QUEUE", "value": "jobs"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]
        container = {"name": "app", "image": "python", "command": [sys.executable, str(WORKER)], "env": environment}
        pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        template = {"metadata": {"labels": {"app": "worker"}}, "spec": pod}
        self._world.workload("Deployment", "worker", CONSUMERS, template=template)
        metric = {"name": "queue_messages", "selector": {"matchLabels": {"queue": "jobs"}}}
        goal = {"type": "AverageValue", "averageValue": "1"}
        metrics = [{"type": "External", "external": {"metric": metric, "target": goal}}]
        made = self._world.hpa("worker", metrics=metrics, minReplicas=CONSUMERS)
        self._world.cluster.apply({**made, "metadata": {**made["metadata"], "annotations": SPARING}})

    def pods(self) -> list[Json]:
        """The pods that are not being deleted."""
        return [pod for pod in self._world.pods("worker") if "deletionTimestamp" not in pod["metadata"]]

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods()}

    async def scaled(self, count: int) -> None:
        """Sets the minimum, which the HPA follows at once, and waits for the pods."""
        await self._world.patch_hpa("worker", {"minReplicas": count})
        await self._world.until(lambda: len(self.pods()) == count == self._world.replicas("deployments", "worker"))

    async def busy(self, jobs: str, before: str) -> set[str]:
        """Publishes three jobs once all pods consume, and ends those of `before` then, so that other pods take them.

        Returns the pods that hold them, when the broker says so, too.
        """
        await self._until_all_consume()
        await asyncio.to_thread(self._publish, [f"{self._folder}/{jobs}".encode()] * BUSY)
        await self._world.until(lambda: len(self._holders(jobs)) == BUSY)
        (self._folder / before).touch()
        holders, members = self._holders(jobs), tuple(Member(name) for name in sorted(self.names()))
        query = testing.by_pod(testing.external("queue_messages", "queue=jobs"), members)
        async with testing.context("broker") as context, asyncio.timeout(self._world.patience):
            adapter = adapters.RabbitMQ(adapters.Settings(**self.options), context)
            expected = {name: 1000 * (name in holders) for name in self.names()}
            while True:
                [found] = await adapter.answer([query])
                if not isinstance(found, PodSample):  # new consumers are listed some seconds later than counts
                    assert "unless the consumers are a few seconds old" in found.message
                elif {name: value.value for name, value in found.values.items()} == expected:
                    return holders
                await asyncio.sleep(0.2)

    def _holders(self, jobs: str) -> set[str]:
        return {path.name.removeprefix(f"{jobs}.") for path in self._folder.glob(f"{jobs}.*")}

    async def _until_all_consume(self) -> None:
        async with asyncio.timeout(self._world.patience):
            while await asyncio.to_thread(self._publish, []) != CONSUMERS:  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.1)

    def _publish(self, jobs: list[bytes]) -> int:
        """Publishes jobs; returns the number of consumers, which the broker counts after it has taken them."""
        broker = amqp.Connection(self.url)
        try:
            broker.publish("jobs", jobs)
            return broker.count("jobs").consumers
        finally:
            broker.close()


async def test_in_many_scale_downs_no_busy_worker_goes_while_one_is_idle(tmp_path: Path) -> None:
    """Ten consumers, of which three are in long jobs; seven times one goes, and in the next round new pods work.

    Without costs the new ones would go, since a ReplicaSet removes the youngest pods first.
    """
    async with (
        rabbitmq.RabbitMQServer(queues=(rabbitmq.Queue("jobs"),), configuration=QUICK) as server,
        worlds(Cluster(sampling_seconds=60)) as world,
    ):
        workers, before = Workers(world, server, tmp_path), set[str]()
        workers.start()
        broker = settings.SourceSettings(name="broker", adapter="rabbitmq", settings=workers.options)
        await world.hpad(sources=(broker,), sync_period=timedelta(seconds=5))
        for number in range(ROUNDS):
            await workers.scaled(CONSUMERS)
            busy = await workers.busy(f"job-{number}", f"job-{number - 1}")
            assert not busy & before
            for count in range(CONSUMERS - 1, BUSY - 1, -1):
                await workers.scaled(count)
                assert busy <= workers.names(), f"round {number}, from {count + 1} to {count}"
            before = busy
        await world.until(lambda: all("annotations" not in pod["metadata"] for pod in workers.pods()))
    assert ROUNDS * (CONSUMERS - BUSY) > 20

"""Workers scaled by the depth of a queue of a real RabbitMQ (scenarios 5 and 6), and HPAs whose broker fails."""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
import yarl
from aiohttp import web
from support import brokers

from hpad import settings
from hpad.lab.servers import ports, rabbitmq

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT),
]


class Broker:
    """A real broker with one queue per test."""

    def __init__(self, server: rabbitmq.RabbitMQServer) -> None:
        self.server = server

    async def __call__(self, method: str, path: str, *bodies: object) -> None:
        """Sends a request once for each body."""
        admin = self.server.admin
        headers = {"Authorization": aiohttp.encode_basic_auth(admin.name, admin.password)}
        url = yarl.URL(f"{self.server.management_url}/api/{path}", encoded=True)
        async with aiohttp.ClientSession(headers=headers) as http:
            for body in bodies:
                async with http.request(method, url, json=body) as response:
                    assert response.status < 300, await response.text()

    async def queue(self, name: str, messages: int) -> None:
        """Creates a queue with a number of messages."""
        await self("PUT", f"queues/%2F/{name}", {"durable": False})
        message = {"properties": {}, "routing_key": name, "payload": "work", "payload_encoding": "string"}
        await self("POST", "exchanges/%2F/amq.default/publish", *[message] * messages)

    async def drain(self, name: str) -> None:
        await self("DELETE", f"queues/%2F/{name}/contents", None)

    def source(self, **changes: Any) -> settings.SourceSettings:
        admin = self.server.admin
        options = {"url": self.server.management_url, "username": admin.name, "password": admin.password, **changes}
        return settings.SourceSettings(name="broker", adapter="rabbitmq", settings=options)


@pytest.fixture(scope="module")
def broker(shared_broker: brokers.Broker) -> Broker:
    return Broker(shared_broker.server)


def depth(queue: str, *, name: str = "queue_messages", **goal: object) -> list[dict[str, Any]]:
    metric = {"name": name, "selector": {"matchLabels": {"queue": queue}}}
    return [{"type": "External", "external": {"metric": metric, "target": goal}}]


@pytest.mark.parametrize(("goal", "workers"), [("Value", 16), ("AverageValue", 6)])
async def test_eighty_messages_over_a_target_of_fifteen(world: Any, broker: Broker, goal: str, workers: int) -> None:
    """Scenario 5: ceil(3 * 80 / 15) = 16 for a Value; an AverageValue shares the depth out: ceil(80 / 15) = 6."""
    queue = f"tasks-{goal}"
    await broker.queue(queue, 80)
    world.workload("Deployment", "worker", 3)
    field = goal[0].lower() + goal[1:]
    world.hpa("worker", metrics=depth(queue, type=goal, **{field: "15"}), minReplicas=3, maxReplicas=16)
    # A turn that takes far longer than a period is given up, and its event with it: a busy machine needs two seconds.
    await world.hpad(sources=(broker.source(),), sync_period=timedelta(seconds=2))
    await world.until(lambda: world.replicas("deployments", "worker") == workers)
    reason = f"external metric {'queue_messages'}(&LabelSelector{{MatchLabels:map[string]string{{queue: {queue},}}"
    rescaled = f"New size: {workers}; reason: {reason}"
    await world.until(lambda: any(rescaled in text for _, text in world.events("worker")))
    await broker.drain(queue)
    await world.until(lambda: world.replicas("deployments", "worker") == 3)


async def test_a_worker_for_every_thirty_ready_messages(world: Any, broker: Broker, tmp_path: Path) -> None:
    """Scenario 6, with the selector as a string, which manifests of hpad may contain."""
    await broker.queue("mails", 70)
    manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "worker"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "worker"},
            "maxReplicas": 10,
            "metrics": depth("-", name="queue_messages_ready", type="AverageValue", averageValue=30),
        },
    }
    manifest["spec"]["metrics"][0]["external"]["metric"]["selector"] = "queue=mails"  # type: ignore[index]
    (tmp_path / "worker.yaml").write_text(yaml.safe_dump(manifest))
    world.workload("Deployment", "worker", 1)
    await world.hpad(sources=(broker.source(),), manifests=tmp_path)
    await world.until(lambda: world.replicas("deployments", "worker") == 3)


@contextlib.asynccontextmanager
async def fake_broker(status: int, body: str) -> AsyncIterator[str]:
    """Runs a server that gives every request the same answer; yields its URL."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def trouble(kind: str, broker: Broker) -> AsyncIterator[tuple[dict[str, Any], str]]:
    """Yields settings with which the source fails in one way, and a part of the HPA's message then."""
    async with contextlib.AsyncExitStack() as stack:
        match kind:
            case "unreachable":
                yield {"url": f"http://127.0.0.1:{ports.free(1)[0]}"}, "refused the connection"
            case "no such queue":
                yield {}, 'queue "nobody-declared-me" does not exist in vhost "/"'
            case "401":
                yield {"password": "s3cr3t"}, f'refused user "{broker.server.admin.name}"'
            case "500":
                yield {"url": await stack.enter_async_context(fake_broker(500, "{}"))}, "answered 500"
            case "garbage":
                yield (
                    {"url": await stack.enter_async_context(fake_broker(200, "\x00{not json"))},
                    "something other than",
                )
            case "nothing":
                yield {"url": await stack.enter_async_context(fake_broker(200, ""))}, "gave an empty answer"


@pytest.mark.parametrize("kind", ["unreachable", "no such queue", "401", "500", "garbage", "nothing"])
async def test_a_failing_broker_keeps_replicas_and_affects_no_other_hpa(world: Any, broker: Broker, kind: str) -> None:
    world.workload("Deployment", "worker", 4)
    world.hpa("worker", metrics=depth("nobody-declared-me", type="AverageValue", averageValue="15"))
    world.workload("Deployment", "web", 1)
    world.load("web", lambda pods: 150 // max(pods, 1))
    world.hpa("web")
    async with trouble(kind, broker) as (changes, complaint):
        await world.hpad(sources=(broker.source(**changes),))
        # with this period an answer must arrive within 0.2 s, so the first message may be that of a timeout
        await world.until(lambda: complaint in world.condition("worker", "ScalingActive")[2])
        status, reason, message = world.condition("worker", "ScalingActive")
        assert (status, reason) == ("False", "FailedGetExternalMetric")
        await world.until(lambda: "FailedGetExternalMetric" in dict(world.events("worker")))
        await world.until(lambda: world.replicas("deployments", "web") == 3)
        await world.periods(2)
        assert world.replicas("deployments", "worker") == 4
        assert "s3cr3t" not in message

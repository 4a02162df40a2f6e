"""A real spike: RabbitMQ, consumers as processes on the embedded cluster, and a goal in seconds.

The backlog is gone when the broker holds no message any more: none is ready, and none unacknowledged, so each task is
done. What it costs is the time of real worker processes, from their start to their end.

The ideal is measured in the same way. It knows the spike when it comes, needs no time to start workers, and keeps the
fewest that do all tasks within the goal. A worker does whole tasks, so it does `goal // task` of them:

    ideal = ceil(messages / (goal // task)) * goal + 1 * (rest of the time)

in replica-seconds, until one worker is left.
"""

import base64
import math
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from blockbuster import BlockBuster
from support import brokers

from hpad import settings
from hpad.lab.demo import documents, stage
from hpad.lab.demo.broker import Broker
from hpad.lab.servers import rabbitmq

pytestmark = [
    pytest.mark.rabbitmq,
    pytest.mark.cluster,
    pytest.mark.skipif(not rabbitmq.RabbitMQServer.installed(), reason=rabbitmq.ABSENT),
]

GOAL, STARTUP = 40.0, 8.0
"""Seconds; the start of the consumers' processes takes one or two of them on an idle machine."""
MESSAGES, TASK = 80, 4.0
QUEUE, NAME = "spike", "worker"
PATIENCE = 180.0


def manifests(url: str) -> list[dict[str, Any]]:
    """The Deployment of the demo's consumers, and an HPA with a goal."""
    environment = {"AMQP_URL": url, "QUEUE": QUEUE, "TASK_SECONDS": str(TASK)}
    deployment, hpa = documents.load(NAME, environment)
    deployment["spec"]["replicas"] = 1
    labels = {"queue": QUEUE, "goal": f"{GOAL:g}s", "startup": f"{STARTUP:g}s", "service_time": f"{TASK:g}s"}
    metric = {"name": "queue_workers_to_clear", "selector": {"matchLabels": labels}}
    target = {"type": "AverageValue", "averageValue": "1"}
    hpa["spec"] |= {
        "minReplicas": 1,
        "maxReplicas": 40,
        "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
        "behavior": {
            "scaleUp": {"policies": [{"type": "Pods", "value": 40, "periodSeconds": 15}]},
            "scaleDown": {"stabilizationWindowSeconds": 0},
        },
    }
    return [deployment, hpa]


async def test_a_real_spike_is_cleared_in_time_and_little_is_wasted(
    shared_broker: brokers.Broker, tmp_path: Path, no_blocking_calls: BlockBuster
) -> None:
    no_blocking_calls.deactivate()  # processes and the blocking client of the demo
    admin = shared_broker.server.admin
    options = {"url": shared_broker.server.management_url, "username": admin.name, "password": admin.password}
    source = settings.SourceSettings(name="rabbitmq", adapter="rabbitmq", settings=options)
    url = shared_broker.admin_url
    async with (
        stage.opened(tmp_path, [source]) as on,
        Broker(url, QUEUE, on.clock) as broker,
        _api(shared_broker.server) as api,
    ):
        await on.apply(manifests(url))
        await _until(on, lambda: broker.consumers == 1 and _wanted(on) == 1)
        await broker.publish(MESSAGES)
        began = last = on.clock.monotonic()
        spent, peak, cleared = 0.0, 1, None
        while cleared is None or len(on.processes(NAME)) > 1:
            await on.clock.sleep(0.2)
            left = await _messages(api) if cleared is None else 0
            now, running = on.clock.monotonic(), len(on.processes(NAME))
            spent += (now - last) * running
            last, peak = now, max(peak, running)
            assert broker.check()
            assert now - began < PATIENCE
            if peak > 1 and not left:
                cleared = cleared or now - began
        took = last - began
        await on.delete(NAME)
    ideal = math.ceil(MESSAGES / (GOAL // TASK)) * GOAL + max(0.0, took - GOAL)
    print(f"done after {cleared:.1f} s, at most {peak} workers, {spent:.0f} of {ideal:.0f} replica-seconds")
    assert cleared <= 1.5 * GOAL
    assert spent <= 1.6 * ideal


def _api(server: rabbitmq.RabbitMQServer) -> aiohttp.ClientSession:
    credentials = base64.b64encode(f"{server.admin.name}:{server.admin.password}".encode()).decode()
    return aiohttp.ClientSession(server.management_url, headers={"Authorization": f"Basic {credentials}"})


async def _messages(api: aiohttp.ClientSession) -> int:
    """Returns the ready and the unacknowledged messages, as of now."""
    async with api.get("/api/queues", params={"disable_stats": "true", "enable_queue_totals": "true"}) as answer:
        [found] = [each for each in await answer.json() if each["name"] == QUEUE]
    count: int = found["messages"]
    return count


def _wanted(on: stage.Stage) -> int:
    """Returns the count that hpad wants."""
    hpa = on.hpa(NAME)
    return hpa.status.desired_replicas if hpa is not None else 0


async def _until(on: stage.Stage, condition: Any) -> None:
    deadline = on.clock.monotonic() + PATIENCE
    while not condition():
        assert on.clock.monotonic() < deadline
        await on.clock.sleep(0.1)

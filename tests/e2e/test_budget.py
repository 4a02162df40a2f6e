"""What hpad costs an API server: 200 HPAs with 1,000 pods, each of them reconciled each period."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from e2e.conftest import World
from prometheus_client.parser import text_string_to_metric_families

from hpad.lab.cluster import Cluster

HPAS, PODS_EACH, NAMESPACES = 200, 5, 4
PERIOD = timedelta(seconds=3)
PERIODS = 2
RECONCILIATIONS = "horizontal_pod_autoscaler_controller_reconciliations_total"
REQUESTS = "rest_client_requests_total"


def fill(cluster: Cluster, name: str, namespace: str) -> None:
    """A workload of five pods that each ask for 100m of CPU, and its HPA, with a goal of half of that."""
    head = {"metadata": {"name": name, "namespace": namespace}}
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": PODS_EACH, "selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec})
    goal = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    scaling = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "maxReplicas": 10,
        "metrics": [{"type": "Resource", "resource": goal}],
    }
    cluster.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": scaling})


@pytest.fixture
async def crowd() -> AsyncIterator[World]:
    """A cluster full of workloads that are at their goals."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(auto_ready=True))
        world = World(cluster, stack)
        for number in range(HPAS):
            fill(cluster, f"w{number}", f"ns{number % NAMESPACES}")
            await asyncio.sleep(0)
        await world.until(lambda: len(cluster.list("pods")) == HPAS * PODS_EACH, 30)
        for pod in cluster.list("pods"):
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            cluster.usage.set(name, {"app": {"cpu": "50m"}})
        yield world


async def total(world: World, series: str) -> float:
    """A counter, summed over its labels."""
    text = (await world.daemon.telemetry.exposition()).decode()
    families = text_string_to_metric_families(text)
    return sum(sample.value for family in families for sample in family.samples if sample.name == series)


def decided(world: World) -> dict[Any, datetime]:
    """When each HPA was last decided on."""
    store = world.daemon.store
    lasts = ((key, store.get(key).last) for key in store.keys())  # noqa: SIM118  # no mapping
    return {key: last.at for key, last in lasts if last is not None}


async def test_a_reconcile_costs_at_most_about_one_request(
    crowd: World, record_property: Callable[[str, object], None]
) -> None:
    """And in the steady state less: no scale is asked for, no status written, metrics come once for a namespace."""
    await crowd.hpad(sync_period=PERIOD, listen=None)
    await crowd.until(lambda: len(decided(crowd)) == HPAS, 30)
    await asyncio.sleep(PERIOD.total_seconds())  # the first statuses are written
    assert await total(crowd, REQUESTS) <= 1.1 * await total(crowd, RECONCILIATIONS) + 20  # lists and watches to begin
    log = crowd.cluster.log
    log.clear()
    before, asked = await total(crowd, RECONCILIATIONS), await total(crowd, REQUESTS)
    began, seen = asyncio.get_running_loop().time(), [decided(crowd)]
    for _ in range(PERIODS):
        await asyncio.sleep(1.2 * PERIOD.total_seconds())  # the machine may be busy
        seen.append(decided(crowd))
    reconciles = await total(crowd, RECONCILIATIONS) - before
    due = HPAS * (asyncio.get_running_loop().time() - began) / PERIOD.total_seconds()
    requests = sum(log.requests.values())
    record_property("budget", (HPAS, reconciles, requests, requests / reconciles))
    print(f"{reconciles:.0f} of {due:.0f} reconciles, {requests} requests: {Counter(log.requests)}")
    for earlier, later in itertools.pairwise(seen):
        assert all(later[key] > earlier[key] for key in earlier)
    assert abs(reconciles - due) <= HPAS / 8
    assert requests <= 1.1 * reconciles
    assert await total(crowd, REQUESTS) - asked <= 1.1 * reconciles
    assert log.requests.keys() == {("list", "pods", "")}  # metrics; what hpad watches it never asks for
    assert requests <= NAMESPACES * (3 * due / HPAS + 2)  # an answer is shared for a third of a period
    assert log.writes == []

"""The API requests of hpad for 100 HPAs with 500 pods, all reconciled once a period."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import prometheus_client
import pytest
from e2e.conftest import World
from prometheus_client.parser import text_string_to_metric_families

from hpad.lab.cluster import Cluster

HPAS, PODS_EACH, NAMESPACES = 100, 5, 4
PERIOD = timedelta(seconds=6)
"""Long enough for late answers on a busy machine, since a timeout causes an event and a status write."""
PERIODS = 2
RECONCILIATIONS = "horizontal_pod_autoscaler_controller_reconciliations_total"
REQUESTS = "rest_client_requests_total"
COST = "hpad_requests_per_reconcile"


def fill(cluster: Cluster, name: str, namespace: str) -> None:
    """Applies a workload of five pods that request 100m of CPU each, and its HPA with a target of 50 %."""
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
    """A cluster with HPAS workloads that are at their metric targets."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(auto_ready=True))
        world = World(cluster, stack)
        for number in range(HPAS):
            fill(cluster, f"w{number}", f"ns{number % NAMESPACES}")
            await asyncio.sleep(0)
        await world.until(lambda: len(cluster.list("pods")) == HPAS * PODS_EACH)
        for pod in cluster.list("pods"):
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            cluster.usage.set(name, {"app": {"cpu": "50m"}})
        yield world


def totals(world: World) -> Counter[str]:
    """Returns all series summed over their labels, at one moment.

    `exposition` renders in a thread while hpad continues to count, so the registry is rendered here directly.
    """
    text = prometheus_client.generate_latest(world.daemon.telemetry.registry).decode()
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += sample.value
    return found


def decided(world: World) -> dict[Any, datetime]:
    """Maps each HPA to the time of its last decision."""
    store, decisions = world.daemon.components.store, world.daemon.components.decisions
    lasts = ((key, decisions.last(key)) for key in store.keys())  # noqa: SIM118  # the store is not a mapping
    return {key: last.view.now for key, last in lasts if last is not None}


async def turns(world: World, count: int) -> None:
    """Waits until each HPA has been decided on `count` times from now on."""
    for _ in range(count):
        before = decided(world)
        await world.until(lambda before=before: _all_later(decided(world), before))


def _all_later(now: dict[Any, datetime], before: dict[Any, datetime]) -> bool:
    return len(now) == HPAS and all(at > before.get(key, datetime.min.replace(tzinfo=UTC)) for key, at in now.items())


async def test_a_reconcile_costs_at_most_about_one_request(
    crowd: World, record_property: Callable[[str, object], None]
) -> None:
    """In the steady state it costs less: scales are not read, statuses not written, metrics listed per namespace."""
    await crowd.hpad(sync_period=PERIOD, listen=None)
    await turns(crowd, 2)  # the first statuses are written
    first = totals(crowd)
    assert first[REQUESTS] <= 1.1 * first[RECONCILIATIONS] + 20  # lists and watches to begin
    log = crowd.cluster.log
    log.clear()
    before = totals(crowd)
    started = asyncio.get_running_loop().time()
    await turns(crowd, PERIODS)
    after = totals(crowd)
    reconciles = after[RECONCILIATIONS] - before[RECONCILIATIONS]
    due = HPAS * (asyncio.get_running_loop().time() - started) / PERIOD.total_seconds()
    requests = sum(log.requests.values())
    spent = after[f"{COST}_sum"] - before[f"{COST}_sum"]
    summary = (
        f"{requests / reconciles:.2f} requests per reconcile: {HPAS} HPAs, {HPAS * PODS_EACH} pods, {requests} requests"
    )
    record_property("budget", f"{summary} for {reconciles:.0f} of {due:.0f} reconciles that were due")
    assert reconciles >= PERIODS * HPAS
    assert reconciles <= due + 2 * HPAS  # each HPA may have had a late turn and an early one
    assert requests <= 1.1 * reconciles
    assert after[REQUESTS] - before[REQUESTS] <= 1.1 * reconciles
    assert after[f"{COST}_count"] - before[f"{COST}_count"] == reconciles
    assert spent <= 1.1 * reconciles
    assert abs(spent - requests) <= 2 * NAMESPACES  # requests whose answers were pending
    assert not [verb for verb, _, _ in log.requests if verb == "get"]
    assert log.requests.keys() == {("list", "pods", "")}  # metrics only: watched kinds are never requested
    assert requests <= 0.5 * reconciles  # metrics are cached for a third of a period: about 0.1 on an idle machine
    assert log.writes == []

"""Autoscalers that bring PromQL along, on a real Prometheus whose source the operator opens and closes."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from e2e.test_autoscalers import QUICK, condition
from support.autoscalers import autoscaler
from support.prometheus_lab import steady

from hpad import settings
from hpad.lab.autoscaler import definition
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT),
]


@pytest.fixture
async def prometheus() -> AsyncIterator[PrometheusServer]:
    async with PrometheusServer(history=steady(orders=80, mails=30)) as server:
        yield server


def external(name: str, goal: int) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": str(goal)}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


def own(queue: str, source: str = "prom") -> dict[str, Any]:
    return {"name": "depth", "source": source, "parameters": {"query": f'sum(queue_depth{{queue="{queue}"}})'}}


async def test_an_autoscaler_scales_by_its_own_query_while_the_source_is_open(
    world: Any, prometheus: PrometheusServer
) -> None:
    of_operator = {"depth": {"query": 'sum(queue_depth{queue="mails"})'}}
    closed = settings.SourceSettings(
        name="prom", adapter="prometheus", settings={"url": prometheus.url, "metrics": of_operator}
    )
    opened = msgspec.structs.replace(closed, queries=settings.OpenedQueries(namespaces=("def*",)))
    world.cluster.apply(definition())
    for name, queries in (("own", [own("orders")]), ("wrong", [own("orders", "promm")]), ("plain", [])):
        world.workload("Deployment", name, 1)
        world.cluster.apply(autoscaler(name, name, metrics=[external("depth", 20)], queries=queries))
    daemon = await world.hpad(reflector_options=QUICK, sources=(closed,))

    await world.until(lambda: world.replicas("deployments", "plain") == 2)  # the metric of the configuration
    await world.until(lambda: "is not open" in condition(world, "own", "ScalingActive")["message"])
    active = condition(world, "own", "ScalingActive")
    assert (active["status"], active["reason"]) == ("False", "FailedGetExternalMetric")
    assert active["message"].endswith(
        'spec.queries[depth]: source "prom" is not open to queries of namespace "default": its configuration would need'
        " queries: {namespaces: [default]}"
    )
    assert world.replicas("deployments", "own") == 1

    assert await daemon.reload(msgspec.structs.replace(daemon.settings, sources=(opened,))) == []
    await world.until(lambda: world.replicas("deployments", "own") == 4)
    unknown = 'spec.queries[depth]: there is no source "promm" (did you mean "prom"?)'
    await world.until(lambda: unknown in condition(world, "wrong", "ScalingActive")["message"])

    world.cluster.apply(autoscaler("wrong", "wrong", metrics=[external("depth", 20)], queries=[own("orders")]))
    await world.until(lambda: world.replicas("deployments", "wrong") == 4)
    assert world.replicas("deployments", "plain") == 2

"""HPAs on a real Prometheus, through a prometheus-adapter configuration: replicas follow its series."""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from hpad import settings
from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT),
]

RULES = {
    "rules": [
        {
            "seriesQuery": 'http_requests_total{namespace!="",pod!=""}',
            "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
            "name": {"matches": "^(.*)_total", "as": "${1}_per_second"},
            "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
        }
    ],
    "externalRules": [
        {
            "seriesQuery": '{__name__="queue_depth",queue!=""}',
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
        }
    ],
}
HITS = {"hits": {"query": 'ingress_hits{ingress="<<.Object>>"}'}}


def history() -> str:
    """Returns samples from five minutes ago until in ten minutes: 30 requests per second for web-0, none for others."""
    now = int(time.time())
    ages = range(-300, 601, 15)
    lines = ["# TYPE http_requests counter"]
    for pod in range(10):
        labels = f'namespace="default",pod="web-{pod}"'
        rate = 30 if pod == 0 else 0
        lines += [f"http_requests_total{{{labels}}} {(age + 300) * rate} {now + age}" for age in ages]
    lines.append("# TYPE queue_depth gauge")
    lines += [f'queue_depth{{namespace="default",queue="orders"}} 80 {now + age}' for age in ages]
    lines.append("# TYPE ingress_hits gauge")
    lines += [f'ingress_hits{{ingress="main"}} 200 {now + age}' for age in ages]
    return "\n".join([*lines, "# EOF", ""])


@pytest.fixture
async def prometheus() -> AsyncIterator[PrometheusServer]:
    async with PrometheusServer(history=history()) as server:
        yield server


def pods_metric(name: str, goal: int) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": str(goal)}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def external(name: str, queue: str, goal: int) -> dict[str, Any]:
    metric = {"name": name, "selector": {"matchLabels": {"queue": queue}}}
    return {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": goal}},
    }


def of_ingress(name: str, goal: int) -> dict[str, Any]:
    described = {"kind": "Ingress", "name": "main", "apiVersion": "networking.k8s.io/v1"}
    target = {"type": "AverageValue", "averageValue": str(goal)}
    return {"type": "Object", "object": {"metric": {"name": name}, "describedObject": described, "target": target}}


async def test_replicas_follow_prometheus_and_stay_during_its_outage(world: Any, prometheus: PrometheusServer) -> None:
    source = {"url": prometheus.url, "rules": RULES, "metrics": HITS}
    world.workload("StatefulSet", "web", 1)
    world.hpa("web", "StatefulSet", metrics=[pods_metric("http_requests_per_second", 10)])
    world.workload("Deployment", "worker", 1)
    world.hpa("worker", metrics=[external("queue_depth", "orders", 15)])
    world.workload("Deployment", "front", 1)
    world.hpa("front", metrics=[of_ingress("hits", 50)])
    world.workload("Deployment", "cpu", 1)
    world.load("cpu", lambda pods: 150 // max(pods, 1))
    world.hpa("cpu")
    await world.hpad(sources=(settings.SourceSettings(name="prom", adapter="prometheus", settings=source),))
    await world.until(lambda: world.replicas("statefulsets", "web") == 3)
    await world.until(lambda: world.replicas("deployments", "worker") == 6)
    await world.until(lambda: world.replicas("deployments", "front") == 4)
    await world.until(lambda: world.replicas("deployments", "cpu") == 3)

    await prometheus.stop()
    for name, reason in (("web", "FailedGetPodsMetric"), ("worker", "FailedGetExternalMetric")):
        # the first error may be that of a request in progress: a reset, or a timeout
        await world.until(lambda name=name: "refused the connection" in world.condition(name, "ScalingActive")[2])
        assert world.condition(name, "ScalingActive")[:2] == ("False", reason)
    world.load("cpu", 0)
    await world.until(lambda: world.replicas("deployments", "cpu") == 1)
    assert world.replicas("statefulsets", "web") == 3
    assert world.replicas("deployments", "worker") == 6

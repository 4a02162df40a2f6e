"""Annotations about the CPU of pods, on a real API server with a metrics API: containers that do not count, readiness.

On the embedded cluster these are tests of `tests/e2e`.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kube.contract import side
from kube.contract.side import HPAS, NAMESPACE, PODS, Side
from kube.contract.test_contract import hpa
from support import apiserver, metrics_apis

from hpad import settings
from hpad.daemon import app
from hpad.kube.auth import kubeconfig

pytestmark = pytest.mark.real_kube_apiserver
NEVER_READY = {
    "plain": {},
    "delay": {"hpad.io/readiness-delay": "5s"},
    "period": {"hpad.io/readiness-delay": "5s", "hpad.io/initialization-period": "2h"},
}
"""The annotations of HPAs whose pods were ready for ten seconds, an hour ago, and use four times the target."""
READY = {"noisy": {}, "sidecar": {"hpad.io/ignore-containers": "proxy"}}
"""The annotations of HPAs whose pods use what is their target, and ten times that in the container `proxy`."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Side]:
    if (reason := apiserver.missing()) is not None:
        pytest.skip(reason)
    load = metrics_apis.Load()
    load.usage = {
        **{key: {"app": "200m"} for key in NEVER_READY},
        **{key: {"app": "50m", "proxy": "500m"} for key in READY},
    }
    async with side.started(tmp_path, load) as made:
        yield made


async def lose_readiness(cluster: Side, name: str) -> None:
    start = datetime.now(UTC) - timedelta(hours=1)
    since = f"{start + timedelta(seconds=10):%Y-%m-%dT%H:%M:%SZ}"
    conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": since}]
    status = {"startTime": f"{start:%Y-%m-%dT%H:%M:%SZ}", "conditions": conditions}
    for number in range(2):
        await cluster.ask("PATCH", f"{PODS}/{name}-{number}/status", {"status": status})


async def reasons(cluster: Side) -> dict[str, str]:
    found = {}
    for name, status in (await cluster.statuses()).items():
        conditions = {each["type"]: each["reason"] for each in status.get("conditions") or []}
        found[name] = conditions.get("ScalingActive", "")
    return found


async def test_each_decides_what_pods_and_containers_count(cluster: Side) -> None:
    for name, annotations in {**NEVER_READY, **READY}.items():
        await cluster.workload("Deployment", name, 2, "100m", f"app={name}")
        if name in NEVER_READY:
            await lose_readiness(cluster, name)
        made = hpa(name, annotations=annotations)
        made["spec"]["scaleTargetRef"]["name"] = name
        await cluster.ask("POST", HPAS, made)
    config = await asyncio.to_thread(kubeconfig.load_cluster_config, str(cluster.kubeconfig))
    options = settings.Settings(namespaces=(NAMESPACE,), sync_period=timedelta(seconds=1), listen=None)
    failed, valid = "FailedGetResourceMetric", "ValidMetricFound"
    expected = {"plain": failed, "delay": valid, "period": failed, "noisy": valid, "sidecar": valid}
    async with app.App(options, cluster_config=config), asyncio.timeout(120):
        while await reasons(cluster) != expected:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0.2)
    counts = await cluster.replicas()
    assert counts == {"plain": 2, "period": 2, "sidecar": 2, "delay": counts["delay"], "noisy": counts["noisy"]}
    assert counts["delay"] > 2
    assert counts["noisy"] > 2

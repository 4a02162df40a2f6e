"""A canary of Argo Rollouts, against both API servers: its scale, and which of its pods a metric is about."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kube.contract.conftest import Api, serve
from kube.contract.test_contract import HPAS, PODS, ref
from support import rollouts

from hpad import settings
from hpad.daemon import app
from hpad.engine.view import Gates, Tunables
from hpad.kube.auth.kubeconfig import load_cluster_config

ROLLOUTS = "/apis/argoproj.io/v1alpha1/{ns}/rollouts"
TARGET = {"apiVersion": rollouts.API_VERSION, "kind": "Rollout", "name": "web"}
IN_DAEMON = Gates()
RUNNING = {
    "startTime": "2026-01-01T00:00:00Z",
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:01:00Z"}],
}


async def canary(api: Api, stable: int, canaries: int) -> None:
    """Creates a Rollout of ten replicas in a canary, whose pods are all ready."""
    await serve(api, rollouts.DEFINITION, ROLLOUTS)
    await api.ask("POST", ROLLOUTS, rollouts.rollout(10))
    await api.ask("PATCH", f"{ROLLOUTS}/web/status", rollouts.status(stable, canaries))
    for pod in rollouts.pods(stable, canaries):
        await api.ask("POST", PODS, {"apiVersion": "v1", "kind": "Pod", **pod})
        await api.ask("PATCH", f"{PODS}/{pod['metadata']['name']}/status", {"status": RUNNING})


async def scaled_to(
    api: Api, folder: Path, target: dict[str, str], annotations: dict[str, str], gates: Gates = IN_DAEMON
) -> int:
    """Returns the count after a rescale by a metric that reads 120."""
    external = {"metric": {"name": "latency"}, "target": {"type": "Value", **target}}
    spec = {"scaleTargetRef": TARGET, "maxReplicas": 100, "metrics": [{"type": "External", "external": external}]}
    head: dict[str, Any] = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    await api.ask("POST", HPAS, {**head, "metadata": {"name": "web", "annotations": annotations}, "spec": spec})
    numbers = folder / "numbers.yaml"
    numbers.write_text("latency: 120\n")
    config = await asyncio.to_thread(load_cluster_config, str(api.kubeconfig))
    options = settings.Settings(
        namespaces=(api.namespace,), sync_period=timedelta(seconds=1), listen=None, tunables=Tunables(gates=gates),
        sources=(settings.SourceSettings(name="numbers", adapter="static", settings={"file": str(numbers)}),),
    )  # fmt: skip
    async with app.App(options, cluster_config=config), asyncio.timeout(120):
        while (count := (await api.ask("GET", f"{ROLLOUTS}/web"))["spec"]["replicas"]) == 10:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return int(count)


async def test_the_scale_of_a_rollout_has_both_pods(api: Api, cluster: Any) -> None:
    await canary(api, stable=2, canaries=1)
    target = ref("Rollout", "web", rollouts.API_VERSION)
    scale = await cluster.read_scale(api.namespace, target)
    assert (scale.spec.replicas, scale.status.replicas, scale.status.selector) == (10, 3, "app=web")
    assert (await cluster.write_scale(api.namespace, target, scale.with_replicas(4))).spec.replicas == 4


@pytest.mark.parametrize(("stable", "canaries"), [(10, 1), (10, 5), (9, 1), (5, 5)])
async def test_a_canary_is_no_reason_for_more_replicas(api: Api, tmp_path: Path, stable: int, canaries: int) -> None:
    """A canary of 5 or 50 %, on top of the ten replicas or among them: a fifth too much needs a fifth more."""
    await canary(api, stable, canaries)
    assert await scaled_to(api, tmp_path, {"value": "100"}, {}) == 12


@pytest.mark.parametrize(("annotations", "count"), [({"hpad.io/pods": "latency: role=stable"}, 12), ({}, 18)])
async def test_the_annotation_chooses_the_pods_of_a_value(
    api: Api, tmp_path: Path, annotations: dict[str, str], count: int
) -> None:
    """Where the canaries on top count as in Kubernetes."""
    await canary(api, stable=10, canaries=5)
    gates = msgspec.structs.replace(IN_DAEMON, HPASurplusPodsIgnored=False)
    assert await scaled_to(api, tmp_path, {"value": "100"}, annotations, gates) == count

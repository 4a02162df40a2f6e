"""Idle pods first as the service account of config/overlays/replace: what the right to patch pods changes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from adapters.test_rabbitmq_consumers import broker_of, channels, consumer
from aiohttp import web
from e2e.conftest import World, worlds
from support import overlays
from support.http_stub import serving

from hpad import settings
from hpad.kube.auth import kubeconfig
from hpad.lab.cluster import Cluster, users

COST = "controller.kubernetes.io/pod-deletion-cost"
PODS = 5


@contextlib.asynccontextmanager
async def authorized(folder: Path, *components: str) -> AsyncIterator[tuple[World, set[str]]]:
    """A cluster where hpad runs as its service account, with these components, and an HPA of five pods, two busy.

    The busy ones are two that the ReplicaSet controller would remove first: their user has given them the least cost.
    """
    busy: set[str] = set()

    async def broker(request: web.BaseRequest) -> web.StreamResponse:
        consumers = [consumer(name, tag=name) for name in busy]
        return await broker_of(consumers, channels(**dict.fromkeys(busy, 1)), len(busy))(request)

    async with serving(broker) as url, worlds(Cluster(auto_ready=True, authorization=True)) as world:
        for each in overlays.rights("replace", *components):
            world.cluster.apply(each)
        world.workload("Deployment", "web", PODS)
        await world.until(lambda: len(world.pods("web")) == PODS)
        for pod in world.pods("web")[:2]:
            pod["metadata"]["annotations"] = {COST: "-100"}
            world.cluster.apply({key: pod[key] for key in ("apiVersion", "kind", "metadata", "spec") if key in pod})
            busy.add(pod["metadata"]["name"])
        metric = {"name": "queue_messages_unacknowledged", "selector": {"matchLabels": {"queue": "jobs"}}}
        goal = {"type": "AverageValue", "averageValue": "1"}
        made = world.hpa("web", metrics=[{"type": "External", "external": {"metric": metric, "target": goal}}])
        order = {"hpad.io/scale-down-order": "idle-first"}
        world.cluster.apply({**made, "metadata": {**made["metadata"], "annotations": order}})
        file_name = await world.cluster.kubeconfig(folder / "kubeconfig", users.service_account("hpad", "hpad"))
        config = await asyncio.to_thread(kubeconfig.load_cluster_config, str(file_name))
        source = settings.SourceSettings(name="broker", adapter="rabbitmq", settings={"url": url})
        # A part of the period is for the costs, also on a busy machine.
        await world.hpad(cluster_config=config, sources=(source,), sync_period=timedelta(seconds=5))
        yield world, busy


async def test_with_the_sample_idle_pods_go_and_costs_of_users_stay(tmp_path: Path) -> None:
    async with authorized(tmp_path, "idle-first") as (world, busy):
        await world.until(lambda: len(world.pods("web")) == 2)
        assert {pod["metadata"]["name"] for pod in world.pods("web")} == busy
        costs = [{COST: "-100"}] * 2
        await world.until(lambda: [pod["metadata"]["annotations"] for pod in world.pods("web")] == costs)
        await world.until(lambda: world.condition("web", "IdleFirst")[:2] == ("True", "BusynessKnown"))


async def test_without_it_pods_go_in_any_order_and_the_event_says_why(tmp_path: Path) -> None:
    async with authorized(tmp_path) as (world, _):
        await world.until(lambda: world.replicas("deployments", "web") == 2)
        await world.until(lambda: "FailedDeletionCost" in dict(world.events("web")))
        assert 'cannot patch resource "pods"' in dict(world.events("web"))["FailedDeletionCost"]

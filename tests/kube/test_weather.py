"""Caches after faults of the embedded API server."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from support import free_ports
from support.scripted_server import until

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.kube.cluster import Cluster, Watching
from hpad.kube.reflector import ReflectorOptions
from hpad.lab import cluster as lab

QUICK = ReflectorOptions(
    page_size=3, list_timeout=2, shortest_watch=30, longest_watch=30, grace=5, initial_backoff=0.02, max_backoff=0.2
)
LISTS = r"^/(api|apis)/[^?]*(\?limit|$|\?continue)"
WATCHES = r"watch=true"
STREAMS = r"sendInitialEvents=true"


def hpa(name, maximum=5):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": target, "maxReplicas": maximum},
    }


@pytest.fixture
async def embedded():
    async with lab.Cluster(controllers=False, kubelet=False, bookmark_seconds=0.1) as embedded:
        yield embedded


@pytest.fixture
async def follow(running):
    async with AsyncExitStack() as stack:

        async def start(url, reflector_options=QUICK):
            client = await stack.enter_async_context(Client(ClusterConfig(url), SystemClock(), timeout=1.0))
            cluster = Cluster(client, Watching(options=reflector_options))
            running(cluster.run())
            return cluster

        yield start


def names(cluster):
    return sorted(each.metadata.name for each in cluster.hpas.values())


@pytest.mark.parametrize(
    "fault",
    [{"status": 429, "retry_after": 0}, {"status": 500}, {"status": 504}, {"reset": True}, {"truncate": True},
     {"body": "<html>"}, {"body": '{"kind":"Status","code":500}'}, {"delay": 0.1}],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("path", [STREAMS, LISTS, WATCHES], ids=["streams", "lists", "watches"])
async def test_caches_sync_despite_faults(embedded, follow, path, fault):
    if path == LISTS:
        embedded.faults.add(path=STREAMS, times=None, status=422)
    for number in range(8):
        embedded.apply(hpa(f"h{number}"))
    rule = embedded.faults.add(method="GET", path=path, times=20, **fault)
    cluster = await follow(embedded.url)
    await asyncio.wait_for(cluster.ready(), 60)
    embedded.apply(hpa("late"))
    await until(lambda: len(cluster.hpas) == 9 and cluster.troubles == [])
    assert rule.hits > 0


async def test_no_change_is_lost_with_dropped_watches(embedded, follow):
    cluster = await follow(embedded.url)
    await asyncio.wait_for(cluster.ready(), 60)
    for number in range(10):
        embedded.apply(hpa(f"h{number}"))
        embedded.faults.drop_watches()
        await asyncio.sleep(0.02)
    await until(lambda: len(cluster.hpas) == 10)


async def test_caches_follow_a_server_that_lost_its_storage(follow):
    with free_ports.port() as port:
        async with lab.Cluster(controllers=False, kubelet=False, port=port) as first:
            for number in range(5):
                first.apply(hpa(f"old{number}"))
            first.apply(hpa("same"))
            cluster = await follow(first.url)
            await asyncio.wait_for(cluster.ready(), 60)
        await until(lambda: cluster.troubles)
        assert len(cluster.hpas) == 6  # the cache keeps its objects while no server answers
        async with lab.Cluster(controllers=False, kubelet=False, port=port) as second:
            second.apply(hpa("same", 9))
            await until(lambda: names(cluster) == ["same"] and cluster.troubles == [])
            assert cluster.hpas.get(Key("default", "same")).spec.max_replicas == 9


async def test_a_stalled_watch_increases_the_staleness_and_is_replaced(embedded, follow):
    reflector_options = ReflectorOptions(
        shortest_watch=1, longest_watch=1, grace=0.5, initial_backoff=0.02, max_backoff=0.2
    )
    cluster = await follow(embedded.url, reflector_options)
    await asyncio.wait_for(cluster.ready(), 60)
    await until(lambda: max(cluster.staleness().values()) < 0.4)
    embedded.faults.stall_watches()
    embedded.apply(hpa("h"))
    await until(lambda: cluster.staleness()["horizontalpodautoscalers.autoscaling"] > 0.6)
    assert names(cluster) == []
    embedded.faults.clear()
    await until(lambda: names(cluster) == ["h"])


async def test_caches_are_listed_again_after_the_version_has_expired(follow):
    async with lab.Cluster(controllers=False, kubelet=False, history_limit=5) as embedded:
        cluster = await follow(embedded.url)
        await asyncio.wait_for(cluster.ready(), 60)
        rule = embedded.faults.add(method="GET", path=WATCHES, times=None, status=503)
        embedded.faults.drop_watches()
        for number in range(20):
            embedded.apply(hpa(f"h{number}"))
        await until(lambda: rule.hits >= 6)
        embedded.faults.clear()
        await until(lambda: len(cluster.hpas) == 20)

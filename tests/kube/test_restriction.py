"""A cache that keeps some namespaces only: what it keeps, when a namespace is complete, and what it releases."""

import asyncio
import gc
import json
import random
import tracemalloc
from typing import Any

import pytest
from aiohttp import web
from support.kube_caches import page, synced
from support.scripted_server import QUICK, failure, hangs, line, says, streams, until

from hpad.api import selector
from hpad.api.deletion_cost import COST_SET, DELETION_COST
from hpad.api.hpa import CrossVersionObjectReference
from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.kube import cluster, codec, errors, scale, watch
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.cache import Cache, PodCache
from hpad.kube.client import Client
from hpad.kube.watch import WatchScope
from hpad.lab import cluster as lab

PODS = "/api/v1/pods"
OURS, THEIRS = "/api/v1/namespaces/ours/pods", "/api/v1/namespaces/theirs/pods"
WEB = selector.parse("app=web")


def pod(name: str, namespace: str = "ours", *, phase: str = "Running", version: int = 1, **annotations: str) -> Any:
    meta = {"name": name, "namespace": namespace, "resourceVersion": str(version), "labels": {"app": "web"}}
    return {"metadata": {**meta, "annotations": annotations}, "status": {"phase": phase}}


def stored(cache: PodCache) -> list[str]:
    return sorted(str(key) for key in cache.keys(""))


class Gate:
    """Answers a request with the pages of `answers`, each once it is opened."""

    def __init__(self, *answers: Any) -> None:
        self.asked = 0
        self._answers = list(answers)
        self._open = asyncio.Semaphore(0)

    def open(self) -> None:
        self._open.release()

    async def __call__(self, request: Any) -> Any:
        self.asked += 1
        await self._open.acquire()
        return await self._answers.pop(0)(request)


class Feed:
    """A watch to which a test adds lines."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def __call__(self, request: Any) -> Any:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        while written := await self.lines.get():
            await response.write(written)
        return response


@pytest.fixture
async def cache(client: Client) -> PodCache:
    made = PodCache(WatchScope(client, options=QUICK))
    made.restrict(codec.may_be_marked)
    return made


async def complete(cache: PodCache, namespace: str = "ours") -> None:
    await until(lambda: not cache.lacks(namespace))


async def test_nothing_is_kept_until_a_namespace_is_asked_for(script, cache, running):
    script.on("GET", PODS, page(pod("a"), pod("b", "theirs")))
    script.on("GET", PODS + "?watch", streams(line("ADDED", pod("c", version=11)), then="hang"))
    running(cache.run())
    await synced(cache)
    await until(lambda: script.count(PODS + "?watch"))
    assert stored(cache) == []
    assert cache.lacks("ours")
    assert not cache.covers("ours")


async def test_a_namespace_is_complete_once_its_own_list_has_been_read(script, cache, running):
    listed = Gate(page(pod("a"), version=12, token="more"), page(pod("b"), version=12))
    script.on("GET", PODS, page(pod("a"), pod("c", "theirs")))
    script.on("GET", PODS + "?watch", hangs)
    script.on("GET", OURS, listed)
    running(cache.run())
    await synced(cache)
    cache.keep({"ours"})
    await until(lambda: listed.asked == 1)
    assert cache.lacks("ours")
    listed.open()
    await until(lambda: listed.asked == 2)
    assert stored(cache) == ["ours/a"]
    assert cache.lacks("ours"), "one page is missing"
    assert not cache.covers("ours")
    listed.open()
    await complete(cache)
    assert stored(cache) == ["ours/a", "ours/b"]
    assert cache.covers("ours")
    assert not cache.covers("theirs")
    assert script.count(THEIRS) == 0


async def test_what_the_watch_reports_during_the_list_is_not_replaced_by_older_objects_of_the_list(
    script, cache, running
):
    """The list was read before a was changed, b deleted and d added; c is only in the list."""
    feed, listed = Feed(), Gate(page(pod("a", phase="Pending"), pod("b"), pod("c")))
    script.on("GET", PODS, page())
    script.on("GET", PODS + "?watch", feed)
    script.on("GET", OURS, listed)
    running(cache.run())
    await synced(cache)
    cache.keep({"ours"})
    await until(lambda: listed.asked)
    feed.lines.put_nowait(line("MODIFIED", pod("a", version=21)))
    feed.lines.put_nowait(line("DELETED", pod("b", version=22)))
    feed.lines.put_nowait(line("ADDED", pod("d", version=23)))
    await until(lambda: stored(cache) == ["ours/a", "ours/d"])
    listed.open()
    await complete(cache)
    assert {found.name: found.phase for found in cache.select("ours", WEB)} == {
        "a": "Running", "c": "Running", "d": "Running",
    }  # fmt: skip


async def test_a_list_of_everything_replaces_the_list_of_a_namespace_that_it_overtakes(script, cache, running):
    """The watch expires while the namespace is listed. What that list answers later is older, and not used."""
    feed, slow = Feed(), Gate(page(pod("a"), pod("ghost")))
    script.on("GET", PODS, page(), page(pod("a"), pod("b"), pod("c", "theirs"), version=30))
    script.on("GET", PODS + "?watch", feed, hangs)
    script.on("GET", OURS, slow)
    running(cache.run())
    await synced(cache)
    cache.keep({"ours"})
    await until(lambda: slow.asked)
    feed.lines.put_nowait(line("ERROR", failure(410, "Expired", "too old resource version")))
    await complete(cache)
    assert stored(cache) == ["ours/a", "ours/b"]
    slow.open()
    await asyncio.sleep(0.05)
    assert stored(cache) == ["ours/a", "ours/b"]


async def test_a_namespace_that_is_asked_for_during_a_list_of_everything_is_listed_after_it(script, cache, running):
    everything = Gate(page(pod("a"), token="more"), page(pod("b"), version=12))
    script.on("GET", PODS, everything)
    script.on("GET", PODS + "?watch", hangs)
    script.on("GET", OURS, page(pod("a"), pod("b"), version=13))
    running(cache.run())
    everything.open()
    await until(lambda: everything.asked == 2)
    cache.keep({"ours"})
    await asyncio.sleep(0.05)
    assert script.count(OURS) == 0, "its first page was read without the namespace"
    everything.open()
    await complete(cache)
    assert stored(cache) == ["ours/a", "ours/b"]
    assert script.count(OURS) == 1


async def test_a_list_that_fails_is_repeated_and_the_namespace_is_lacking_until_then(script, cache, running):
    refused = says(failure(500, "InternalError", "etcd is away"), 500)
    script.on("GET", PODS, page())
    script.on("GET", PODS + "?watch", hangs)
    listed = Gate(refused, page(pod("a")))
    script.on("GET", OURS, listed)
    running(cache.run())
    await synced(cache)
    cache.keep({"ours"})
    listed.open()
    await until(lambda: listed.asked == 2)
    assert cache.lacks("ours")
    assert "pods of the namespace ours: etcd is away" in (cache.trouble or "")
    listed.open()
    await complete(cache)
    await until(lambda: cache.trouble is None)


async def test_namespaces_that_cannot_be_listed_do_not_hold_up_others(script, cache, running):
    refused = says(failure(403, "Forbidden", "pods is forbidden"), 403)
    broken, others = [f"broken-{number}" for number in range(20)], [f"good-{number}" for number in range(20)]
    script.on("GET", PODS, page())
    script.on("GET", PODS + "?watch", hangs)
    for namespace in broken:
        script.on("GET", f"/api/v1/namespaces/{namespace}/pods", refused)
    for namespace in others:
        script.on("GET", f"/api/v1/namespaces/{namespace}/pods", page(pod("a", namespace)))
    running(cache.run())
    await synced(cache)
    cache.keep(broken)
    await until(lambda: cache.trouble)
    cache.keep({*broken, *others})
    for namespace in others:
        await complete(cache, namespace)
    assert all(cache.lacks(namespace) for namespace in broken)


async def test_objects_of_a_namespace_that_is_given_up_are_removed_also_if_it_comes_back_at_once(
    script, cache, running
):
    """Pod b was deleted in between, which no change has reported."""
    script.on("GET", PODS, page())
    script.on("GET", PODS + "?watch", hangs)
    script.on("GET", OURS, page(pod("a"), pod("b")), page(pod("a")))
    gone: list[str] = []
    cache.subscribe(lambda key, old, new: gone.append(key.name) if new is None else None)
    running(cache.run())
    await synced(cache)
    cache.keep({"ours"})
    await complete(cache)
    cache.keep(set())
    assert cache.lacks("ours")
    cache.keep({"ours"})
    assert cache.lacks("ours")
    await complete(cache)
    assert stored(cache) == ["ours/a"]
    assert gone == ["a", "b"]


async def test_a_pod_whose_cost_has_to_be_removed_is_kept_in_any_namespace_until_it_has_none(script, cache, running):
    feed, mark = Feed(), {DELETION_COST: "-1", COST_SET: "-1 2026-01-01T00:00:00Z"}
    script.on("GET", PODS, page(pod("a", "theirs", **mark), pod("b", "theirs")))
    script.on("GET", PODS + "?watch", feed)
    script.on("GET", THEIRS, page(pod("a", "theirs", **mark), pod("b", "theirs")))
    running(cache.run())
    await synced(cache)
    assert stored(cache) == ["theirs/a"]
    assert cache.marked == {Key("theirs", "a")}
    cache.keep({"theirs"})
    await complete(cache, "theirs")
    cache.keep(set())
    await until(lambda: stored(cache) == ["theirs/a"])
    feed.lines.put_nowait(line("MODIFIED", pod("a", "theirs", version=20)))
    await until(lambda: stored(cache) == [])
    assert cache.marked == set()


async def test_the_memory_of_pods_of_other_members_is_released(script, cache, running):
    pods = [pod(f"p{number}-{'x' * 100}") for number in range(2_000)]
    script.on("GET", PODS, page())
    script.on("GET", PODS + "?watch", hangs)
    script.on("GET", OURS, page(*pods))
    running(cache.run())
    await synced(cache)
    tracemalloc.start()
    try:
        before = _traced()
        cache.keep({"ours"})
        await complete(cache)
        held = _traced() - before
        cache.keep(set())
        await until(lambda: not cache.keys(""))
        left = _traced() - before
    finally:
        tracemalloc.stop()
    assert held > 2_000 * 300
    assert left < held / 5  # bounded caches of texts and times stay


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def test_targets_are_restricted_like_pods_and_a_write_during_the_list_is_kept(script, client, running):
    deployments = Cache(WatchScope(client, options=QUICK), scale.WATCHED[0])
    deployments.restrict()
    path = "/apis/apps/v1/namespaces/ours/deployments"

    def deployment(replicas: int, version: int) -> Any:
        meta = {"name": "web", "namespace": "ours", "uid": "1", "resourceVersion": str(version)}
        return {"metadata": meta, "spec": {"replicas": replicas}}

    listed = Gate(page(deployment(3, 11)))
    script.on("GET", "/apis/apps/v1/deployments", page(deployment(3, 11)))
    script.on("GET", "/apis/apps/v1/deployments?watch", hangs)
    script.on("GET", path, listed)
    running(deployments.run())
    await synced(deployments)
    assert deployments.get(Key("ours", "web")) is None
    deployments.keep({"ours"})
    await until(lambda: listed.asked)
    deployments.offer(codec.target(json.dumps(deployment(5, 12)).encode()))
    listed.open()
    await until(lambda: not deployments.lacks("ours"))
    found = deployments.get(Key("ours", "web"))
    assert found is not None
    assert found.replicas == 5


async def test_a_scale_is_not_read_before_the_pods_of_its_namespace_are_listed(script, client, clock, running):
    """Turns wait for the list, and for a minute at most: then the error of the read tells why nothing is decided."""
    listed = Gate(page(pod("a")))
    script.on("GET", PODS, page())
    script.on("GET", PODS + "?watch", hangs)
    script.on("GET", OURS, listed)
    scales = "/apis/apps/v1/namespaces/ours/deployments/web/scale"
    meta = {"name": "web", "namespace": "ours", "resourceVersion": "1"}
    script.on("GET", scales, says({"metadata": meta, "spec": {"replicas": 1}, "status": {"selector": "app=web"}}))
    made = cluster.Cluster(client, clock, watch_hpas=False, restricted=True, reflector_options=QUICK)
    running(made.pods.run())
    await synced(made.pods)
    web = CrossVersionObjectReference("Deployment", "web", "apps/v1")
    with pytest.raises(errors.ApiError, match='the pods of the namespace "ours" are not listed yet') as raised:
        await made.read_scale("ours", web)
    assert raised.value.stale
    assert not made.waits("ours"), "it is not kept"
    made.keep({"ours"})
    await until(lambda: listed.asked)
    assert made.waits("ours")
    clock.skipped += cluster.PATIENCE + 1
    assert not made.waits("ours")
    with pytest.raises(errors.ApiError, match="not listed yet"):
        await made.read_scale("ours", web)
    listed.open()
    await until(lambda: not made.pods.lacks("ours"))
    assert not made.waits("ours")
    assert (await made.read_scale("ours", web)).spec.replicas == 1


NAMESPACES = tuple(f"n{number}" for number in range(6))
LIVELY = watch.ReflectorOptions(page_size=3, initial_backoff=0.02, max_backoff=0.1, shortest_watch=2, longest_watch=3)


@pytest.mark.parametrize("seed", range(4))
async def test_a_complete_namespace_never_misses_a_pod_whatever_happens(seed: int) -> None:
    """Namespaces come and go while pods change, watches break and expire, and requests fail.

    Pods named "stays" exist all the time: without them, a namespace that counts as complete would be wrong.
    """
    dice = random.Random(seed)
    async with lab.Cluster(controllers=False, kubelet=False) as server, _client(server) as client:
        for namespace in NAMESPACES:
            server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
            for number in range(4):
                _apply(server, namespace, f"stays-{number}")
        cache = PodCache(WatchScope(client, options=LIVELY))
        cache.restrict(codec.may_be_marked)
        task = asyncio.create_task(cache.run())
        seen = set[str]()
        try:
            for _ in range(300):
                _happens(dice, server, cache)
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0.002)
                    seen |= _check(cache)
            server.faults.clear()
            cache.keep(NAMESPACES[:4])
            await until(lambda: not any(cache.lacks(namespace) for namespace in NAMESPACES[:4]))
            expected = sorted(
                f"{each['metadata']['namespace']}/{each['metadata']['name']}"
                for each in server.list("pods")
                if each["metadata"]["namespace"] in NAMESPACES[:4]
            )
            await until(lambda: stored(cache) == expected)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert seen == set(NAMESPACES), "some namespaces were never complete"


def _client(server: lab.Cluster) -> Client:
    return Client(ClusterConfig(server.url), SystemClock())


def _apply(server: lab.Cluster, namespace: str, name: str, **annotations: str) -> None:
    meta = {"name": name, "namespace": namespace, "labels": {"app": "web"}, "annotations": annotations}
    spec = {"containers": [{"name": "app", "image": "app:1"}]}
    server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def _happens(dice: random.Random, server: lab.Cluster, cache: PodCache) -> None:
    namespace, name, chance = dice.choice(NAMESPACES), f"p{dice.randrange(5)}", dice.random()
    if chance < 0.3:
        if server.get("pods", name, namespace) is None:
            _apply(server, namespace, name)
        else:
            server.delete("pods", name, namespace, grace=0)
    elif chance < 0.45:
        _apply(server, namespace, "stays-0", touched=str(dice.random()))
    elif chance < 0.7:
        cache.keep({each for each in NAMESPACES if dice.random() < 0.5})
    elif chance < 0.76:
        server.faults.drop_watches("pods")
    elif chance < 0.82:
        server.faults.add(path="pods", status=dice.choice((410, 500, 429)), times=1)
    elif chance < 0.86:
        server.faults.add(path="pods", delay=0.01, times=2)


def _check(cache: PodCache) -> set[str]:
    """Returns the complete namespaces, which have all their pods that were never away."""
    found = {namespace for namespace in NAMESPACES if not cache.lacks(namespace)}
    for namespace in found:
        names = {each.name for each in cache.select(namespace, WEB)}
        assert {f"stays-{number}" for number in range(4)} <= names
    return found

"""API servers that have compacted the version of a watch or of a continue token: caches still miss nothing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import structlog
from kube.contract.conftest import Api, started
from kube.contract.test_contract import HPAS, PODS, hpa, pod
from support import apiserver
from support.relay import Relay
from support.scripted_server import until

from hpad.clock import SystemClock
from hpad.kube import watch
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.client import Client
from hpad.kube.cluster import Cluster, Watching
from hpad.kube.errors import ApiError
from hpad.kube.reflector import ReflectorOptions
from hpad.lab import cluster as lab

CONFIG_MAPS = "/api/v1/{ns}/configmaps"
FLAGS = ("--watch-cache=false", "--feature-gates=WatchList=false")
"""With these flags answers come from etcd, not from a watch cache, and lists in pages."""
QUICK = ReflectorOptions(page_size=7, initial_backoff=0.05, max_backoff=0.2)


class Forgetful(NamedTuple):
    """An API server, and a function that compacts it."""

    api: Api
    compact: Callable[[], Awaitable[None]]

    async def touch(self) -> None:
        """Makes changes of a kind that is not watched."""
        for number in range(3):
            await self.api.ask("POST", CONFIG_MAPS, {"metadata": {"generateName": f"c{number}-"}})


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with apiserver.start(tmp_path_factory.mktemp("forgetful"), FLAGS) as running:
        yield running


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real_kube_apiserver)])
async def forgetful(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Forgetful]:
    if request.param == "real":
        if (reason := apiserver.missing()) is not None:
            pytest.skip(reason)
        running: apiserver.Running = request.getfixturevalue("real")
        async with started(running.kubeconfig) as api:
            yield Forgetful(api, lambda: asyncio.to_thread(running.compact))
        return
    embedded = lab.Cluster(controllers=False, kubelet=False)
    async with embedded, started(await embedded.kubeconfig(tmp_path / "kubeconfig")) as api:
        embedded.faults.add(path="sendInitialEvents=true", times=None, status=422)

        async def compact() -> None:
            embedded.store.compact()

        yield Forgetful(api, compact)


@contextlib.asynccontextmanager
async def relayed(where: ClusterConfig) -> AsyncIterator[tuple[Relay, ClusterConfig]]:
    scheme, _, address = where.server.partition("://")
    relay = Relay(int(address.rpartition(":")[2]))
    await relay.start()
    try:
        yield relay, replace(where, server=f"{scheme}://127.0.0.1:{relay.port}")
    finally:
        await relay.stop()


def names(cluster: Cluster) -> set[str]:
    return {each.metadata.name for each in cluster.hpas.values()}


async def test_a_watch_with_a_compacted_version(forgetful: Forgetful, running: Any) -> None:
    """The connection is silent during changes, and the version from which the watch continues is compacted."""
    api = forgetful.api
    for name in ("stays", "changes", "goes"):
        await api.ask("POST", HPAS, hpa(name))
    async with relayed(api.client.config) as (relay, where), Client(where, SystemClock()) as client:
        cluster = Cluster(client, Watching(namespaces=(api.namespace,), options=QUICK))
        running(cluster.run())
        await asyncio.wait_for(cluster.ready(), 60)
        seen_changes: list[tuple[str, bool, bool]] = []
        cluster.hpas.subscribe(lambda key, old, new: seen_changes.append((key.name, old is not None, new is not None)))
        assert relay.freeze() > 0
        await api.ask("DELETE", f"{HPAS}/goes")
        await api.ask("POST", HPAS, hpa("comes"))
        await api.ask("PATCH", f"{HPAS}/changes", {"spec": {"maxReplicas": 7}})
        await forgetful.touch()
        await forgetful.compact()
        assert names(cluster) == {"stays", "changes", "goes"}
        with structlog.testing.capture_logs() as logs:
            relay.abort()
            await until(lambda: names(cluster) == {"stays", "changes", "comes"}, 10)
        (lost,) = [line for line in logs if line["event"].startswith("the watch cannot continue") and _of_hpas(line)]
        assert "too old" in lost["error"]
        assert sorted(seen_changes) == [("changes", True, True), ("comes", False, True), ("goes", True, False)]
        await api.ask("POST", HPAS, hpa("later"))
        await until(lambda: "later" in names(cluster))


def _of_hpas(line: Any) -> bool:
    return bool(line["resource"].startswith("horizontalpodautoscalers"))


class Interfering:
    """A limiter that runs an action before each request of the client."""

    def __init__(self, act: Callable[[], Awaitable[None]]) -> None:
        self.acquire = act


async def test_a_list_with_a_compacted_continue_token(forgetful: Forgetful, running: Any) -> None:
    """After changes and a compaction between two pages, the cache reads the whole list again."""
    api = forgetful.api
    for number in range(20):
        await api.ask("POST", PODS, pod(f"p{number:02}"))
    codes: list[str] = []
    interfered = asyncio.Event()

    async def act() -> None:
        if "200" in codes and not interfered.is_set():
            interfered.set()
            await api.ask("DELETE", f"{PODS}/p00", gracePeriodSeconds="0")  # on the page already read
            await api.ask("POST", PODS, pod("p99"))
            await forgetful.touch()
            await forgetful.compact()

    async with Client(
        api.client.config,
        SystemClock(),
        limiter=Interfering(act),  # type: ignore[arg-type]  # a fake limiter
        observe=lambda method, host, code, seconds: codes.append(code),
    ) as client:
        cluster = Cluster(client, Watching(namespaces=(api.namespace,), options=QUICK))
        running(cluster.pods.run())
        await asyncio.wait_for(cluster.pods.synced.wait(), 60)
        listed = {item["metadata"]["name"] for item in (await api.ask("GET", PODS))["items"]}
        assert {each.name for each in cluster.pods.values()} == listed == {f"p{n:02}" for n in range(1, 20)} | {"p99"}
        assert codes[:4] == ["422", "200", "410", "200"]  # no streaming list, a page, an expired token, the whole list


async def test_errors_of_a_compacted_version_and_token(forgetful: Forgetful) -> None:
    api = forgetful.api
    for number in range(3):
        await api.ask("POST", PODS, pod(f"p{number:02}"))
    first = await api.ask("GET", PODS, limit="2")
    await forgetful.touch()
    await forgetful.compact()
    version, token = first["metadata"]["resourceVersion"], first["metadata"]["continue"]
    with pytest.raises(ApiError) as expired:
        await api.ask("GET", PODS, limit="2", **{"continue": token})
    assert (expired.value.status, expired.value.reason) == (410, "Expired")
    assert expired.value.message.startswith("The provided continue parameter is too old to display a consistent list")
    path = PODS.replace("{ns}", f"namespaces/{api.namespace}")
    (line,) = await anext(watch.lines(api.client, path, {"resourceVersion": version, "timeoutSeconds": "5"}, 5.0))
    with pytest.raises(ApiError) as old:
        watch.decode(line)
    assert old.value.gone

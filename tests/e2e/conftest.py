"""hpad on the embedded cluster, over loopback HTTP, with a period of 0.4 seconds."""

import asyncio
import contextlib
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import structlog
from e2e.steady import Steady

from hpad import settings
from hpad.clock import Clock
from hpad.controller import controller, sparing
from hpad.daemon import app
from hpad.election import lease
from hpad.engine.view import Tunables
from hpad.kube.auth.credentials import ClusterConfig
from hpad.kube.reflector import ReflectorOptions
from hpad.lab.cluster import Cluster, resources
from hpad.lab.cluster.store import Change
from hpad.sources import limits

collect_ignore = [] if "HPAD_TEST_CELERY" in os.environ else ["test_celery_word.py"]
"""Files of tests that take minutes, and run by hand only."""
Json = dict[str, Any]
PERIOD = 0.4
IMPATIENT = Tunables(cpu_initialization_period=timedelta(0), initial_readiness_delay=timedelta(0))
AT_LAST = 180.0
"""Timeout in seconds of each expected change; long, because the machine may be busy."""


class World:
    """A cluster whose pods are objects only, hpad running on it, and helpers for tests.

    `patience` is the timeout of `until` in seconds of the loop.
    """

    def __init__(self, cluster: Cluster, stack: contextlib.AsyncExitStack) -> None:
        self._load: dict[str, Callable[[int], int]] = {}
        self.cluster = cluster
        self.patience = AT_LAST
        self.daemon: app.App
        self._stack = stack

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @cluster.setter
    def cluster(self, cluster: Cluster) -> None:
        self._cluster = cluster
        cluster.store.subscribe(self._changed)

    async def hpad(
        self,
        *,
        ready: bool = True,
        clock: Clock | None = None,
        cluster_config: ClusterConfig | None = None,
        reflector_options: ReflectorOptions | None = None,
        **changes: Any,
    ) -> app.App:
        """Starts hpad, once the pods of each loaded workload exist; `changes` are fields of its Settings."""
        await self.until(lambda: all(map(self._complete, self._load)))
        values = {"sync_period": timedelta(seconds=PERIOD), "listen": None, "tunables": IMPATIENT, **changes}
        where = cluster_config or ClusterConfig(server=self.cluster.url)
        self.daemon = app.App(
            settings.Settings(**values), clock=clock, cluster_config=where, reflector_options=reflector_options
        )
        await self._stack.enter_async_context(self.daemon)
        if ready:
            async with asyncio.timeout(self.patience):
                await self.daemon.ready()
        return self.daemon

    def at_end(self, ending: Callable[[], Awaitable[Any]]) -> None:
        """Calls something after the end of an hpad that is started later."""
        self._stack.push_async_callback(ending)

    def workload(self, kind: str, name: str, replicas: int | None, *, cpu: str | None = "100m", **spec: Any) -> Json:
        """Applies a workload of pods with one container `app` that requests `cpu` (None: no request)."""
        container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": cpu}} if cpu else {}}
        labels = {"app": name}
        body: Json = {
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            "selector": labels if kind == "ReplicationController" else {"matchLabels": labels},
            **spec,
        }
        if replicas is not None:
            body["replicas"] = replicas
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        return self.cluster.apply({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": body})

    def hpa(self, name: str, kind: str = "Deployment", *, goal: int = 50, metrics: Any = None, **spec: Any) -> Json:
        """Applies an HPA of the workload of its name, by CPU utilization unless `metrics` are given."""
        target = {"type": "Utilization", "averageUtilization": goal}
        cpu = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        version = "v1" if kind == "ReplicationController" else "apps/v1"
        body = {
            "scaleTargetRef": {"apiVersion": version, "kind": kind, "name": name},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": metrics or cpu,
            "behavior": {
                "scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]},
                "scaleDown": {"stabilizationWindowSeconds": 0},
            },
            **spec,
        }
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}}
        return self.cluster.apply({**head, "spec": body})

    async def patch_hpa(self, name: str, spec: Json) -> None:
        """Changes fields of an HPA's spec, as `kubectl patch --type=merge` does."""
        path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}"
        await self.daemon.components.cluster.client.request(
            "PATCH", path, body=json.dumps({"spec": spec}).encode(), content_type="application/merge-patch+json"
        )

    def load(self, name: str, millis: Callable[[int], int] | int) -> None:
        """Sets the CPU usage of each pod labelled app=NAME, in millicores, or by a function of the number of pods.

        It holds from the first moment of a pod on, and the number is always the present one.
        """
        self._load[name] = millis if callable(millis) else lambda pods: millis
        self._burn()

    def _changed(self, change: Change) -> None:
        if change.resource == resources.PODS:
            self._burn()

    def _burn(self) -> None:
        for name, millis in self._load.items():
            pods = self._pods(name)
            for pod in pods:
                usage = {"app": {"cpu": f"{millis(len(pods))}m"}}
                self.cluster.usage.set(f"default/{pod['metadata']['name']}", usage)

    def _complete(self, name: str) -> bool:
        """Tells whether the workload of this name, if there is one, has as many pods as it asks for."""
        kinds = ("deployments", "statefulsets", "replicasets", "replicationcontrollers")
        found = [workload for kind in kinds if (workload := self.cluster.get(kind, name))]
        return not found or len(self._pods(name)) == found[0]["spec"].get("replicas", 1)

    def pods(self, name: str) -> list[Json]:
        """Returns copies of the pods labelled app=NAME."""
        return resources.copied(self._pods(name))

    def _pods(self, name: str) -> list[Json]:
        pods = self.cluster.store.objects(resources.PODS)
        return [pod for pod in pods if pod["metadata"]["labels"].get("app") == name]

    def replicas(self, plural: str, name: str) -> int:
        """Returns spec.replicas of a workload."""
        found = self.cluster.get(plural, name)
        assert found is not None
        return int(found["spec"]["replicas"])

    def status(self, name: str) -> Json:
        found = self.cluster.get("horizontalpodautoscalers", name)
        return (found or {}).get("status") or {}

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """Returns status, reason and message of an HPA's condition, empty texts without it."""
        for each in self.status(name).get("conditions") or []:
            if each["type"] == kind:
                return each["status"], each["reason"], each["message"]
        return "", "", ""

    def events(self, name: str) -> list[tuple[str, str]]:
        """Returns reason and message of each event of an HPA."""
        return [
            (event["reason"], event["message"])
            for event in self.cluster.list("events")
            if event["involvedObject"]["name"] == name and event["involvedObject"]["kind"] == "HorizontalPodAutoscaler"
        ]

    async def until(self, condition: Callable[[], Any], seconds: float | None = None) -> Any:
        """Waits until a condition is true, at most `patience` by default; returns its value."""
        async with asyncio.timeout(seconds or self.patience):
            while not (value := condition()):  # noqa: ASYNC110  # there is no event for it
                await asyncio.sleep(0.02)
        return value

    async def exposed(self, words: str) -> str:
        """Waits until the exposition contains a text, and returns it; counts follow the write of a status."""
        async with asyncio.timeout(self.patience):
            while words not in (series := (await self.daemon.telemetry.exposition()).decode()):  # noqa: ASYNC110  # as above
                await asyncio.sleep(0.02)
        return series

    async def periods(self, count: float) -> None:
        """Waits for a number of sync periods."""
        await asyncio.sleep(count * PERIOD)


@contextlib.asynccontextmanager
async def worlds(cluster: Cluster) -> AsyncIterator[World]:
    """Starts a cluster with a World, and stops both with the context."""
    async with contextlib.AsyncExitStack() as stack:
        yield World(await stack.enter_async_context(cluster), stack)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds(Cluster(auto_ready=True)) as made:
        yield made


@pytest.fixture
async def steady(world: Any) -> Steady:
    made = Steady(world)
    made.prepare()
    return made


@pytest.fixture(autouse=True)
def leisure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a turn, its metrics and its deletion costs as many seconds as with the default period.

    Their parts of a period of 0.4 seconds are shorter than a pause of a busy machine, which would end a turn between
    its write and its event. Tests of such timeouts override this fixture.
    """
    longer = settings.Settings().sync_period.total_seconds() / PERIOD
    monkeypatch.setattr(limits, "PATIENCE", limits.PATIENCE * longer)
    monkeypatch.setattr(controller, "_DEADLINE", controller._DEADLINE * longer)
    monkeypatch.setattr(sparing, "_PATIENCE", sparing._PATIENCE * longer)


@pytest.fixture(autouse=True)
def named_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names the replicas of a test pod-1, pod-2 and so on: random names could give all HPAs to one of two."""
    numbers = itertools.count(1)
    monkeypatch.setattr(lease, "identity", lambda: f"pod-{next(numbers)}")


@pytest.fixture(autouse=True, scope="module")
def plain_logs() -> Iterator[None]:
    """Log lines without local variables in tracebacks, which are slow to print, apart from what commands print."""
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[structlog.processors.add_log_level, plain],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    yield
    structlog.reset_defaults()

"""Each gate: kube-controller-manager has the defect, hpad does the same without the gate, and not with it."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kube.contract import controllers
from kube.contract.conftest import DEFINITIONS
from kube.contract.side import Side, started
from support import apiserver, metrics_apis, widgets
from support.engine import container, external, object_metric, pods_metric, resource

Json = dict[str, Any]
PERIOD = 1
THEIRS, OFF, ON = NAMESPACES = ("of-kubernetes", "without-gates", "with-gates")
HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers"
TARGETS = "/apis/oracle.example/v1/namespaces/{}/widgets"
RULES = {"scaleDown": {"stabilizationWindowSeconds": 0}}
CPU = {"cpu": "100m", "memory": "64Mi"}
HUGE = {"cpu": "100m", "memory": "25Ti"}
UTILIZATION = resource("cpu", averageUtilization=50)
HUNDRED = external("hundred", averageValue="10")
pytestmark = pytest.mark.real_kube_apiserver


def pod(group: str = "any", /, *, ready: bool = True, phase: str = "Running", **containers: Json) -> Json:
    """A pod with these requests by container; its usage is that of `group`."""
    before = (datetime.now(UTC) - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": before}
    requests = (containers or {"app": CPU}).items()
    spec = {"containers": [{"name": name, "image": "a", "resources": {"requests": each}} for name, each in requests]}
    status = {"phase": phase, "startTime": before, "conditions": [condition]}
    return {"metadata": {"labels": {"app": group}}, "spec": spec, "status": status}


def resized(group: str) -> Json:
    """A pod whose node has not applied the doubled request yet."""
    made = pod(group)
    (now,) = made["spec"]["containers"]
    known = {"image": "a", "imageID": "", "ready": True, "restartCount": 0}
    made["status"]["containerStatuses"] = [{**known, "name": "app", "resources": now["resources"]}]
    made["resize"] = [{**now, "resources": {"requests": {**CPU, "cpu": "200m"}}}]
    return made


def with_overhead(group: str) -> Json:
    made = pod(group)
    made["spec"] |= {"resources": {"requests": {"cpu": "1"}}, "runtimeClassName": "kata"}
    return made


class Case(NamedTuple):
    """A target that only the HPA changes, its pods, and the counts that it gets."""

    gate: str
    metric: Json
    pods: list[Json]
    theirs: int
    ours: int
    replicas: int
    observed: int | None = None
    """The count of the target's status, if it differs."""
    behavior: Json = {}  # noqa: RUF012  # never changed
    low: int = 1
    variant: str = ""

    @property
    def name(self) -> str:
        return f"{self.gate}-{self.variant}".lower().strip("-")

    @property
    def hpa(self) -> Json:
        return hpa(self.name, self.metric, self.low, {**RULES, **self.behavior})


def hpa(name: str, metric: Json, low: int, behavior: Json | None) -> Json:
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}}
    spec = {"scaleTargetRef": ref(name), "minReplicas": low, "maxReplicas": 20, "metrics": [metric]}
    return {**head, "spec": {**spec, **({} if behavior is None else {"behavior": behavior})}}


def ref(name: str) -> Json:
    return {"apiVersion": widgets.API_VERSION, "kind": "Widget", "name": name}


CASES = [
    Case("HPASucceededPodsIgnored", UTILIZATION, [*[pod("idle")] * 4, *[pod(phase="Succeeded")] * 4], 4, 1, replicas=4),
    Case("HPANegativeExternalSum", external("negative", averageValue="10"), [pod()] * 3, 20, 1, replicas=3),
    Case("HPAZeroStatusReplicas", HUNDRED, [pod()] * 5, 10, 10, replicas=5, observed=0),
    Case("HPAHugeProposals", pods_metric("load", "1m"), [pod("loaded")] * 5, 1, 20, replicas=5),
    Case(
        "HPAHugeProposals", resource("memory", averageUtilization=80), [pod("large", app=HUGE)] * 2, 1, 5, replicas=2,
        variant="utilization",
    ),
    Case(
        "HPAHugeProposals", HUNDRED, [pod()] * 2, 2, 10, replicas=2,
        behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 2**31 - 1, "periodSeconds": 15}]}},
        variant="policy",
    ),
    Case("HPAHugeProposals", object_metric("huge", averageValue="1"), [pod()] * 2, 1, 20, replicas=2, variant="object"),
    Case("HPAHugeProposals", external("huge", averageValue="1"), [pod()] * 2, 20, 20, replicas=2, variant="external"),
    Case(
        "HPAMissingContainerIgnored", container("cpu", "app", averageUtilization=50),
        [*[pod("busy")] * 2, pod("busy", old=CPU)], 3, 4, replicas=3,
    ),
    Case("InPlacePodVerticalScaling", UTILIZATION, [resized("busy")] * 2, 2, 4, replicas=2),
    Case(
        "HPAPodOverheadIgnored", resource("cpu", averageUtilization=75), [with_overhead("full")] * 2, 2, 3, replicas=2
    ),
    Case("HPAMinimumOfOne", external("nothing", averageValue="10"), [pod()] * 2, 0, 1, replicas=2, low=0),
    Case("HPASpecReplicasKept", HUNDRED, [pod()] * 11, 11, 10, replicas=10, observed=11),
    Case("HPASpecReplicasKept", HUNDRED, [pod()] * 10, 10, 11, replicas=11, observed=10, variant="fewer"),
    Case(
        "HPASurplusPodsIgnored", external("hundred", value="125"), [pod()] * 15, 12, 10, replicas=10, observed=15,
        behavior={"scaleDown": {"selectPolicy": "Disabled"}},
    ),
    Case("HPANoReadyPodsKept", external("hundred", value="20"), [pod(ready=False)] * 5, 1, 5, replicas=5),
]  # fmt: skip


def values() -> metrics_apis.Load:
    load = metrics_apis.Load()
    load.usage |= {"idle": {"app": "10m"}, "busy": {"app": "100m"}, "full": {"app": "900m"}, "large": {"app": "1m"}}
    load.memory["large"] = "50Ti"
    load.pods |= {("loaded", "load"): "1000000000000", ("ten", "load"): "10"}
    load.external |= {"negative": "-30", "hundred": "100", "nothing": "0", "huge": "2147483648"}
    load.objects["ingresses.networking.k8s.io", "main-route", "huge"] = "2147483648"
    return load


class World(NamedTuple):
    server: Side
    load: metrics_apis.Load
    folder: Path

    async def target(self, namespace: str, name: str, replicas: int, observed: int | None = None) -> None:
        where = TARGETS.format(namespace)
        head = {"apiVersion": widgets.API_VERSION, "kind": "Widget", "metadata": {"name": name}}
        await self.server.ask("POST", where, {**head, "spec": {"replicas": replicas}})
        status = {"replicas": replicas if observed is None else observed, "selector": f"of={name}"}
        await self.server.ask("PATCH", f"{where}/{name}/status", {"status": status})

    async def pods(self, namespace: str, of: str, pods: list[Json]) -> None:
        for index, each in enumerate(pods):
            name = f"{of}-{index}"
            head = {"name": name, "labels": {**each["metadata"]["labels"], "of": of}}
            await self.server.place(namespace, {"metadata": head, "spec": each["spec"], "status": each["status"]})
            if "resize" in each:
                there = f"/api/v1/namespaces/{namespace}/pods/{name}/resize"
                await self.server.ask("PATCH", there, {"spec": {"containers": each["resize"]}})

    async def reconciled(self, namespace: str, name: str, count: int) -> None:
        """Waits until the HPA has seen this count."""
        while True:
            status = (await self.server.statuses(namespace)).get(name, {})
            if "conditions" in status and status.get("currentReplicas", 0) == count:
                return
            await asyncio.sleep(0.3)

    async def rescaled(self, target: str, count: int) -> int:
        """Waits for another count of a target, for fifteen periods; returns its count."""
        for _ in range(50):
            found = await self.server.ask("GET", target)
            if found["spec"]["replicas"] != count:
                break
            await asyncio.sleep(0.3 * PERIOD)
        return int(found["spec"]["replicas"])

    def controlled(self, **gates: bool) -> list[tuple[str, contextlib.AbstractAsyncContextManager[None]]]:
        """Returns each namespace with its controller: the original, hpad without its own gates, and hpad with them."""
        flags = [f"--feature-gates={name}={on}" for name, on in gates.items()]
        config = self.server.kubeconfig
        return [
            (THEIRS, in_thread(controllers.controller(config, self.folder, PERIOD, flags))),
            (OFF, controllers.hpad(config, controllers.exact(**gates), PERIOD, OFF)),
            (ON, controllers.hpad(config, controllers.patient(**gates), PERIOD, ON)),
        ]


@contextlib.asynccontextmanager
async def in_thread(blocking: contextlib.AbstractContextManager[Any]) -> AsyncIterator[None]:
    await asyncio.to_thread(blocking.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(blocking.__exit__, None, None, None)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """An API server that allows minReplicas 0, with three equal namespaces."""
    if (reason := apiserver.missing(controllers.CONTROLLER)) is not None:
        pytest.skip(reason)
    load = values()
    async with started(tmp_path, load, ["--feature-gates=HPAScaleToZero=true"]) as server:
        await server.ask("POST", DEFINITIONS, widgets.DEFINITION)
        kata = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}}
        await server.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", kata)
        for namespace in NAMESPACES:
            await server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
        await server.served(TARGETS.format(ON))
        yield World(server, load, tmp_path)


async def counts(world: World, namespace: str) -> dict[str, int]:
    """Maps each HPA that was reconciled to the count of its target."""
    items = (await world.server.ask("GET", TARGETS.format(namespace)))["items"]
    found = {item["metadata"]["name"]: item["spec"]["replicas"] for item in items}
    statuses = await world.server.statuses(namespace)
    return {name: found[name] for name, status in statuses.items() if "conditions" in status}


async def reached(world: World, namespace: str, wanted: dict[str, int]) -> None:
    """Waits until all targets have these counts, and keep them."""
    for _ in range(120):
        if await counts(world, namespace) == wanted:
            break
        await asyncio.sleep(0.5)
    await asyncio.sleep(3 * PERIOD)
    assert await counts(world, namespace) == wanted


async def statuses(world: World, namespace: str) -> dict[str, Json]:
    found = json.dumps(await world.server.statuses(namespace)).replace(namespace, "namespace")
    made: dict[str, Json] = json.loads(found)
    return made


def average(status: Json) -> str | None:
    found: str | None = status["currentMetrics"][0]["external"]["current"].get("averageValue")
    return found


async def test_each_gate_beside_the_original(world: World) -> None:
    for namespace in NAMESPACES:
        for case in CASES:
            await world.target(namespace, case.name, case.replicas, case.observed)
            await world.pods(namespace, case.name, case.pods)
    for namespace, running in world.controlled():
        for case in CASES:  # not before: the original controls all namespaces
            await world.server.ask("POST", HPAS.format(namespace), case.hpa)
        async with running:
            expected = {case.name: case.ours if namespace == ON else case.theirs for case in CASES}
            await reached(world, namespace, expected)
    theirs, off, on = [await statuses(world, namespace) for namespace in NAMESPACES]
    assert off == theirs
    name = "hpazerostatusreplicas"
    assert (average(theirs[name]), average(on[name])) == ("-9223372036854775808m", None)


async def stopped_again(world: World, namespace: str) -> int:
    """HPAOwnZeroOnly: the HPA takes the last replica, a client starts three and stops them, and work arrives."""
    name, metric, ask = "stopped", f"of-{namespace}", world.server.ask
    where, own = f"{TARGETS.format(namespace)}/{name}", HPAS.format(namespace)
    world.load.external[metric] = "0"
    await world.target(namespace, name, 1)
    await ask("POST", own, hpa(name, external(metric, averageValue="10"), 0, RULES))
    await world.reconciled(namespace, name, 0)
    await ask("PATCH", f"{own}/{name}", {"spec": {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}})
    for replicas in (3, 0):
        await ask("PATCH", where, {"spec": {"replicas": replicas}}, fieldManager="someone")
        await world.reconciled(namespace, name, replicas)
    world.load.external[metric] = "25"
    return await world.rescaled(where, 0)


async def asleep_and_woken(world: World, namespace: str) -> int:
    """No gate: a Deployment, whose scale of 0 nobody owns, is woken by the HPA that has stopped it."""
    name, metric, ask = "woken", f"woken-{namespace}", world.server.ask
    where = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {"metadata": {"labels": {"of": name}}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"of": name}}, "template": template}
    world.load.external[metric] = "0"
    await ask("POST", where, {"metadata": {"name": name}, "spec": spec})
    made = hpa(name, external(metric, averageValue="10"), 0, RULES)
    made["spec"]["scaleTargetRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    await ask("POST", HPAS.format(namespace), made)
    await world.reconciled(namespace, name, 0)
    world.load.external[metric] = "25"
    return await world.rescaled(f"{where}/{name}", 0)


async def woken_by_much(world: World, namespace: str) -> int:
    """HPAHugeProposals: far more work arrives than an int32 of replicas could do, for a target at zero."""
    name, metric, ask = "much", f"much-{namespace}", world.server.ask
    where = f"{TARGETS.format(namespace)}/{name}"
    world.load.external[metric] = "0"
    await world.target(namespace, name, 1)
    await world.pods(namespace, name, [pod()])
    made = hpa(name, external(metric, value="1"), 0, RULES)
    made["spec"]["maxReplicas"] = 3
    await ask("POST", HPAS.format(namespace), made)
    await world.reconciled(namespace, name, 0)
    world.load.external[metric] = "2147483648"
    return await world.rescaled(where, 0)


async def pointed_elsewhere(world: World, namespace: str) -> int:
    """HPATargetHistory: an HPA of a target with eight replicas gets one with four, where nothing is to do."""
    own = HPAS.format(namespace)
    for name, replicas in (("first", 8), ("second", 4)):
        await world.target(namespace, name, replicas)
        await world.pods(namespace, name, [pod("ten")] * replicas)
    await world.server.ask("POST", own, hpa("first", pods_metric("load", "10"), 1, None))
    await world.reconciled(namespace, "first", 8)
    await world.server.ask("PATCH", f"{own}/first", {"spec": {"scaleTargetRef": ref("second")}})
    return await world.rescaled(f"{TARGETS.format(namespace)}/second", 4)


STORIES: list[tuple[Callable[[World, str], Coroutine[Any, Any, int]], int, int]] = [
    (stopped_again, 3, 0),
    (asleep_and_woken, 3, 3),
    (woken_by_much, 0, 3),
    (pointed_elsewhere, 8, 4),
]


async def test_what_the_past_of_a_target_means_beside_the_original(world: World) -> None:
    found: dict[str, list[int]] = {}
    for namespace, running in world.controlled(HPAScaleToZero=True):
        async with running, asyncio.timeout(120):
            found[namespace] = await asyncio.gather(*(story(world, namespace) for story, _, _ in STORIES))
    assert found == {
        THEIRS: [theirs for _, theirs, _ in STORIES],
        OFF: [theirs for _, theirs, _ in STORIES],
        ON: [ours for _, _, ours in STORIES],
    }

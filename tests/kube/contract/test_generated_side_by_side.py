"""Generated HPAs, targets and pods: hpad without its gates ends in the same statuses as kube-controller-manager.

`HPAD_SIDE_BY_SIDE="SEED COUNT"` takes other cases.
"""

import asyncio
import json
import os
import random
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from kube.contract import controllers
from kube.contract.test_gates_side_by_side import HPAS, OFF, TARGETS, THEIRS, World, in_thread, ref, world
from support.engine import container, external, object_metric, pods_metric, resource

__all__ = ["world"]
Json = dict[str, Any]
Random = random.Random
SEED, COUNT = map(int, os.environ.get("HPAD_SIDE_BY_SIDE", "1 60").split())
PERIOD = 3
SETTLED = 12 * PERIOD
"""More than twice as long as the period of the default policy of scale-ups, 15 s."""
USAGE = {"none": "", "idle": "5m", "half": "50m", "near": "55m", "busy": "100m", "hot": "300m"}
REQUESTS = ({"cpu": "100m", "memory": "64Mi"}, {"cpu": "250m", "memory": "1Gi"}, {"cpu": "100m"}, {})
SELECTORS = (None, None, {"queue": "a"}, {"b": "x", "a": "y"})
pytestmark = pytest.mark.real_kube_apiserver


class Case(NamedTuple):
    name: str
    pods: list[Json]
    replicas: int
    observed: int
    selector: str
    spec: Json


def moment(age: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=age)).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(pick: Random, groups: tuple[str, ...], requests: Json, odd: bool) -> Json:
    """Returns a pod whose times are ages in seconds; an odd one may be of any phase and readiness."""
    containers = [{"name": "app", "image": "a", "resources": {"requests": requests}}]
    if pick.random() < 0.2:
        containers.append({"name": "side", "image": "a", "resources": {"requests": {"cpu": "50m", "memory": "16Mi"}}})
    phases = ("Running", "Running", "Running", "Pending", "Failed", "Succeeded", "Unknown") if odd else ("Running",)
    ready = pick.choice(("True", "False", "Unknown")) if odd else "True"
    started = pick.choice((120, 3600)) if odd else 3600
    changed = pick.choice((started // 2, started - 1))  # longer ago than the span of a sample
    status = {"phase": pick.choice(phases), "started": started, "ready": ready, "changed": changed}
    return {"group": pick.choice(groups), "spec": {"containers": containers}, "status": status}


def metric(pick: Random) -> Json:
    percent = {"averageUtilization": pick.choice((1, 20, 50, 55, 80, 150))}
    average = {"averageValue": pick.choice(("10", "100m", "32Mi", "7500m", "0.333"))}
    value = {"value": pick.choice(("10", "42", "1500m", "100", "0.1"))}
    source, labels = pick.choice((percent, average)), pick.choice(SELECTORS)
    name = pick.choice(("hundred", "nothing", "negative", "ninety", "fraction", "absent"))
    made: tuple[Json, ...] = (
        resource(pick.choice(("cpu", "cpu", "memory")), **source),
        container("cpu", pick.choice(("app", "app", "side", "nobody")), **source),
        pods_metric(pick.choice(("load", "absent")), average["averageValue"]),
        object_metric(name, labels, **pick.choice((value, average))),
        external(name, labels, **pick.choice((value, average))),
    )
    return pick.choice(made)


def rules(pick: Random) -> Json:
    found: Json = {}
    if pick.random() < 0.6:
        found["stabilizationWindowSeconds"] = pick.choice((0, 0, 600))
    if pick.random() < 0.4:
        found["tolerance"] = pick.choice(("0", "50m", "0.5", "1500m"))
    if pick.random() < 0.3:
        found["selectPolicy"] = pick.choice(("Max", "Min", "Disabled"))
    if pick.random() < 0.4:
        value = pick.choice((1, 3, 10, 50))
        found["policies"] = [{"type": pick.choice(("Pods", "Percent")), "value": value, "periodSeconds": 1800}]
    return found


def case(pick: Random, name: str) -> Case:
    replicas = pick.choice((0, 1, 1, 2, 3, 4, 5, 8))
    groups = pick.choice((("half",), ("near",), ("busy",), ("hot",), ("idle", "none"), tuple(USAGE)))
    requests, odds = pick.choice(REQUESTS), pick.choice((0, 0, 0.4))
    pods = [pod(pick, groups, requests, pick.random() < odds) for _ in range(replicas + pick.choice((0, 0, 0, 1)))]
    low = pick.choice((1, 1, 1, 2))
    spec = {"scaleTargetRef": ref(pick.choice((name,) * 20 + ("gone",))), "minReplicas": low}
    spec |= {"maxReplicas": pick.choice((3, 5, 8)), "metrics": [metric(pick) for _ in range(pick.choice((1, 1, 2, 3)))]}
    if pick.random() < 0.6:
        spec["behavior"] = {"scaleUp": rules(pick), "scaleDown": rules(pick)}
    selector = pick.choice((f"of={name}",) * 20 + ("", "a in (b", "of=nobody"))
    return Case(name, pods, replicas, max(0, replicas + pick.choice((0, 0, 0, 1, -1))), selector, spec)


async def prepare(world: World, namespace: str, made: Case) -> None:
    await world.target(namespace, made.name, made.replicas, made.observed)
    await world.server.ask(
        "PATCH", f"{TARGETS.format(namespace)}/{made.name}/status", {"status": {"selector": made.selector}}
    )
    pods = []
    for each in made.pods:
        known = each["status"]
        ready = {"type": "Ready", "status": known["ready"], "lastTransitionTime": moment(known["changed"])}
        status = {"phase": known["phase"], "startTime": moment(known["started"]), "conditions": [ready]}
        pods.append({"metadata": {"labels": {"app": each["group"]}}, "spec": each["spec"], "status": status})
    await world.pods(namespace, made.name, pods)
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": made.name}}
    await world.server.ask("POST", HPAS.format(namespace), {**head, "spec": made.spec})


async def results(world: World, namespace: str) -> Json:
    """Maps each HPA to its status; of several pods with a fault the original names an arbitrary one."""
    text = json.dumps(await world.server.statuses(namespace)).replace(namespace, "namespace")
    found: Json = json.loads(re.sub(r"Pod case-[\w-]+", "Pod", text))
    return found


async def test_generated_cases_end_in_the_same_statuses(world: World) -> None:
    pick = random.Random(SEED)
    cases = [case(pick, f"case-{number}") for number in range(COUNT)]
    world.load.usage |= {name: {"app": cpu, "side": "20m"} for name, cpu in USAGE.items() if cpu}
    world.load.pods |= {(name, "load"): "75m" for name in USAGE if name != "near"}
    numbers = {"ninety": "90", "fraction": "1234567u"} | world.load.external
    world.load.external |= numbers
    world.load.objects |= {("ingresses.networking.k8s.io", "main-route", name): each for name, each in numbers.items()}
    config = world.server.kubeconfig
    for made in cases:
        await prepare(world, THEIRS, made)
    async with in_thread(controllers.controller(config, world.folder, PERIOD)):
        await asyncio.sleep(SETTLED)
        theirs = await results(world, THEIRS)
    assert all(status.get("conditions") for status in theirs.values())
    for made in cases:
        await prepare(world, OFF, made)
    async with controllers.hpad(config, controllers.exact(), PERIOD, OFF):
        ours: Json = {}
        for _ in range(5):
            await asyncio.sleep(SETTLED)
            ours = await results(world, OFF)
            if ours == theirs:
                break
    wrong = [f"{name}:\n  {theirs[name]}\n  {ours.get(name)}" for name in theirs if theirs[name] != ours.get(name)]
    assert not wrong, "\n".join(wrong)

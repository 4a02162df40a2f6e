"""Creates, changes and deletes HPAs and their targets on an embedded cluster, and checks each written scale.

The load of an application is a whole number of replicas, and its HPA scales at once without limits. So one count is
right at any time: the load, or maxReplicas. A written count is wrong if it follows from no load and no HPA of the
recent past, in which changes may still be unknown to hpad; faults of the source or the API server are no excuse.
"""

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

from hpad.lab.cluster import Cluster, resources
from hpad.lab.cluster.store import Change, key_of

LOAD_EACH = 10
MOST = 8
_LOW = 3
_HIGHEST_LOAD = 6
_MILLIS = 50
"""Target of CPU usage per replica in millicores; the request is 100m."""
CPU_NAMESPACE = "cpu"
_NAMESPACES = 9
_CPU_SHARE = 0.1


class Patience(NamedTuple):
    """How old a load and an HPA may be when hpad writes a count that follows from them, in seconds."""

    load: float
    hpa: float


class Past:
    """The recent values of a number, as (start time, value), oldest first."""

    def __init__(self, now: float, value: int) -> None:
        self._values = [(now, value)]

    @property
    def now(self) -> int:
        return self._values[-1][1]

    def becomes(self, value: int, now: float) -> None:
        self._values.append((now, value))

    def within(self, seconds: float, now: float) -> set[int]:
        """Returns all values within the last `seconds`, and drops older ones."""
        while len(self._values) > 1 and self._values[1][0] < now - seconds:
            del self._values[0]
        return {value for _, value in self._values}


@dataclass
class App:
    """One application: its load, in replicas, and its HPA's maxReplicas."""

    namespace: str
    name: str
    by_cpu: bool
    born: float
    load: Past
    most: Past

    @property
    def right(self) -> int:
        return min(self.load.now, self.most.now)

    def allowed(self, now: float, patience: Patience, before: int) -> set[int]:
        """Returns the counts that are correct at `now`. A count above the maximum is lowered without any metric."""
        loads, mosts = self.load.within(patience.load, now), self.most.within(patience.hpa, now)
        return {min(load, most) for load in loads for most in mosts} | {most for most in mosts if before > most}


class Population:
    """About `size` applications. One in ten scales by CPU from metrics.k8s.io, the others by a value of a source.

    A Deployment is deleted only when hpad can no longer act for its deleted HPA.
    """

    def __init__(self, cluster: Cluster, size: int, patience: Patience, rng: random.Random) -> None:
        self.apps: dict[tuple[str, str], App] = {}
        self.wrong: list[str] = []
        self.scales = self.made = self.deleted = self.changed = 0
        self._cluster = cluster
        self._size = size
        self._patience = patience
        self._rng = rng
        self._by_name: dict[str, App] = {}
        self._doomed: deque[tuple[float, str, str]] = deque()
        cluster.store.subscribe(self._seen)

    def load(self, name: str) -> int | None:
        app = self._by_name.get(name)
        return None if app is None else app.load.now * LOAD_EACH

    async def fill(self) -> None:
        """Creates all applications."""
        while len(self.apps) < self._size:
            self.make()
            if self.made % 20 == 0:
                await asyncio.sleep(0)

    def make(self) -> None:
        """Creates an application: a Deployment with one replica, and its HPA."""
        by_cpu = self._rng.random() < _CPU_SHARE
        namespace = CPU_NAMESPACE if by_cpu else f"ns-{self._rng.randrange(_NAMESPACES)}"
        self.made += 1
        now, load = self._now(), self._rng.randint(1, _HIGHEST_LOAD)
        app = App(namespace, f"app-{self.made}", by_cpu, now, Past(now, load), Past(now, MOST))
        self.apps[namespace, app.name] = self._by_name[app.name] = app
        for manifest in (_deployment(app), _hpa(app)):
            self._cluster.apply(manifest)

    def flap(self) -> None:
        """Changes the load of one application."""
        app = self._any()
        others = [load for load in range(1, _HIGHEST_LOAD + 1) if load != app.load.now]
        app.load.becomes(self._rng.choice(others), self._now())

    def churn(self) -> None:
        """Creates or deletes an application, or changes the maximum of one."""
        choice = self._rng.random()
        if choice < 0.35 and len(self.apps) < 1.05 * self._size:
            self.make()
        elif choice < 0.7 and len(self.apps) > 0.95 * self._size:
            self.delete(self._any())
        else:
            self.change(self._any())

    def change(self, app: App) -> None:
        self.changed += 1
        app.most.becomes(_LOW if app.most.now == MOST else MOST, self._now())
        self._cluster.apply(_hpa(app))

    def delete(self, app: App) -> None:
        """Deletes an HPA at once, and its Deployment later."""
        self.deleted += 1
        del self.apps[app.namespace, app.name]
        self._cluster.delete("horizontalpodautoscalers", app.name, app.namespace)
        self._doomed.append((self._now(), app.namespace, app.name))

    def tidy(self) -> None:
        """Deletes the Deployments of HPAs deleted a while ago, and old events, which are not checked."""
        while self._doomed and self._doomed[0][0] < self._now() - self._patience.hpa:
            _, namespace, name = self._doomed.popleft()
            del self._by_name[name]
            self._cluster.delete("deployments", name, namespace)
        store = self._cluster.store
        for event in store.objects(resources.EVENTS)[: -2 * self._size]:
            store.remove(resources.EVENTS, *key_of(event))
        self._cluster.log.clear()

    def burn(self) -> None:
        """Sets the CPU usage of pods in CPU_NAMESPACE: each pod has its part of the load."""
        pods: dict[str, list[str]] = {}
        for pod in self._cluster.store.objects(resources.PODS, CPU_NAMESPACE):
            pods.setdefault(pod["metadata"]["labels"]["app"], []).append(pod["metadata"]["name"])
        self._cluster.usage.clear()
        for app, names in pods.items():
            known = self._by_name.get(app)
            for name in names if known is not None else ():
                cpu = {"app": {"cpu": f"{known.load.now * _MILLIS // len(names)}m"}}
                self._cluster.usage.set(f"{CPU_NAMESPACE}/{name}", cpu)

    def unsettled(self) -> list[str]:
        """Returns a text for each application whose target does not have the right count."""
        found = []
        for app in self.apps.values():
            target = self._cluster.store.find(resources.DEPLOYMENTS, app.namespace, app.name)
            replicas = None if target is None else target["spec"]["replicas"]
            if replicas != app.right:
                found.append(f"{app.namespace}/{app.name} has {replicas}, and should have {app.right}")
        return found

    def ages(self) -> dict[str, float]:
        """Maps each HPA to its age in seconds."""
        now = self._now()
        return {f"{namespace}/{name}": now - app.born for (namespace, name), app in self.apps.items()}

    def _seen(self, change: Change) -> None:
        if change.resource != resources.DEPLOYMENTS or change.type != "MODIFIED" or change.previous is None:
            return
        before, after = (obj["spec"]["replicas"] for obj in (change.previous, change.object))
        _, name = key_of(change.object)
        if before != after:
            self.scales += 1
            self._check(self._by_name[name], before, after)

    def _check(self, app: App, before: int, after: int) -> None:
        right = app.allowed(self._now(), self._patience, before)
        if app.by_cpu:  # usage lags behind while pods start and stop, so any count in between is right
            right = set(range(1, max(*right, before) + 1))
        if after not in right:
            self.wrong.append(f"{app.namespace}/{app.name}: {before} -> {after}, where {sorted(right)} would be right")

    def _any(self) -> App:
        return self._rng.choice(list(self.apps.values()))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _deployment(app: App) -> dict[str, Any]:
    head = {"metadata": {"name": app.name, "namespace": app.namespace}}
    container = {"name": "app", "image": "app:1", "resources": {"requests": {"cpu": "100m"}}}
    template = {"metadata": {"labels": {"app": app.name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": app.name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", **head, "spec": spec}


def _hpa(app: App) -> dict[str, Any]:
    utilization = {"type": "Utilization", "averageUtilization": _MILLIS}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": utilization}}
    metric = {"name": "load", "selector": {"matchLabels": {"app": app.name}}}
    each = {"type": "AverageValue", "averageValue": str(LOAD_EACH)}
    number = {"type": "External", "external": {"metric": metric, "target": each}}
    at_once = {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": app.name},
        "maxReplicas": app.most.now,
        "metrics": [cpu if app.by_cpu else number],
        "behavior": {"scaleUp": at_once, "scaleDown": at_once},
    }
    head = {"metadata": {"name": app.name, "namespace": app.namespace}}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", **head, "spec": spec}

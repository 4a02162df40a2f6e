"""One HPA with its target, its pods and a virtual clock, for tests of decisions.

`Workload.reconcile` takes the answers of the metric sources, decides, writes the scale and keeps the history. No pod is
started.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus, from_builtins
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, PodValue, Sample
from hpad.engine.conditions import Condition, find
from hpad.engine.decide import Decision, decide
from hpad.engine.examine import examine
from hpad.engine.history import History
from hpad.engine.settle import Outcome, Settlement, settle
from hpad.engine.view import Gates, Tunables, View

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
DEFAULT_BEHAVIOR: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
}
"""The defaults that the API server sets for an empty behavior."""

Answer = Sample | AdapterError


def resource(name: str, **target: Any) -> dict[str, Any]:
    """A Resource metric: `resource("cpu", averageUtilization=50)`."""
    return {"type": "Resource", "resource": {"name": name, "target": _target(target)}}


def container(name: str, of: str, **target: Any) -> dict[str, Any]:
    source = {"name": name, "container": of, "target": _target(target)}
    return {"type": "ContainerResource", "containerResource": source}


def pods_metric(name: str, average: str) -> dict[str, Any]:
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": _target({"averageValue": average})}}


def external(name: str, selector: Mapping[str, str] | None = None, **target: Any) -> dict[str, Any]:
    metric: dict[str, Any] = {"name": name}
    if selector is not None:
        metric["selector"] = {"matchLabels": dict(selector)}
    return {"type": "External", "external": {"metric": metric, "target": _target(target)}}


def object_metric(name: str, selector: Mapping[str, str] | None = None, **target: Any) -> dict[str, Any]:
    described = {"kind": "Ingress", "name": "main-route", "apiVersion": "networking.k8s.io/v1"}
    metric: dict[str, Any] = {"name": name}
    if selector is not None:
        metric["selector"] = {"matchLabels": dict(selector)}
    return {"type": "Object", "object": {"describedObject": described, "metric": metric, "target": _target(target)}}


def _target(target: dict[str, Any]) -> dict[str, Any]:
    kind = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}[next(iter(target))]
    return {"type": kind, **target}


def pod(name: str, *, cpu: int | None = 200, phase: str = "Running", age: float = 3600, **fields: Any) -> Pod:
    """A pod that has been ready for `age` seconds (less one) and asks for `cpu` milli-cores."""
    started = START - timedelta(seconds=age)
    held: dict[str, Any] = {
        "start_time": started,
        "ready": "True",
        "ready_since": started + timedelta(seconds=1),
        "containers": (ContainerRequests("app", {} if cpu is None else {"cpu": cpu}),),
    }
    return Pod(name=name, phase=phase, **(held | fields))


def used(values: Mapping[str, int] | Sequence[int], now: datetime = START, window: float = 30) -> PodSample:
    """The usage of pods in milli-units: by name, or of web-0, web-1 …"""
    named = values if isinstance(values, Mapping) else {f"web-{index}": value for index, value in enumerate(values)}
    return PodSample({name: PodValue(v, now, timedelta(seconds=window)) for name, v in named.items()}, now)


def series(*values: int) -> ExternalSample:
    """Series of an External metric, in whole units."""
    return ExternalSample(tuple(value * 1000 for value in values), START)


def one(value: int) -> ObjectSample:
    """An Object metric, in whole units."""
    return ObjectSample(value * 1000, START)


class Workload:
    """One HPA and its target. A written count is in effect at the next reconcile."""

    def __init__(
        self,
        *metrics: dict[str, Any],
        replicas: int,
        low: int = 1,
        high: int = 10,
        behavior: dict[str, Any] | None = DEFAULT_BEHAVIOR,
        gates: Gates | None = None,
        **numbers: Any,
    ) -> None:
        spec = {
            "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
            "minReplicas": low,
            "maxReplicas": high,
            "metrics": list(metrics),
        }
        if behavior is not None:
            spec["behavior"] = behavior
        self.hpa = from_builtins({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        self.tunables = Tunables(gates=gates or Gates(), **numbers)
        self.now = START
        self.history = History()
        self.replicas = replicas
        self.selector = "app=web"
        self.pods: Sequence[Pod] | None = None
        self.settled: Settlement | None = None

    def view(self, **fields: Any) -> View:
        """What a reconcile sees now: as many healthy pods as replicas, unless `pods` says otherwise."""
        pods = [pod(f"web-{n}", age=3600) for n in range(self.replicas)] if self.pods is None else self.pods
        held: dict[str, Any] = {
            "hpa": self.hpa,
            "now": self.now,
            "tunables": self.tunables,
            "history": self.history,
            "scale": Scale(spec=ScaleSpec(self.replicas), status=ScaleStatus(self.replicas, self.selector)),
            "pods": pods,
        }
        return View(**(held | fields))

    def reconcile(self, *answers: Answer, after: float = 0, refused: str | None = None, **fields: Any) -> Decision:
        """Advances the clock by `after` seconds, decides, writes (unless the write is `refused`) and settles."""
        self.now += timedelta(seconds=after)
        view = self.view(**fields)
        decision = decide(view, examine(view), answers)
        outcome = None if decision.scale_to is None else Outcome((decision.scale_to,), refused)
        self.settled = settle(view, decision, outcome)
        self.history = self.settled.history
        self.hpa = msgspec.structs.replace(self.hpa, status=self.settled.status)
        if outcome is not None and refused is None:
            self.replicas = outcome.attempts[-1]
        return decision

    def condition(self, kind: str) -> Condition:
        held = find(self.hpa.status.conditions, kind)
        assert held is not None, f"no condition {kind}"
        return held

    @property
    def events(self) -> list[tuple[str, str]]:
        """Reasons and messages of the last reconcile's events."""
        assert self.settled is not None
        return [(event.reason, event.message) for event in self.settled.events]

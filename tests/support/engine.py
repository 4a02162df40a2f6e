"""One HPA with its target, its pods and a virtual clock, for tests of decisions.

`Workload.reconcile` takes the answers of the metric sources, decides, applies the count to the target in memory and
keeps the history.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus, from_builtins, without_status
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, PodValue, Sample
from hpad.engine import annotations as own
from hpad.engine import shadow
from hpad.engine.budget import Shares
from hpad.engine.conditions import Condition, find
from hpad.engine.decision import Decision
from hpad.engine.history import History
from hpad.engine.outlook import outlook
from hpad.engine.outlook.types import Outlook
from hpad.engine.settle import Outcome, Settlement
from hpad.engine.spec import CompiledMetric, compiled_spec
from hpad.engine.trace import Trace
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import Gates, Tunables, View
from hpad.records.stretch import slim

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


def compiled(*metrics: dict[str, Any]) -> tuple[CompiledMetric, ...]:
    """Returns the compiled metrics of an HPA that has these."""
    return compiled_spec(from_builtins({"metadata": {"name": "web"}, "spec": {"metrics": list(metrics)}})).metrics


def _target(target: dict[str, Any]) -> dict[str, Any]:
    kind = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}[next(iter(target))]
    return {"type": kind, **target}


def pod(name: str, *, cpu: int | None = 200, phase: str = "Running", age: float = 3600, **fields: Any) -> Pod:
    """Returns a pod that started `age` seconds ago, is ready since one second later and requests `cpu` millicores."""
    started = START - timedelta(seconds=age)
    defaults: dict[str, Any] = {
        "start_time": started,
        "ready": "True",
        "ready_since": started + timedelta(seconds=1),
        "containers": (ContainerRequests("app", {} if cpu is None else {"cpu": cpu}),),
    }
    return Pod(name=name, phase=phase, **(defaults | fields))


def used(values: Mapping[str, int] | Sequence[int], now: datetime = START, window: float = 30) -> PodSample:
    """Returns the usage of pods in milli-units, by name or of web-0, web-1 and so on, over `window` seconds."""
    named = values if isinstance(values, Mapping) else {f"web-{index}": value for index, value in enumerate(values)}
    return PodSample({name: PodValue(v, now, timedelta(seconds=window)) for name, v in named.items()}, now)


def series(*values: int) -> ExternalSample:
    """A sample of an External metric with one value per series, in whole units."""
    return ExternalSample(tuple(value * 1000 for value in values), START)


def one(value: int) -> ObjectSample:
    """Returns a sample of an Object metric; `value` is in whole units."""
    return ObjectSample(value * 1000, START)


class Workload:
    """One HPA and its target. The next reconcile finds the count that the last one wrote.

    `low` and `high` are the minimum and maximum of replicas, `numbers` are numeric fields of `Tunables`. `shadow` is
    the count of its shadow after the last reconcile; None where it is not in shadow mode.
    """

    def __init__(
        self,
        *metrics: dict[str, Any],
        replicas: int,
        low: int = 1,
        high: int = 10,
        behavior: dict[str, Any] | None = DEFAULT_BEHAVIOR,
        gates: Gates | None = None,
        annotations: Mapping[str, str] | None = None,
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
        self.annotations = annotations
        self.tunables = Tunables(gates=gates or Gates(), **numbers)
        self.now = START
        self.history = History()
        self.replicas = replicas
        self.selector = "app=web"
        self.pods: Sequence[Pod] | None = None
        self.settled: Settlement | None = None
        self.done: Reconcile | None = None
        self.shadow: int | None = None

    def view(self, **fields: Any) -> View:
        """Returns the view of a reconcile at this moment. Without `pods` the target has one ready pod per replica."""
        pods = [pod(f"web-{n}", age=3600) for n in range(self.replicas)] if self.pods is None else self.pods
        defaults: dict[str, Any] = {
            "hpa": self.hpa,
            "now": self.now,
            "tunables": self.tunables,
            "history": self.history,
            "scale": Scale(spec=ScaleSpec(self.replicas), status=ScaleStatus(self.replicas, self.selector)),
            "pods": pods,
        }
        view = View(**(defaults | fields))
        found = own.read(self.annotations, view.spec.metrics)
        return msgspec.structs.replace(
            view,
            fallback_policies=found.policies,
            annotation_error=found.error,
            annotation_reason=found.reason,
            controls=found.controls,
            tunables=view.tunables.of_hpa(found.controls),
        )

    def reconcile(
        self,
        *answers: Answer,
        after: float = 0,
        refused: str | None = None,
        work: Sequence[Answer] | None = None,
        shares: Shares | None = None,
        **fields: Any,
    ) -> Decision:
        """Advances the clock by `after` seconds, decides, writes and settles.

        With `refused` the write of the scale fails with this error text. `work` are the answers about the work of pods.
        `shares` is what it shares of its budget. `fields` replace fields of the view.
        """
        self.now += timedelta(seconds=after)
        view = self.view(**fields)
        why = shadow.reason(view, dry_run=False)
        if why is not None:
            view = shadow.begun(view, why, self.shadow)
        elif self.shadow is not None:
            view = msgspec.structs.replace(view, history=shadow.left(view.history))
        done = run(
            view, lambda _: answers, lambda count: Outcome((count,), refused), work=work, shares=lambda _: shares
        )
        self.done, self.settled = done, done.settlement
        self.shadow = shadow.count_after(done.view, done.decision)
        self.history = self.settled.history
        self.hpa = msgspec.structs.replace(self.hpa, status=self.settled.status)
        if done.outcome is not None and done.outcome.written:
            self.replicas = done.outcome.attempts[-1]
        return done.decision

    @property
    def trace(self) -> Trace:
        """The trace of the last reconcile, read back from its JSON."""
        return msgspec.json.decode(msgspec.json.encode(make_trace(self._kept)), type=Trace)

    @property
    def outlook(self) -> tuple[Outlook, ...]:
        """What would change the count after the last reconcile."""
        return outlook(self._kept)

    @property
    def _kept(self) -> Reconcile:
        """The last reconcile as the decision history keeps it."""
        assert self.done is not None
        return slim(self.done, without_status(self.done.view.hpa))

    def condition(self, kind: str) -> Condition:
        condition = find(self.hpa.status.conditions, kind)
        assert condition is not None, f"no condition {kind}"
        return condition

    @property
    def events(self) -> list[tuple[str, str]]:
        """The reason and message of each event of the last reconcile."""
        assert self.settled is not None
        return [(event.reason, event.message) for event in self.settled.events]

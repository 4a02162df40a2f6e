"""Workloads for the tests of outlooks: strategies, lives, and metrics with readings."""

import copy
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import assume, event, settings
from hypothesis import strategies as st
from support import environment
from support.engine import START, Workload, container, external, object_metric, pod, pods_metric, resource, series, used

from hpad.api.pod import ContainerRequests, Pod
from hpad.api.quantity import parse_milli
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, Sample
from hpad.engine.decision import Decision
from hpad.engine.history import History
from hpad.engine.outlook.types import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    Outlook,
    Threshold,
)
from hpad.engine.view import Gates

EXAMPLES = settings(max_examples=80 * environment.EFFORT, deadline=None)
LONG = 2400
"""Seconds after which each window and period of these tests is over."""

policies = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["Pods", "Percent"]),
            "value": st.sampled_from([1, 2, 4, 10, 50, 100]),
            "periodSeconds": st.sampled_from([15, 60, 300, 1800]),
        }
    ),
    min_size=1,
    max_size=3,
)
rules = st.fixed_dictionaries(
    {"policies": policies, "selectPolicy": st.sampled_from(["Max", "Max", "Min", "Disabled"])},
    optional={"stabilizationWindowSeconds": st.sampled_from([0, 15, 60, 300])},
)
behaviors = st.one_of(st.none(), st.fixed_dictionaries({}, optional={"scaleUp": rules, "scaleDown": rules}))
bounds = st.tuples(st.integers(0, 4), st.integers(4, 30))
wanted = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 15, 60, 299])), min_size=1, max_size=10)


def again(web: Workload, *answers: Sample | AdapterError, after: float = 0, **fields: Any) -> Decision:
    """Reconciles a copy."""
    return copy.copy(web).reconcile(*answers, after=after, **fields)


def found(web: Workload, kind: str) -> list[Outlook]:
    return [each for each in web.outlook if each.kind == kind]


def lived(
    behavior: dict[str, Any] | None, limits: tuple[int, int], replicas: int, counts: list[tuple[int, int]]
) -> Workload:
    """Returns a workload after a life in which its queue asked for these counts, each after some seconds.

    Without a tolerance the queue asks for the same count whatever the number of replicas.
    """
    low, high = limits
    web = Workload(
        external("queue", averageValue="1"), replicas=replicas, low=low, high=high, behavior=behavior, tolerance=0.0
    )
    for count, after in counts:
        web.reconcile(series(count), after=after)
        assume(web.replicas > 0)
    return web


def uncertain(web: Workload, marks: list[bool]) -> None:
    """Marks some entries of the history as uncertain."""

    def marked(past: tuple[Any, ...]) -> tuple[Any, ...]:
        chosen = zip(past, marks + [False] * len(past), strict=False)
        return tuple(msgspec.structs.replace(entry, uncertain=mark) for entry, mark in chosen)

    history = web.history
    web.history = History(marked(history.recommendations), marked(history.scale_ups), marked(history.scale_downs))


requests = st.sampled_from([None, 100, 150, 300])
"""The request of each pod in millicores; None: each pod has another one."""
states = st.lists(
    st.sampled_from(["ready", "ready", "ready", "starting", "pending", "silent", "failed", "lacking"]),
    min_size=1,
    max_size=7,
)
METRICS: dict[str, tuple[int, dict[str, Any]]] = {
    "cpu": (50, resource("cpu", averageUtilization=50)),
    "busy": (130, resource("cpu", averageUtilization=130)),
    "app": (50, container("cpu", "app", averageUtilization=50)),
    "memory": (70_000, resource("memory", averageValue="70")),
    "rate": (5000, pods_metric("rate", "5")),
    "queue": (10_000, external("queue", averageValue="10")),
    "total": (30_000, external("total", value="30")),
    "requests": (7000, object_metric("requests", averageValue="7")),
    "load": (3000, object_metric("load", value="3")),
}
"""The metric target, in percent or milli-units, and the entry of the spec."""
PERCENT = ("cpu", "busy", "app")
kinds = st.lists(st.sampled_from(sorted(METRICS)), min_size=1, max_size=3, unique=True)
parts = st.lists(st.integers(0, 30), min_size=3, max_size=3)
"""Readings in tenths of the metric target."""
activations = st.sampled_from([None, None, "queue=25,total=25", "queue=1"])


def pods_of(states: list[str], request: int | None) -> list[Pod]:
    """Returns pods that stay in their states, however much time passes."""
    phases = {"pending": "Pending", "failed": "Failed"}
    return [
        pod(
            f"web-{index}",
            phase=phases.get(state, "Running"),
            ready="False" if state == "starting" else "True",
            containers=(
                ContainerRequests(
                    "side" if state == "lacking" else "app", {"cpu": 60 + 35 * index if request is None else request}
                ),
            ),
        )
        for index, state in enumerate(states)
    ]


def requested(each: Pod) -> int:
    """Returns the CPU request of the container of a pod, in millicores."""
    return each.containers[0].requests["cpu"]


class Case:
    """A workload whose metrics have readings: percent of the requests, milli-units per pod, or milli-units in total."""

    gone = False
    """Whether the sources have a value of a pod that is not listed."""

    def __init__(self, names: list[str], states: list[str], request: int | None, **fields: Any) -> None:
        self.names, self.request = names, request
        self.web = Workload(*(METRICS[name][1] for name in names), replicas=len(states), high=100, **fields)
        self.place(states)

    def place(self, states: list[str]) -> None:
        self.states = states
        self.web.pods = pods_of(states, self.request)

    def samples(self, readings: Mapping[str, int]) -> list[Sample | AdapterError]:
        """Returns one answer per metric; an error for a metric without a reading."""
        return [
            self.sample(name, readings[name]) if name in readings else AdapterError("no answer") for name in self.names
        ]

    def sample(self, name: str, reading: int) -> Sample:
        """A percentage is reached with the least usage of the ready pods together."""
        if name in ("queue", "total"):
            return ExternalSample((reading,), START)
        if name in ("requests", "load"):
            return ObjectSample(reading, START)
        pods = [each for each, state in zip(self.web.pods or (), self.states, strict=True) if state != "silent"]
        lacking = {f"web-{index}" for index, state in enumerate(self.states) if state == "lacking" and name == "app"}
        values = {each.name: reading for each in pods if each.name not in lacking}
        ready = [each for each in pods if each.phase == "Running" and each.ready == "True" and each.name in values]
        if name in PERCENT and ready:
            total = sum(map(requested, ready))
            values = dict.fromkeys(values, 0) | {ready[-1].name: -(-reading * total // 100)}
        return used(values | ({"gone": reading} if self.gone else {}))

    def crossing(self, threshold: Threshold) -> tuple[str, int, int]:
        """Returns the name of the metric, the first reading beyond its threshold, and the last one before."""
        [index] = [i for i, metric in enumerate(self.web.trace.metrics) if metric.address == threshold.metric]
        name = self.names[index]
        amount = int(threshold.amount) if name in PERCENT else parse_milli(threshold.amount)
        beyond, before = {
            ABOVE: (amount + 1, amount),
            AT_LEAST: (amount, amount - 1),
            BELOW: (amount - 1, amount),
            AT_MOST: (amount, amount + 1),
        }[threshold.relation]
        return name, beyond, before

    def eventually(self, readings: Mapping[str, int]) -> int:
        """Returns the first other count that is decided while these readings last, else the present one."""
        web = copy.copy(self.web)
        for seconds in (1e-6, *[300] * (LONG // 300)):
            decision = web.reconcile(*self.samples(readings), after=seconds)
            if decision.scale_to is not None:
                return decision.desired
        return web.replicas


def decided(
    names: list[str], states: list[str], request: int | None, parts: list[int], *, gone: bool, **fields: Any
) -> tuple[Case, dict[str, int]]:
    """Returns a case after one reconcile, and the readings that keep what it asks for.

    Once the count has changed, all pods are ready, and metrics that the outlook does not name ask for nothing.
    """
    case = Case(names, states, request, **fields)
    case.gone = gone
    shared = {"queue": len(states), "requests": len(states)}
    present = {
        name: METRICS[name][0] * part * shared.get(name, 1) // 10 for name, part in zip(names, parts, strict=False)
    }
    case.web.reconcile(*case.samples(present))
    if case.web.replicas == len(states):
        return case, present
    event("settled")
    case.request, case.gone = request or 100, False
    case.place(["ready"] * case.web.replicas)
    return case, dict.fromkeys(names, 0)


def zeroed(names: list[str], activation: str | None) -> dict[str, Any]:
    """Returns the fields of a workload that may scale to zero, with the activation thresholds of its metrics."""
    named = [each for each in (activation or "").split(",") if each.partition("=")[0] in names]
    if not named:
        return {}
    annotations = {"hpad.io/activation": ",".join(named)}
    return {"low": 0, "gates": Gates(HPAScaleToZero=True), "annotations": annotations}

"""Each condition of an outlook suffices: the engine takes the step once it holds, and not just before."""

import copy
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from support.engine import START, Workload, container, external, object_metric, pod, pods_metric, resource, series, used

from hpad.api.pod import ContainerRequests, Pod
from hpad.api.quantity import parse_milli
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, Sample
from hpad.engine.decide import Decision
from hpad.engine.history import History
from hpad.engine.outlook import outlook
from hpad.engine.outlook.types import (
    ABOVE,
    AT_LEAST,
    AT_MOST,
    BELOW,
    FALLBACK,
    GROWTH,
    PODS,
    READING,
    SHRINKING,
    STEP,
    STOPPED,
    Outlook,
    Threshold,
)
from hpad.engine.trace import MetricTrace
from hpad.engine.view import Gates

EXAMPLES = settings(max_examples=300, deadline=None)
MOMENT = timedelta(microseconds=1)
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
    return [each for each in outlook(web.trace) if each.kind == kind]


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


@EXAMPLES
@given(behaviors, bounds, st.integers(1, 30), wanted, st.lists(st.booleans(), max_size=8))
def test_a_step_comes_at_its_time_and_not_before(
    behavior: dict[str, Any] | None,
    limits: tuple[int, int],
    replicas: int,
    counts: list[tuple[int, int]],
    marks: list[bool],
) -> None:
    web = lived(behavior, limits, replicas, counts[:-1])
    uncertain(web, marks)
    count, after = counts[-1]
    web.reconcile(series(count), after=after)
    assume(web.trace.chosen is not None and web.replicas > 0)
    steps = found(web, STEP)
    event(f"{len(steps)} steps")
    for step in steps:
        at = step.at or web.now
        left = (at - web.now).total_seconds()
        for part in (1e-6, left / 3, left / 2, left - 1e-6):
            if 0 < part < left:
                assert again(web, series(count), after=part).desired == web.replicas
        assert again(web, series(count), after=left + 1e-6).desired == step.replicas != web.replicas
        turns = copy.copy(web)
        while turns.now + timedelta(seconds=15) < at:
            assert turns.reconcile(series(count), after=15).scale_to is None, "turns in between change nothing"
        turns.now = at
        assert turns.reconcile(series(count), after=1e-6).desired == step.replicas
    if not steps:
        for seconds in (1e-6, 1, 15, 60, 300, LONG):
            assert again(web, series(count), after=seconds).desired == web.replicas


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
            requested = sum(map(_requested, ready))
            values = dict.fromkeys(values, 0) | {ready[-1].name: -(-reading * requested // 100)}
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


@EXAMPLES
@given(kinds, states, requests, parts, behaviors, activations, st.booleans())
def test_the_count_grows_beyond_each_threshold_and_not_before(
    names: list[str],
    pods: list[str],
    request: int | None,
    parts: list[int],
    behavior: dict[str, Any] | None,
    activation: str | None,
    gone: bool,
) -> None:
    fields = zeroed(names, activation)
    case, present = decided(names, pods, request, parts, behavior=behavior, gone=gone, **fields)
    for each in found(case.web, GROWTH):
        assert each.thresholds
        for threshold in each.thresholds:
            name, beyond, before = case.crossing(threshold)
            event(f"{name} {threshold.relation}")
            assert case.eventually(present | {name: beyond}) > case.web.replicas
            assert case.eventually(present | {name: before}) <= case.web.replicas


def zeroed(names: list[str], activation: str | None) -> dict[str, Any]:
    """Returns the fields of a workload that may scale to zero, with the activation thresholds of its metrics."""
    named = [each for each in (activation or "").split(",") if each.partition("=")[0] in names]
    if not named:
        return {}
    annotations = {"hpad.io/activation": ",".join(named)}
    return {"low": 0, "gates": Gates(HPAScaleToZero=True), "annotations": annotations}


@EXAMPLES
@given(kinds, states, requests, parts, behaviors, activations, st.booleans())
def test_the_count_shrinks_beyond_all_thresholds_and_not_before(
    names: list[str],
    pods: list[str],
    request: int | None,
    parts: list[int],
    behavior: dict[str, Any] | None,
    activation: str | None,
    gone: bool,
) -> None:
    case, present = decided(names, pods, request, parts, behavior=behavior, gone=gone, **zeroed(names, activation))
    for each in found(case.web, SHRINKING):
        crossings = [case.crossing(threshold) for threshold in each.thresholds]
        event(f"{[name for name, *_ in crossings]}")
        all_crossed = present | {name: beyond for name, beyond, _ in crossings}
        assert case.eventually(all_crossed) < case.web.replicas
        for name, _, before in crossings:
            assert case.eventually(all_crossed | {name: before}) >= case.web.replicas


waiting_states = st.lists(
    st.sampled_from(["ready", "ready", "starting", "pending", "silent", "lacking"]), min_size=2, max_size=8
).filter(lambda states: "ready" in states)
of_pods = st.lists(st.sampled_from(["cpu", "busy", "memory", "app"]), min_size=1, max_size=2, unique=True)


class Waiting(Case):
    """A case whose pods use CPU or memory in proportion to their requests; 100% of them is 1 unit of memory."""

    def __init__(self, names: list[str], states: list[str], request: int | None, percents: Mapping[str, int]) -> None:
        super().__init__(names, states, request)
        self.percents = percents

    def answers(self, busy: Mapping[str, Mapping[str, int]] | None = None) -> list[Sample | AdapterError]:
        """Returns the values of the pods that have one; `busy` are further values by metric and pod."""
        return [self.values(name, (busy or {}).get(name, {})) for name in self.names]

    def values(self, name: str, busy: Mapping[str, int]) -> Sample:
        pods = zip(self.web.pods or (), self.states, strict=True)
        known = [each for each, state in pods if state in ("ready", "starting")]
        percent = self.percents[name]
        used_by = {each.name: percent * (_requested(each) if name != "memory" else 1000) // 100 for each in known}
        return used(used_by | dict(busy))


def _requested(each: Pod) -> int:
    return each.containers[0].requests["cpu"]


@EXAMPLES
@given(of_pods, waiting_states, requests, st.lists(st.integers(0, 300), min_size=2, max_size=2), st.data())
def test_a_step_comes_once_enough_pods_count_and_not_with_one_less(
    names: list[str], states: list[str], request: int | None, percents: list[int], data: st.DataObject
) -> None:
    # What a pod without the container will request is not known, so all pods request the same then.
    request = 100 if request is None and "lacking" in states else request
    scaled = {name: percent * (70 if name == "memory" else 1) for name, percent in zip(names, percents, strict=False)}
    case = Waiting(names, states, request, scaled)
    case.web.reconcile(*case.answers())
    for each in found(case.web, PODS):
        assert each.needed is not None
        event(f"{each.needed} of {len(each.pods)} for {each.metrics}")
        [metric] = [metric for metric in case.web.trace.metrics if metric.address in each.metrics]
        name = names[case.web.trace.metrics.index(metric)]
        chosen = data.draw(st.permutations(each.pods))[: each.needed]
        step = counting(case, name, chosen, metric)
        assert step.desired != case.web.replicas or each.at is not None
        assert (step.proposals[names.index(name)].replicas > len(states)) == (metric.usage.ratio > 1.0)
        fewer = counting(case, name, each.pods[: each.needed - 1], metric)
        assert fewer.proposals[names.index(name)].replicas == len(states)
        if request is not None and each.at is None and each.replicas is not None:
            assert step.desired == each.replicas


def counting(case: Waiting, name: str, chosen: Sequence[str], metric: MetricTrace) -> Decision:
    """Decides with these pods ready, and as busy as the others on average."""
    ready = [each for each, state in zip(case.web.pods or (), case.states, strict=True) if state == "ready"]
    up = metric.usage is not None and (metric.usage.ratio or 0) > 1.0
    shares = {each.name: 1 if name == "memory" else _requested(each) for each in ready}
    total, whole = 0, sum(shares.values())
    sample = case.values(name, {})
    assert isinstance(sample, PodSample)
    total = sum(sample.values[each].value for each in shares)
    made = [
        pod(each.name, cpu=case.request or 60 + 35 * index) if each.name in chosen else each
        for index, each in enumerate(case.web.pods or ())
    ]
    parts = {each.name: 1 if name == "memory" else _requested(each) for each in made if each.name in chosen}
    busy = {each: -(-total * part // whole) if up else total * part // whole for each, part in parts.items()}
    return again(case.web, *case.answers({name: busy}), pods=made)


@EXAMPLES
@given(behaviors, bounds, st.integers(2, 30), wanted, st.integers(0, 20), st.booleans())
def test_the_count_shrinks_once_failing_metrics_can_be_read(
    behavior: dict[str, Any] | None,
    limits: tuple[int, int],
    replicas: int,
    counts: list[tuple[int, int]],
    last: int,
    all_fail: bool,
) -> None:
    low, high = limits
    metrics = [external(name, averageValue="1") for name in ("queue", "other", "third")]
    web = Workload(*metrics, replicas=replicas, low=low, high=high, behavior=behavior, tolerance=0.0)
    for count, after in counts:
        web.reconcile(series(count), series(0), series(0), after=after)
        assume(web.replicas > 0)
    down = AdapterError("no answer")
    web.reconcile(down if all_fail else series(last), down, down, after=15)
    assume(web.trace.chosen is not None and web.trace.stabilization is None)
    [each] = found(web, READING)
    event(f"all fail: {all_fail}, step: {each.replicas is not None}, later: {each.at is not None}")
    assert set(each.metrics) == ({"queue", "other", "third"} if all_fail else {"other", "third"})
    if each.replicas is None:
        assert all_fail or again(web, series(last), series(0), series(0), after=LONG).desired == web.replicas
        return
    left = ((each.at or web.now) - web.now).total_seconds()
    assert again(web, series(last), series(last), series(0), after=left + 1e-6).desired == each.replicas != web.replicas
    assert again(web, series(last), down, series(0), after=left + 1e-6).desired == web.replicas, "one still fails"
    if each.at is not None:
        assert again(web, series(last), series(0), series(0), after=left - 1e-6).desired == web.replicas


@EXAMPLES
@given(
    st.integers(1, 30),
    st.sampled_from(["replicas:4 after 1m", "ignore after 90s", "last-good:10m after 45s", "replicas:12"]),
    st.integers(0, 20),
    st.integers(0, 20),
    behaviors,
)
def test_a_fallback_begins_at_its_time(
    replicas: int, policy: str, good: int, other: int, behavior: dict[str, Any] | None
) -> None:
    web = Workload(
        *(external(name, averageValue="1") for name in ("queue", "other")),
        replicas=replicas,
        high=30,
        behavior=behavior,
        tolerance=0.0,
        annotations={"hpad.io/fallback": f"queue={policy}"},
    )
    down = AdapterError("no answer")
    web.reconcile(series(good), series(other))
    web.reconcile(down, series(other), after=15)
    web.reconcile(down, series(other), after=15)
    [each] = found(web, FALLBACK)
    assert each.at is not None
    left = (each.at - web.now).total_seconds()
    begun = copy.copy(web)
    decision = begun.reconcile(down, series(other), after=left)
    assert begun.trace.metrics[0].fallback is not None
    assert again(web, down, series(other), after=left - 1e-6).proposals[0].fallback == ""
    event(f"{policy} claims a count: {each.replicas is not None}")
    if each.replicas is not None:
        assert again(web, down, series(other), after=left + 1e-6).desired == each.replicas
        assert again(web, down, series(other), after=left - 1e-6).desired == web.replicas
    elif web.trace.stabilization is None:
        assert decision.desired == web.replicas


@EXAMPLES
@given(behaviors, bounds, st.integers(1, 30), wanted)
def test_a_write_that_failed_is_tried_again(
    behavior: dict[str, Any] | None, limits: tuple[int, int], replicas: int, counts: list[tuple[int, int]]
) -> None:
    web = lived(behavior, limits, replicas, counts[:-1])
    count, after = counts[-1]
    web.reconcile(series(count), after=after, refused="the webhook says no")
    assume(web.trace.write is not None)
    [each] = outlook(web.trace)
    assert each.kind == STOPPED
    answers = () if web.trace.chosen is None else (series(count),)
    assert again(web, *answers).desired == each.replicas

"""Spare replicas: on top of what the metrics want, never counted by them, and what people read of them."""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import environment
from support.engine import (
    Answer,
    Workload,
    container,
    external,
    object_metric,
    pod,
    pods_metric,
    resource,
    series,
    used,
)
from support.outlook_cases import behaviors, decided

from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample
from hpad.engine import spare
from hpad.engine.controls import SpareReplicas, parse_spare
from hpad.engine.decision import Decision
from hpad.engine.view import Gates

SPARES = ("1", "3", "10%", "50%", "100%")
AT_ONCE: dict[str, Any] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 1}],
    },
}
TARGET = 1000
"""Milli-units of load that one replica is to have."""


def _per_pod(load: int, count: int) -> PodSample:
    each, odd = divmod(load, count)
    return used([each + (index < odd) for index in range(count)])


def _total(load: int, _: int) -> ExternalSample:
    return ExternalSample((load,), used([]).timestamp)


def _share(load: int, count: int) -> ExternalSample:
    return _total(round(load / count), count)


def _as_object(sample: Callable[[int, int], ExternalSample]) -> Callable[[int, int], Answer]:
    def answered(load: int, count: int) -> ObjectSample:
        found = sample(load, count)
        return ObjectSample(found.values[0], found.timestamp)

    return answered


class Kind(NamedTuple):
    """A kind of metric: its spec, and its answer while a load in milli-units is shared by so many replicas."""

    metric: dict[str, Any]
    answer: Callable[[int, int], Answer]


KINDS = {
    "utilization": Kind(resource("cpu", averageUtilization=50), _per_pod),
    "average": Kind(resource("memory", averageValue="1"), _per_pod),
    "container": Kind(container("cpu", "app", averageUtilization=50), _per_pod),
    "pods": Kind(pods_metric("requests", "1"), _per_pod),
    "external-average": Kind(external("queue", averageValue="1"), _total),
    "object-average": Kind(object_metric("queue", averageValue="1"), _as_object(_total)),
    "external-value": Kind(external("latency", value="1"), _share),
    "object-value": Kind(object_metric("latency", value="1"), _as_object(_share)),
}


def _world(kind: Kind, replicas: int, **fields: Any) -> Workload:
    annotations = {f"hpad.io/{name}": text for name, text in fields.pop("annotations", {}).items()}
    options = {"high": 1000, "behavior": AT_ONCE, **fields}
    return Workload(kind.metric, replicas=replicas, annotations=annotations, **options)


def _turn(web: Workload, kind: Kind, load: int) -> Decision:
    web.pods = [pod(f"web-{index}", cpu=2 * TARGET) for index in range(web.replicas)]
    return web.reconcile(kind.answer(load, web.replicas), after=15)


@pytest.mark.parametrize("amount", [*SPARES, "0", "0%", "7%", "1000%", "1000"])
def test_the_count_without_the_spare_ones_is_the_largest_that_fits(amount: str) -> None:
    own = parse_spare(amount)
    for present in range(1, 200):
        found = own.beneath(present)
        fits = [count for count in range(1, present + 1) if own.on(count) <= present]
        assert found == max(fits, default=1)
        assert own.beneath(own.on(present)) == present
    assert (own.on(0), own.on(-3), own.beneath(0)) == (0, -3, 0)


def test_a_percentage_is_rounded_up() -> None:
    assert [SpareReplicas(percent=10).on(wanted) for wanted in (1, 10, 11, 20)] == [2, 11, 13, 22]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("amount", SPARES)
def test_the_metrics_decide_as_without_spare_replicas(kind: Kind, amount: str) -> None:
    chance, own = random.Random(20), parse_spare(amount)
    for _ in range(12 * environment.EFFORT):
        present, tolerance = chance.randint(1, 60), chance.choice([0.0, 0.1, 0.4])
        counted = own.beneath(present)
        load = chance.randint(1, 100_000 // (present * counted) + 1) * present * counted  # so that each share is exact
        topped = _turn(_world(kind, present, annotations={"spare": amount}, tolerance=tolerance), kind, load)
        plain = _turn(_world(kind, counted, tolerance=tolerance), kind, load)
        first, other = topped.proposals[0], plain.proposals[0]
        assert (first.replicas, first.tolerated, first.usage) == (other.replicas, other.tolerated, other.usage)
        assert topped.counted == counted
        assert topped.desired == max(1, own.on(plain.proposals[0].replicas))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("amount", SPARES)
@pytest.mark.parametrize("tolerance", [0.0, 0.1, 0.3])
def test_a_constant_load_comes_to_rest_with_the_spare_ones_on_top(kind: Kind, amount: str, tolerance: float) -> None:
    chance, own = random.Random(7), parse_spare(amount)
    for _ in range(4 * environment.EFFORT):
        load, high = chance.randint(1, 50 * TARGET), chance.choice([1000, 20])
        web = _world(
            kind, chance.randint(1, min(high, 80)), high=high, tolerance=tolerance, annotations={"spare": amount}
        )
        counts, decision = [], None
        for _ in range(8):
            decision = _turn(web, kind, load)
            assert decision.desired <= high
            counts.append(web.replicas)
        assert len(set(counts[3:])) == 1, counts
        assert decision is not None
        wanted = decision.proposals[0].replicas
        assert web.replicas == min(high, own.on(wanted))
        # The spare ones are beside what the load needs: by the tolerance fewer, but never counted among it.
        assert wanted * (1 + tolerance) * TARGET >= load * 0.98 or web.replicas == high


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_load_that_moves_never_takes_the_count_beyond_the_maximum(kind: Kind) -> None:
    chance = random.Random(3)
    for amount in SPARES:
        web = _world(kind, 5, low=2, high=12, annotations={"spare": amount})
        for _ in range(60):
            decision = _turn(web, kind, chance.choice([0, chance.randint(0, 40 * TARGET)]))
            assert 2 <= decision.desired <= 12


def test_without_the_annotation_nothing_is_made_anew() -> None:
    kind = KINDS["utilization"]
    for annotations in ({}, {"spare": "0"}):
        web, plain = _world(kind, 7, annotations=annotations), _world(kind, 7)
        view, answers = web.view(), [kind.answer(3 * TARGET, 7)]
        found = spare.without(view, answers)
        assert (found[0] is view, found[1] is answers) == (True, True)
        assert str(_turn(web, kind, 3 * TARGET)) == str(_turn(plain, kind, 3 * TARGET))


def _cpu(replicas: int, pods: list[Any], values: Mapping[str, int], amount: str = "1", **fields: Any) -> Decision:
    web = Workload(
        resource("cpu", averageUtilization=50),
        replicas=replicas,
        high=100,
        behavior=AT_ONCE,
        annotations={"hpad.io/spare": amount},
        **fields,
    )
    web.pods = pods
    return web.reconcile(used(values), after=15)


def _ready(number: int) -> list[Any]:
    return [pod(f"web-{index}") for index in range(number)]


def test_a_pod_that_fails_is_the_spare_one() -> None:
    # Ten pods have the load of ten, at their target; without the spare one the eleventh pod would be the tenth.
    values = {f"web-{index}": 100 for index in range(1, 11)}
    broken = pod("web-0", ready="False", age=20)
    missing = pod("web-0")
    for pods in ([broken, *_ready(11)[1:]], [missing, *_ready(11)[1:]], _ready(11)[1:]):
        decision = _cpu(11, pods, values)
        assert (decision.proposals[0].replicas, decision.proposals[0].usage.percent, decision.desired) == (10, 50, 11)
        assert decision.proposals[0].usage.cautious is None


def test_a_starting_spare_pod_changes_nothing() -> None:
    values = {f"web-{index}": 100 for index in range(10)}
    starting = pod("web-10", phase="Pending", ready="False", age=5)
    assert _cpu(11, [*_ready(10), starting], values).scale_to is None


def test_pods_that_end_are_no_replicas() -> None:
    ended = [pod("web-old", deleted=True), pod("web-job", phase="Succeeded")]
    decision = _cpu(11, [*ended, *_ready(11)], {f"web-{index}": 1000 // 11 for index in range(11)})
    assert (decision.proposals[0].usage.pods, decision.scale_to) == (10, None)


def test_a_surge_pod_of_a_rolling_update_is_counted_as_without_spare_ones() -> None:
    pods, values = _ready(12), {f"web-{index}": 1100 // 12 for index in range(12)}
    with_spare = _cpu(11, pods, values)
    plain = Workload(resource("cpu", averageUtilization=50), replicas=10, high=100)
    plain.pods = pods[:11]
    other = plain.reconcile(used({f"web-{index}": 100 for index in range(11)}), after=15)
    assert with_spare.proposals[0].usage.pods == other.proposals[0].usage.pods == 11
    assert (with_spare.proposals[0].replicas, with_spare.desired) == (other.proposals[0].replicas, 11)


def test_a_total_per_replica_counts_no_spare_replica_of_the_status() -> None:
    web = _world(KINDS["external-average"], 11, annotations={"spare": "1"})
    decision = web.reconcile(_total(10_500, 11), after=15)
    assert (decision.proposals[0].usage.pods, decision.proposals[0].tolerated, decision.desired) == (10, True, 11)


@pytest.mark.parametrize("amount", ["100%", "3"])
def test_nothing_shrinks_while_a_metric_fails(amount: str) -> None:
    web = Workload(
        external("queue", averageValue="1"), external("other", averageValue="1"),
        replicas=3, behavior=AT_ONCE, annotations={"hpad.io/spare": amount},
    )  # fmt: skip
    decision = web.reconcile(series(1), AdapterError("no answer"), after=15)
    assert decision.desired >= 3


def test_a_value_that_no_thousandth_divides_is_not_rounded_up_to_a_replica_more() -> None:
    for name in ("external-value", "object-value"):
        web = _world(KINDS[name], 22, annotations={"spare": "15"})
        assert web.reconcile(KINDS[name].answer(22 * TARGET, 22), after=15).proposals[0].replicas == 22


def test_pods_that_no_metric_is_about_are_neither_spare_nor_heirs() -> None:
    """Canaries on top of eleven replicas, of which one is spare, as with the traffic routing of Argo Rollouts."""
    web = Workload(
        external("latency", value="100"), resource("cpu", averageUtilization=50),
        replicas=11, high=100, behavior=AT_ONCE, annotations={"hpad.io/spare": "1", "hpad.io/pods": "role=stable"},
    )  # fmt: skip
    stable = [pod(f"web-{index}", labels={"role": "stable"}) for index in range(11)]
    web.pods = [*stable, *(pod(f"canary-{index}", labels={"role": "canary"}) for index in range(5))]
    busy = {f"web-{index}": 1200 // 11 for index in range(11)} | {f"canary-{index}": 900 for index in range(5)}
    decision = web.reconcile(series(120), used(busy), after=15)
    latency, cpu = decision.proposals
    assert latency.usage is not None
    assert cpu.usage is not None
    assert (latency.usage.pods, latency.usage.value, latency.replicas) == (10, 132_000, 14)
    assert (cpu.usage.pods, cpu.usage.percent, cpu.replicas) == (10, 59, 12)
    assert decision.desired == 15


def test_a_fallback_that_holds_the_count_holds_it_without_the_spare_ones() -> None:
    web = _world(KINDS["external-average"], 11, annotations={"spare": "1", "fallback": "at-least:4"})
    for _ in range(20):
        decision = web.reconcile(AdapterError("no answer"), after=15)
        assert decision.desired == 11
    assert decision.proposals[0].replicas == 10


def test_the_last_good_count_has_no_spare_ones_in_it() -> None:
    web = _world(KINDS["external-average"], 11, annotations={"spare": "1", "fallback": "last-good:1h"})
    assert web.reconcile(_total(14_000, 11), after=15).desired == 15
    assert web.reconcile(AdapterError("no answer"), after=15).desired == 15


def test_a_metric_policy_compares_with_the_counted_replicas() -> None:
    web = Workload(
        pods_metric("requests", "1"), external("queue", averageValue="1"),
        replicas=11, high=100, behavior=AT_ONCE,
        annotations={"hpad.io/spare": "1", "hpad.io/metric-policy": "requests and queue"},
    )  # fmt: skip
    web.pods = _ready(11)
    assert web.reconcile(_per_pod(10_000, 11), _total(20_000, 11), after=15).desired == 11
    assert web.reconcile(_per_pod(13_000, 11), _total(20_000, 11), after=15).desired == 14


def test_idle_means_idle() -> None:
    web = _world(KINDS["external-average"], 6, low=0, gates=Gates(HPAScaleToZero=True), annotations={"spare": "2"})
    assert web.reconcile(_total(0, 6), after=15).desired == 0
    assert web.trace.stages[2].text == "none while no replica is wanted (hpad.io/spare: 2)"
    assert web.reconcile(_total(1_500, 0), after=15).desired == 4


def test_the_reason_of_a_rescale_for_the_spare_ones_alone() -> None:
    web = _world(KINDS["external-average"], 1, annotations={"spare": "2"})
    decision = web.reconcile(_total(1_000, 1), after=15)
    assert (decision.desired, decision.reason) == (3, "spare replicas")
    assert web.events == [("SuccessfulRescale", "New size: 3; reason: spare replicas")]


def test_the_status_shows_the_load_of_the_counted_replicas() -> None:
    kind = KINDS["utilization"]
    web = _world(kind, 11, annotations={"spare": "1"})
    for _ in range(2):
        _turn(web, kind, 10 * TARGET)
    [metric] = web.hpa.status.current_metrics or ()
    assert metric.resource is not None
    assert (metric.resource.current.average_utilization, web.hpa.status.current_replicas) == (50, 11)
    assert web.settled is not None
    assert web.settled.metric_computations == (("Resource", "none", "none"),)


def test_what_people_read() -> None:
    kind = KINDS["utilization"]
    web = _world(kind, 10, high=12, annotations={"spare": "10%"})
    decision = _turn(web, kind, 11 * TARGET)
    assert str(decision) == (
        "scale web from 10 to 12: cpu above target (61% / 50%); 11 wanted, 2 spare on top; the maximum is 12"
    )
    trace = web.trace
    assert trace.spare is not None
    assert (trace.spare.counted, trace.spare.wanted, trace.spare.replicas) == (9, 11, 13)
    now, metrics, topped, *_ = trace.stages
    assert (now.text, metrics.replicas) == ("(1 spare)", 11)
    assert (topped.label, topped.replicas, topped.text) == ("with spare", 13, "2 spare on top (hpad.io/spare: 10%)")
    facts, pods = {fact.label: fact.text for fact in trace.metrics[0].facts}, trace.metrics[0].pods
    assert facts["Load"] == "counts as shared by 9 of 10 replicas"
    assert (facts["Usage"], pods[0].value) == ("61% of the requests, 1222m per pod; target 50%", "1100m")


@pytest.mark.parametrize("name", ["utilization", "pods", "external-average", "external-value"])
def test_the_outlook_names_the_readings_that_change_the_count(name: str) -> None:
    kind = KINDS[name]
    web = _world(kind, 11, annotations={"spare": "1"})
    assert _turn(web, kind, 10 * TARGET).scale_to is None
    found = {each.kind: each for each in web.outlook}
    history, hpa = web.history, web.hpa

    def after(load: int) -> int:
        web.history, web.hpa, web.replicas = history, hpa, 11
        return _turn(web, kind, load).desired

    # By the tolerance of 0.1: ten replicas are enough for 11 times the target, and not too many for 9 times.
    assert (after(math.floor(10.9 * TARGET)), after(math.ceil(11.3 * TARGET))) == (11, 13)
    assert (after(math.ceil(9.1 * TARGET)), after(math.floor(8.8 * TARGET))) == (11, 10)
    growth, shrinking = found["growth"].thresholds[0], found["shrinking"].thresholds[0]
    amounts = {"utilization": ("55", "45"), "external-average": ("11", "9")}.get(name, ("1.1", "0.9"))
    assert (growth.relation, shrinking.relation) == ("above", "below")
    assert [each.amount.replace("1100m", "1.1").replace("900m", "0.9") for each in (growth, shrinking)] == [*amounts]


def test_at_the_maximum_the_outlook_says_so() -> None:
    kind = KINDS["external-average"]
    web = _world(kind, 10, high=10, annotations={"spare": "1"})
    _turn(web, kind, 10 * TARGET)
    texts = [each.text for each in web.outlook]
    assert texts[0] == "10 and 1 spare wanted by queue, but maxReplicas is 10"


def test_the_outlook_promises_no_fewer_spare_replicas_while_a_metric_fails() -> None:
    metrics = [external(name, averageValue="10") for name in ("orders", "mails")]
    web = Workload(*metrics, replicas=12, high=20, annotations={"hpad.io/spare": "10%"})
    for _ in range(2):
        web.reconcile(series(100), AdapterError("down"), after=15)  # 10 of 10 without the spare ones: 11 in all
    assert web.replicas == 12
    assert web.outlook[0].text.endswith("once mails can be read and wants at most 10")


def test_a_shadow_has_spare_replicas_of_its_own() -> None:
    kind = KINDS["external-average"]
    web = _world(kind, 5, annotations={"spare": "1", "mode": "shadow"})
    assert _turn(web, kind, 8 * TARGET).desired == 9
    assert _turn(web, kind, 8 * TARGET).desired == 9
    assert (web.replicas, web.shadow) == (5, 9)


@settings(max_examples=30 * environment.EFFORT)
@given(st.sampled_from(SPARES), st.integers(1, 12), st.lists(st.integers(0, 30), min_size=2, max_size=2), behaviors)
def test_each_reading_of_the_outlook_is_exact(
    amount: str, replicas: int, parts: list[int], behavior: dict[str, Any] | None
) -> None:
    """Scenario 29."""
    names, annotations = ["queue", "requests"], {"hpad.io/spare": amount}
    case, present = decided(
        names, ["ready"] * replicas, 100, parts, gone=False, behavior=behavior, annotations=annotations
    )
    count = case.web.replicas
    for each in case.web.outlook:
        crossings = [case.crossing(threshold) for threshold in each.thresholds]
        beyond = present | {name: reading for name, reading, _ in crossings}
        if each.kind == "growth":
            for name, reading, before in crossings:
                assert case.eventually(present | {name: reading}) > count
                assert case.eventually(present | {name: before}) <= count
        elif each.kind == "shrinking":
            assert case.eventually(beyond) < count
            assert all(case.eventually(beyond | {name: before}) >= count for name, _, before in crossings)

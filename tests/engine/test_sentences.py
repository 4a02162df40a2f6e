"""The sentence of a decision names every stage that changed the count, in order, without contradictions.

The tests compute the expected stages from the rules, independently of the decision.
"""

import itertools
import re
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from support.engine import (
    START,
    Workload,
    external,
    object_metric,
    one,
    pod,
    pods_metric,
    resource,
    series,
    used,
)

from hpad.api.hpa import HorizontalPodAutoscalerCondition as Condition
from hpad.api.sample import AdapterError, ExternalSample
from hpad.engine import annotations
from hpad.engine.conditions import SCALED_TO_ZERO
from hpad.engine.decision import Decision
from hpad.engine.history import History, PastRecommendation
from hpad.engine.view import Gates

TARGET = 10
DOWN = AdapterError("connection refused")
WINDOWS = {"up": 60, "down": 120}
NARROW = [{"type": "Pods", "value": 2, "periodSeconds": 60}]


def behavior(*, windows: bool, select: str) -> dict[str, Any]:
    rules = {"selectPolicy": select, "policies": NARROW}
    return {
        "scaleUp": {**rules, "stabilizationWindowSeconds": WINDOWS["up"] if windows else 0},
        "scaleDown": {**rules, "stabilizationWindowSeconds": WINDOWS["down"] if windows else 0},
    }


BEHAVIORS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "policies": behavior(windows=False, select="Max"),
    "windows": behavior(windows=True, select="Max"),
    "disabled": behavior(windows=True, select="Disabled"),
}
PASTS: dict[str, tuple[tuple[int, int], ...]] = {
    "steady": ((30, 5),),
    "high": ((100, 12), (50, 9), (40, 9), (30, 7)),
    "low": ((100, 1), (50, 3), (40, 3), (30, 4)),
    "old": ((400, 12), (390, 1)),
}
"""Seconds ago and replicas."""
ANNOTATIONS = {
    "threshold": {annotations.ACTIVATION: "40"},
    "fallback": {annotations.FALLBACK: "replicas:8 after 0s"},
    "ignored": {annotations.FALLBACK: "rate=ignore after 0s"},
}
METRICS = ("normal", "threshold", "fallback", "ignored", "failing beside")
TOTALS = (0, 4, 31, 46, 50, 54, 75, 400)
BOUNDS = ((1, 20), (4, 6), (0, 20))


class Case(NamedTuple):
    behavior: str
    past: str
    metric: str
    total: int
    bounds: tuple[int, int]


CASES = [Case(*each) for each in itertools.product(BEHAVIORS, PASTS, METRICS, TOTALS, BOUNDS)]


def decided(case: Case) -> Decision:
    """The decision for five replicas."""
    queue, rate = external("queue", averageValue=str(TARGET)), external("rate", averageValue="10")
    two = case.metric in ("ignored", "failing beside")
    low, high = case.bounds
    web = Workload(
        *((queue, rate) if two else (queue,)),
        replicas=5,
        low=low,
        high=high,
        behavior=BEHAVIORS[case.behavior],
        gates=Gates(HPAScaleToZero=True),
        annotations=ANNOTATIONS.get(case.metric),
    )
    past = [PastRecommendation(START - timedelta(seconds=ago), replicas) for ago, replicas in PASTS[case.past]]
    web.history = History(tuple(past))
    answers = [DOWN if case.metric == "fallback" else series(case.total), *([DOWN] if two else [])]
    return web.reconcile(*answers)


def shares(total: int) -> int:
    """The count for a total, among five replicas: kept within a tenth of the target."""
    return 5 if 45 <= total <= 55 else -(-total // TARGET)


def chain(case: Case) -> list[tuple[str, int]]:
    """The stages that change the count, with the count after each: the first is the metric's."""
    low, _ = case.bounds
    proposed = 8 if case.metric == "fallback" else shares(case.total)
    found = [("metric", proposed)]
    if case.metric == "threshold" and low == 0 and case.total <= 40 and proposed:
        proposed = 0
        found.append(("activation", proposed))
    recommended = stabilized(case, proposed)
    if recommended != proposed:
        found.append(("stabilized", recommended))
    count, name = limited(case, recommended)
    if count != recommended:
        found.append((name, count))
    return found


def recent(case: Case, window: int) -> list[int]:
    return [replicas for ago, replicas in PASTS[case.past] if ago < window]


def stabilized(case: Case, proposed: int) -> int:
    if case.behavior == "none":
        return max([proposed, *recent(case, 300)])
    up, down = (0, 0) if case.behavior == "policies" else (WINDOWS["up"], WINDOWS["down"])
    if proposed > 5:
        return max(5, min([proposed, *recent(case, up)]))
    return min(5, max([proposed, *recent(case, down)]))


def limited(case: Case, proposed: int) -> tuple[int, str]:
    low, high = case.bounds
    reach = {"none": (0, 10), "disabled": (5, 5)}.get(case.behavior, (3, 7))
    if proposed > 5:
        return (high, "maximum") if proposed > high <= reach[1] else (min(proposed, reach[1]), "growth")
    least, name = (low, "minimum") if reach[0] <= low else (reach[0], "shrinking")
    return max(proposed, least), name


CLAUSES = {
    "activation": r"(\d+), not above its activation threshold 40",
    "stabilized": r"stabilized at (\d+) for \d+ s more \(until \d\d:\d\d:\d\dZ\), since \d+ was recommended \d+ s ago",
    "growth": r"growth is limited to (\d+)",
    "shrinking": r"shrinking is limited to (\d+)",
    "maximum": r"the maximum is (\d+)",
    "minimum": r"the minimum is (\d+)",
}


def named(sentence: str) -> list[tuple[str, int]]:
    """The stages after the metric that the sentence names, in its order."""
    found = [
        (match.start(), name, int(match[1])) for name, text in CLAUSES.items() for match in re.finditer(text, sentence)
    ]
    return [(name, count) for _, name, count in sorted(found)]


@pytest.mark.parametrize("past", PASTS)
@pytest.mark.parametrize("behavior_name", BEHAVIORS)
def test_every_stage_that_changed_the_count_is_named_in_order(behavior_name: str, past: str) -> None:
    checked = 0
    for case in CASES:
        if (case.behavior, case.past) != (behavior_name, past):
            continue
        decision = decided(case)
        if decision.undecided:
            assert case.metric == "failing beside", case
            assert shares(case.total) < 5, case
            continue
        checked += 1
        expected = chain(case)
        sentence = str(decision)
        assert named(sentence) == expected[1:], (case, sentence)
        first, *later = decision.stages
        counts = [first.replicas, *(stage.replicas for stage in later if stage.clause)]
        # The threshold belongs to the metrics: the count before it has a clause, and is no stage.
        chained = expected[1:] if [name for name, _ in expected[1:2]] == ["activation"] else expected
        assert counts == [count for _, count in chained], (case, sentence)
        if len(expected) > 1:
            assert f"; {expected[0][1]} wanted but " in sentence, (case, sentence)
    assert checked > 100


def test_the_sentence_begins_with_the_decided_count() -> None:
    for case in CASES:
        decision = decided(case)
        if not decision.undecided:
            final = chain(case)[-1][1]
            start = "keep 5: " if final == 5 else f"scale web from 5 to {final}: "
            assert str(decision).startswith(start), (case, str(decision))


def test_a_reading_in_the_opposite_direction_is_explained() -> None:
    opposite = 0
    for case in CASES:
        decision = decided(case)
        sentence = str(decision)
        points = 1 if "above target" in sentence else -1 if "below target" in sentence else 0
        moves = (decision.desired > 5) - (decision.desired < 5)
        if not decision.undecided and points and moves != points:
            assert " wanted but " in sentence or "rounded up to" in sentence, (case, sentence)
            opposite += 1
    assert opposite > 0


def test_the_fallback_of_a_failing_metric_and_its_cause_are_named() -> None:
    for case in CASES:
        sentence = str(decided(case))
        if case.metric == "fallback":
            assert "external metric queue falls back to 8 replicas, failing for 0s (connection refused)" in sentence
        elif case.metric == "ignored":
            assert "; external metric rate is ignored, failing for 0s (connection refused)" in sentence
        elif case.metric == "failing beside":
            assert "external metric rate fails: connection refused" in sentence


def test_the_window_ends_at_the_time_in_the_sentence() -> None:
    """The latest of equal recommendations keeps the count, not the first."""
    web = Workload(external("queue", averageValue="10"), replicas=9, high=20, behavior=BEHAVIORS["windows"])
    web.reconcile(series(90))
    web.reconcile(series(90), after=30)
    decision = web.reconcile(series(10), after=15)
    assert "for 105 s more (until 12:02:30Z), since 9 was recommended 15 s ago" in str(decision)
    assert web.reconcile(series(10), after=104).scale_to is None
    assert web.reconcile(series(10), after=1).scale_to == 7


def test_a_stabilized_count_ends_with_the_last_recommendation_that_keeps_it() -> None:
    """12 was recommended first, but the later 9 also keeps 9 replicas, and for longer."""
    web = Workload(external("queue", averageValue="10"), replicas=9, high=20, behavior=BEHAVIORS["windows"])
    past = ((100, 12), (40, 9))
    web.history = History(tuple(PastRecommendation(START - timedelta(seconds=ago), count) for ago, count in past))
    assert "for 80 s more (until 12:01:20Z), since 9 was recommended 40 s ago" in str(web.reconcile(series(10)))


def test_the_first_decision_explains_its_stabilization() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=9, high=20)
    reason = (
        "stabilized at 9 for 300 s more (until 12:05:00Z), "
        "since no earlier recommendation is known and the present count counts as one"
    )
    assert reason in str(web.reconcile(series(10)))


def test_a_ratio_of_few_ready_pods_shows_its_arithmetic() -> None:
    """150 % of the target on three pods of ten is a reason for five, not for fifteen."""
    behaved = behavior(windows=False, select="Max")
    behaved["scaleDown"]["policies"] = [{"type": "Percent", "value": 100, "periodSeconds": 15}]
    web = Workload(external("load", value="10"), replicas=10, high=20, behavior=behaved)
    web.pods = [pod(f"web-{n}") for n in range(3)]
    assert str(web.reconcile(series(15))) == (
        "scale web from 10 to 5: external metric load above target (15 / 10 over 3 replicas): "
        "1.5 x 3 pods is 4.5, rounded up to 5"
    )


def test_a_count_kept_by_rounding_is_explained() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=4, behavior=behavior(windows=False, select="Max"))
    assert str(web.reconcile(series(35))) == (
        "keep 4: external metric queue below target (8.75 / 10 per replica, 35 in total): "
        "35 / 10 is 3.5, rounded up to 4"
    )


def test_a_policy_of_one_pod_and_one_of_percent_are_named() -> None:
    policies = [
        {"type": "Percent", "value": 10, "periodSeconds": 30},
        {"type": "Pods", "value": 1, "periodSeconds": 20},
    ]
    rules = {"scaleDown": {"stabilizationWindowSeconds": 0, "policies": policies}}
    web = Workload(external("queue", averageValue="10"), replicas=9, behavior=rules)
    sentence = str(web.reconcile(series(20)))
    assert sentence.endswith(
        "; 2 wanted but shrinking is limited to 8 for now (scaleDown policies: 10% in 30 s or 1 pod in 20 s)"
    )


def test_the_limit_without_policies_is_named() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=1, behavior=None)
    sentence = str(web.reconcile(series(90)))
    assert sentence.endswith("; 9 wanted but growth is limited to 4 for now (the larger of twice the count and 4)")


def test_the_tolerance_is_named() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=4)
    assert str(web.reconcile(used([108] * 4))) == "keep 4: cpu within the tolerance of its target (54% / 50%)"
    assert str(web.reconcile(used([100] * 4))) == "keep 4: cpu at its target (50% / 50%)"


def test_all_metrics_below_target_is_written_only_where_it_is_true() -> None:
    behaved = behavior(windows=False, select="Max")
    web = Workload(
        external("queue", averageValue="10"), external("load", value="10"), replicas=5, behavior=behaved
    )  # fmt: skip
    web.pods = [pod("web-0")]
    sentence = str(web.reconcile(series(25), series(20)))
    assert "all metrics below target" not in sentence
    web = Workload(
        external("queue", averageValue="10"), external("rate", averageValue="20"), replicas=5, behavior=behaved
    )
    assert str(web.reconcile(series(25), series(20))).startswith(
        "scale web from 5 to 3: all metrics below target, "
        "external metric queue the closest (5 / 10 per replica, 25 in total)"
    )


def test_the_bound_that_a_count_exceeds_is_named() -> None:
    assert str(Workload(resource("cpu", averageUtilization=50), replicas=12, high=10).reconcile()) == (
        "scale web from 12 to 10: the maximum is 10"
    )
    assert str(Workload(resource("cpu", averageUtilization=50), replicas=1, low=2).reconcile()) == (
        "scale web from 1 to 2: the minimum is 2"
    )


def test_scaling_from_zero_to_the_minimum_names_the_minimum() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=0, low=3, gates=Gates(HPAScaleToZero=True))
    zero = Condition(SCALED_TO_ZERO, "True", START, "ScaledToZero", "")
    web.hpa = msgspec.structs.replace(web.hpa, status=msgspec.structs.replace(web.hpa.status, conditions=(zero,)))
    assert str(web.reconcile(series(5))) == (
        "scale web from 0 to 3: external metric queue above target (5 in total / 10 per replica); "
        "1 wanted but the minimum is 3"
    )


MIB = 2**20 * 1000


def milli(value: int) -> ExternalSample:
    """One series of an External metric, in milli-units."""
    return ExternalSample((value,), START)


@pytest.mark.parametrize(
    ("metric", "answer", "reading"),
    [
        (external("load", averageValue="100"), milli(899_992), "450 / 100 per replica, 900 in total"),
        (external("load", averageValue="100"), milli(199_992),
         "99.996 / 100 per replica, 200 in total"),
        (external("load", value="500m"), milli(1_250), "1.25 / 0.5 over 2 replicas"),
        (resource("cpu", averageValue="200m"), used([333, 334]), "333m / 200m"),
        (resource("memory", averageValue="64Mi"), used([95 * MIB, 96 * MIB]), "95.5Mi / 64Mi"),
        (external("bytes", averageValue="1Gi"), milli(3_000 * MIB),
         "1.46Gi / 1Gi per replica, 2.93Gi in total"),
        (object_metric("rps", value="1k"), one(1_050), "1050 / 1000 over 2 replicas"),
        (object_metric("rps", value="1M"), one(1_234_567), "1.23M / 1M over 2 replicas"),
    ],
)  # fmt: skip
def test_numbers_are_rounded_for_readers(metric: dict[str, Any], answer: Any, reading: str) -> None:
    assert f"({reading})" in str(Workload(metric, replicas=2).reconcile(answer))


@pytest.mark.parametrize("target", [{"averageValue": "30"}, {"value": "60"}])
def test_a_queue_at_its_target_that_no_pod_consumes_is_named(target: dict[str, str]) -> None:
    """As while all pods crash: the number alone looks as if all were well."""
    worker = Workload(external("queue", **target), replicas=2)
    crashing = tuple(pod(f"web-{index}", ready="False") for index in range(2))
    worker.pods = crashing
    reading = "30 / 30 per replica, 60 in total" if "averageValue" in target else "60 / 60 over 0 replicas"
    assert str(worker.reconcile(series(60))) == (
        f"keep 2: external metric queue at its target ({reading}), "
        "but none of the pods is ready, so that none consumes it"
    )
    assert "consumes" not in str(worker.reconcile(series(0)))
    worker.pods = (pod("web-0"), crashing[1])
    assert "consumes" not in str(worker.reconcile(series(60)))
    worker.pods = ()  # not known
    assert "consumes" not in str(worker.reconcile(series(60)))


def test_long_names_and_selectors_are_cut_in_every_message() -> None:
    """A name may have 1,024 characters; it reaches conditions, events, logs and series with at most 253 of them."""
    selector = {f"k{number}": "v" * 60 for number in range(90)}
    metrics = [
        external("e" * 1000, selector, value="1"),
        pods_metric("p" * 1000, "1"),
        resource("r" * 1000, averageValue="1"),
    ]
    web = Workload(*metrics, object_metric("o" * 1000, selector, value="1"), replicas=3)
    decision = web.reconcile(*[AdapterError("no answer")] * 4)
    for proposal in decision.proposals:
        metric = proposal.metric
        assert len(metric.name) == 1000
        assert not re.search(r"(.)\1{253}", f"{metric.label} {metric.description} {metric.wording}")
        assert len(metric.label) < 1400
        assert len(proposal.error or "") < 1700
    assert all(len(event.message) < 2000 for event in web.settled.events)


@pytest.mark.parametrize("kind", ["averageValue", "value"])
def test_the_note_of_a_sample_is_said_while_pods_are_ready(kind: str) -> None:
    worker, note = Workload(external("queue", **{kind: "60"}), replicas=2), "no consumer holds a message"
    noted = msgspec.structs.replace(series(120 if kind == "averageValue" else 60), note=note)
    said = str(worker.reconcile(msgspec.structs.replace(noted, note="")))
    assert "keep 2: external metric queue at its target (60 / 60 " in said
    assert str(worker.reconcile(noted)) == f"{said}, but {note}"
    worker.pods = (pod("web-0", ready="False"),)
    assert note not in str(worker.reconcile(noted))

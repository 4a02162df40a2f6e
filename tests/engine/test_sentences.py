"""The sentence of a decision: every stage that changed the count is named, in order, and none contradicts another.

The expected stages are worked out here from the rules, one after the other, and not taken from the decision.
"""

import itertools
import re
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from support.engine import START, Workload, external, object_metric, one, pod, resource, series, used

from hpad.api.hpa import HorizontalPodAutoscalerCondition as Condition
from hpad.api.sample import AdapterError, ExternalSample
from hpad.engine import fallback_policy
from hpad.engine.conditions import SCALED_TO_ZERO
from hpad.engine.decide import Decision
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


class FallbackPolicy(Workload):
    """A workload whose HPA has annotations."""

    annotations: dict[str, str]

    def view(self, **fields: Any) -> Any:
        view = super().view(**fields)
        told = fallback_policy.from_annotations(self.annotations, [metric.name for metric in view.spec.metrics])
        return msgspec.structs.replace(view, fallback_policies=told.policies, fallback_error=told.error)


def decided(case: Case) -> Decision:
    """The decision for five replicas."""
    queue, rate = external("queue", averageValue=str(TARGET)), external("rate", averageValue="10")
    two = case.metric in ("ignored", "failing beside")
    low, high = case.bounds
    web = FallbackPolicy(
        *((queue, rate) if two else (queue,)),
        replicas=5,
        low=low,
        high=high,
        behavior=BEHAVIORS[case.behavior],
        gates=Gates(HPAScaleToZero=True),
    )
    web.annotations = {
        "threshold": {fallback_policy.ACTIVATION: "40"},
        "fallback": {fallback_policy.FALLBACK: "replicas:8 after 0s"},
        "ignored": {fallback_policy.FALLBACK: "rate=ignore after 0s"},
    }.get(case.metric, {})
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
    wanted = 8 if case.metric == "fallback" else shares(case.total)
    found = [("metric", wanted)]
    if case.metric == "threshold" and low == 0 and case.total <= 40 and wanted:
        wanted = 0
        found.append(("activation", wanted))
    held = stabilized(case, wanted)
    if held != wanted:
        found.append(("stabilized", held))
    count, name = limited(case, held)
    if count != held:
        found.append((name, count))
    return found


def recent(case: Case, window: int) -> list[int]:
    return [replicas for ago, replicas in PASTS[case.past] if ago < window]


def stabilized(case: Case, wanted: int) -> int:
    if case.behavior == "none":
        return max([wanted, *recent(case, 300)])
    up, down = (0, 0) if case.behavior == "policies" else (WINDOWS["up"], WINDOWS["down"])
    if wanted > 5:
        return max(5, min([wanted, *recent(case, up)]))
    return min(5, max([wanted, *recent(case, down)]))


def limited(case: Case, wanted: int) -> tuple[int, str]:
    low, high = case.bounds
    reach = {"none": (0, 10), "disabled": (5, 5)}.get(case.behavior, (3, 7))
    if wanted > 5:
        return (high, "maximum") if wanted > high <= reach[1] else (min(wanted, reach[1]), "growth")
    least, name = (low, "minimum") if reach[0] <= low else (reach[0], "shrinking")
    return max(wanted, least), name


CLAUSES = {
    "activation": r"(\d+), being not above its activation threshold 40",
    "stabilized": r"stabilized at (\d+) for \d+ s more \(until \d\d:\d\d:\d\dZ\), since \d+ was recommended \d+ s ago",
    "growth": r"growth is limited to (\d+)",
    "shrinking": r"shrinking is limited to (\d+)",
    "maximum": r"the maximum is (\d+)",
    "minimum": r"the minimum is (\d+)",
}


def named(sentence: str) -> list[tuple[str, int]]:
    """The stages after the metric's that the sentence names, in its order."""
    found = [
        (match.start(), name, int(match[1])) for name, text in CLAUSES.items() for match in re.finditer(text, sentence)
    ]
    return [(name, count) for _, name, count in sorted(found)]


@pytest.mark.parametrize("past", PASTS)
@pytest.mark.parametrize("held", BEHAVIORS)
def test_every_stage_that_changed_the_count_is_named_in_order(held: str, past: str) -> None:
    for case in CASES:
        if (case.behavior, case.past) != (held, past):
            continue
        decision = decided(case)
        if decision.undecided:
            assert case.metric == "failing beside", case
            assert shares(case.total) < 5, case
            continue
        expected = chain(case)
        sentence = str(decision)
        assert named(sentence) == expected[1:], (case, sentence)
        assert [stage.replicas for stage in decision.stages] == [count for _, count in expected], (case, sentence)
        if len(expected) > 1:
            assert f"; {expected[0][1]} wanted but " in sentence, (case, sentence)


def test_the_count_of_the_sentence_is_the_one_that_is_set() -> None:
    for case in CASES:
        decision = decided(case)
        if not decision.undecided:
            final = chain(case)[-1][1]
            start = "keep 5: " if final == 5 else f"scale web from 5 to {final}: "
            assert str(decision).startswith(start), (case, str(decision))


def test_a_reading_that_points_the_other_way_is_never_left_unexplained() -> None:
    for case in CASES:
        decision = decided(case)
        sentence = str(decision)
        points = 1 if "above target" in sentence else -1 if "below target" in sentence else 0
        moves = (decision.desired > 5) - (decision.desired < 5)
        if not decision.undecided and points and moves != points:
            assert " wanted but " in sentence or "rounded up to" in sentence, (case, sentence)


def test_what_stands_in_for_a_failing_metric_and_its_cause_are_named() -> None:
    for case in CASES:
        sentence = str(decided(case))
        if case.metric == "fallback":
            assert "external metric queue falls back to 8 replicas, failing for 0s (connection refused)" in sentence
        elif case.metric == "ignored":
            assert "; external metric rate is ignored, failing for 0s (connection refused)" in sentence
        elif case.metric == "failing beside":
            assert "external metric rate fails: connection refused" in sentence


def test_the_window_lets_go_when_the_sentence_says_so() -> None:
    """The latest of the equal recommendations holds the count, not the first."""
    web = Workload(external("queue", averageValue="10"), replicas=9, high=20, behavior=BEHAVIORS["windows"])
    web.reconcile(series(90))
    web.reconcile(series(90), after=30)
    decision = web.reconcile(series(10), after=15)
    assert "for 105 s more (until 12:02:30Z), since 9 was recommended 15 s ago" in str(decision)
    assert web.reconcile(series(10), after=104).scale_to is None
    assert web.reconcile(series(10), after=1).scale_to == 7


def test_a_held_count_is_let_go_with_the_last_recommendation_that_holds_it() -> None:
    """12 was recommended first, but the later 9 also keeps 9 replicas, and for longer."""
    web = Workload(external("queue", averageValue="10"), replicas=9, high=20, behavior=BEHAVIORS["windows"])
    past = ((100, 12), (40, 9))
    web.history = History(tuple(PastRecommendation(START - timedelta(seconds=ago), count) for ago, count in past))
    assert "for 80 s more (until 12:01:20Z), since 9 was recommended 40 s ago" in str(web.reconcile(series(10)))


def test_the_first_decision_says_why_it_holds() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=9, high=20)
    told = "stabilized at 9 for 300 s more (until 12:05:00Z), since the present count counts as recommended at first"
    assert told in str(web.reconcile(series(10)))


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


def test_a_count_that_rounding_keeps_says_so() -> None:
    web = Workload(external("queue", averageValue="10"), replicas=4, behavior=behavior(windows=False, select="Max"))
    assert str(web.reconcile(series(35))) == (
        "keep 4: external metric queue below target (8.75 / 10 per replica, 35 in total): "
        "35 / 10 is 3.5, rounded up to 4"
    )


def test_the_tolerance_is_named() -> None:
    web = Workload(resource("cpu", averageUtilization=50), replicas=4)
    assert str(web.reconcile(used([108] * 4))) == "keep 4: cpu within the tolerance of its target (54% / 50%)"
    assert str(web.reconcile(used([100] * 4))) == "keep 4: cpu at its target (50% / 50%)"


def test_only_what_is_below_its_target_is_called_so() -> None:
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


def test_bounds_of_a_target_outside_of_them_are_named() -> None:
    assert str(Workload(resource("cpu", averageUtilization=50), replicas=12, high=10).reconcile()) == (
        "scale web from 12 to 10: the maximum is 10"
    )
    assert str(Workload(resource("cpu", averageUtilization=50), replicas=1, low=2).reconcile()) == (
        "scale web from 1 to 2: the minimum is 2"
    )


def test_waking_from_zero_to_the_minimum_names_it() -> None:
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
def test_numbers_are_written_as_people_read_them(metric: dict[str, Any], answer: Any, reading: str) -> None:
    assert f"({reading})" in str(Workload(metric, replicas=2).reconcile(answer))

"""Metric policies: against a plain calculation, with failed metrics, and in whole decisions."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from fractions import Fraction

import pytest
from support import engine, environment
from support.engine import Workload, external, resource, series

from hpad.api.sample import AdapterError
from hpad.engine import annotations, expression, metric_policy
from hpad.engine.addresses import MetricIdentity
from hpad.engine.metric_policy import FAILED, LEFT_OUT, Count, MetricPolicy, Proposed, Range, Standing
from hpad.engine.render import lines

POLICY = "hpad.io/metric-policy"
NAMES = ("a", "b", "c", "d")
IDENTITIES = tuple(map(MetricIdentity, NAMES))
HUGE = 10**9

Plain = Callable[[Sequence[int], int], Fraction]
"""The value of an expression with these counts, and the current one."""


def policy(text: str) -> MetricPolicy:
    found = metric_policy.bound(expression.parse(text), IDENTITIES)
    assert found is not None
    return found


def counts(*values: int | None) -> list[Proposed]:
    return [FAILED if value is None else Count(value, value) for value in values]


def value(text: str, proposed: Sequence[Proposed], current: int = 10) -> Range | None:
    return policy(text).value([*proposed, *counts(*[1] * (4 - len(proposed)))], Standing(current, 0.0, 0.0))


def agreed(values: Sequence[Fraction], current: int) -> Fraction:
    """The smallest change in a direction that all want, else none."""
    if all(value > current for value in values):
        return min(values)
    return max(values) if all(value < current for value in values) else Fraction(current)


def generated(dice: random.Random, depth: int) -> tuple[str, Plain]:
    """Returns a random expression with its calculation."""
    kind = dice.choice(["metric"] if depth == 0 else ["metric", "weight", "max", "min", "avg", "sum", "+", "and", "or"])
    if kind == "metric":
        index = dice.randrange(4)
        return NAMES[index], lambda values, _: Fraction(values[index])
    if kind == "weight":
        weight, (text, of) = dice.choice(["0.5", "2", "0.3", "1"]), generated(dice, depth - 1)
        return f"{weight}*({text})", lambda values, current: Fraction(weight) * of(values, current)
    parts = [generated(dice, depth - 1) for _ in range(dice.randint(2, 3))]
    texts, of_parts = [f"({text})" for text, _ in parts], [of for _, of in parts]
    reduce: dict[str, Callable[[list[Fraction], int], Fraction]] = {
        "max": lambda found, _: max(found),
        "or": lambda found, _: max(found),
        "min": lambda found, _: min(found),
        "sum": lambda found, _: sum(found, Fraction(0)),
        "+": lambda found, _: sum(found, Fraction(0)),
        "avg": lambda found, _: sum(found, Fraction(0)) / len(found),
        "and": agreed,
    }
    text = f" {kind} ".join(texts) if kind in ("and", "or", "+") else f"{kind}({', '.join(texts)})"
    return text, lambda values, current: reduce[kind]([of(values, current) for of in of_parts], current)


def test_random_expressions_have_the_value_of_a_plain_calculation_between_its_extremes_where_metrics_fail() -> None:
    dice, certain, number = random.Random(11), 0, 1000 * environment.EFFORT
    for _ in range(number):
        text, plain = generated(dice, 3)
        proposals = [dice.choice([None, *[dice.randrange(25)] * 4]) for _ in NAMES]
        current = dice.randrange(1, 20)
        low = plain([value or 0 for value in proposals], current)
        high = plain([HUGE if value is None else value for value in proposals], current)
        found = value(text, counts(*proposals), current)
        assert found is not None
        assert found.low == low, (text, proposals, current)
        assert found.is_known == (low == high), (text, proposals, current)
        certain += found.is_known
    assert number / 4 < certain < 0.975 * number


@pytest.mark.parametrize(
    ("text", "proposals", "low", "known", "leader"),
    [
        ("first(a, b)", counts(None, 7), 7, True, 1),
        ("first(a, b)", counts(3, 7), 3, True, 0),
        ("first(a, b)", counts(None, None), 0, False, None),
        ("first(max(a, b), c)", counts(20, None, None), 20, False, 0),
        ("first(max(a, b), c)", counts(20, None, 4), 4, True, 2),
        ("first(a, b)", [LEFT_OUT, *counts(7)], 7, True, 1),
        ("min(a, b)", [LEFT_OUT, *counts(7)], 7, True, 1),
        ("a and b", [LEFT_OUT, *counts(17)], 17, True, 1),
        ("avg(a, b)", [LEFT_OUT, *counts(7)], 7, True, 1),
        ("a + b", [LEFT_OUT, *counts(7)], 7, False, 1),
        ("0.5*a", [LEFT_OUT], 0, False, None),
        ("min(a, b)", counts(None, 0), 0, True, 1),
        ("a and b", counts(20, 5), 10, True, 1),
        ("a and b", counts(5, 7), 7, True, 1),
        ("a and b", counts(20, 15), 15, True, 1),
        ("min", counts(6, 5, 4, 7), 4, True, 2),
        ("sum", counts(6, 5, 4, 7), 22, True, 3),
    ],
)
def test_the_value_its_certainty_and_the_metric_it_comes_from(
    text: str, proposals: Sequence[Proposed], low: int, known: bool, leader: int | None
) -> None:
    found = value(text, proposals)
    assert found is not None
    assert (found.low, found.is_known, found.leader) == (low, known, leader)


def test_where_all_metrics_are_left_out_there_is_no_value() -> None:
    assert value("max(a, min(b, a))", [LEFT_OUT, LEFT_OUT]) is None


def test_a_sum_counts_without_the_tolerance_of_its_metrics_and_has_its_own() -> None:
    def total(text: str, current: int) -> Fraction | int:
        # With 20 replicas 19 are within the tolerance of a: it proposes 20, exactly 19.
        found = policy(text).value([Count(20, 19), Count(1, 1), *counts(1, 1)], Standing(current, 0.1, 0.1))
        assert found is not None
        return found.low

    assert total("a + b", 20) == 20
    assert total("a + b", 22) == 22  # 20 is within a tenth of 22
    assert total("a + b", 23) == 20
    assert total("max(a, b)", 23) == 20
    assert total("0.5*a", 20) == Fraction(19, 2)


CPU = resource("cpu", averageUtilization=50)
A, B = external("a", averageValue="1"), external("b", averageValue="1")
QUEUES = [external("orders", {"queue": name}, averageValue="1") for name in ("a", "b")]
DOWN = AdapterError("the source is down")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("min(cpu, x)", "position 10: there is no metric 'x' here; there are cpu, orders{queue=a}, orders{queue=b}"),
        ("cpu and orders", "position 9: 'orders' stands for 2 metrics: orders{queue=a}, orders{queue=b}"),
        ("min(cpu", 'position 8: found the end where "," "+", "and", "or" or the ")" of position 4 is allowed'),
    ],
)
def test_an_expression_that_does_not_fit_the_metrics_is_an_error_and_has_no_effect(text: str, error: str) -> None:
    web = Workload(CPU, *QUEUES, replicas=5)
    own = annotations.read({POLICY: text}, web.view().spec.metrics)
    assert [annotations.sentence(each, web.hpa.kind) for each in own.errors] == [f"annotation {POLICY}: {error}"]
    assert own.controls.metric_policy is None
    assert own.controls.texts == ()


def workload(text: str, replicas: int = 4, **annotations: str) -> Workload:
    own = {POLICY: text} | {f"hpad.io/{name}": value for name, value in annotations.items()}
    return Workload(A, B, replicas=replicas, annotations=own, behavior=None, downscale_stabilization=timedelta(0))


@pytest.mark.parametrize(
    ("text", "answers", "expected"),
    [
        ("min(a, b)", (series(8), series(6)), 6),
        ("a and b", (series(8), series(2)), None),
        ("a or b", (series(8), series(2)), 8),
        ("first(a, b)", (DOWN, series(2)), 2),
        ("first(a, b)", (series(2), DOWN), 2),
        ("min(a, b)", (series(8), DOWN), None),
        ("max(a, b)", (series(8), DOWN), 8),
        ("max(a, b)", (series(2), DOWN), None),
        ("0.5*a + 0.5*b", (series(8), series(7)), 8),
        ("0.5*a + 0.5*b", (series(10), DOWN), 5),
        ("0.5*a + 0.5*b", (series(7), DOWN), None),
        ("b", (series(8), series(2)), 2),
        ("b", (DOWN, series(2)), 2),
        ("first(a, b)", (DOWN, DOWN), None),
    ],
)
def test_the_policy_decides_the_count(text: str, answers: tuple[engine.Answer, ...], expected: int | None) -> None:
    web = workload(text)
    assert web.reconcile(series(4), series(4)).scale_to is None
    assert web.reconcile(*answers, after=15).scale_to == expected
    assert web.trace.chosen is not None
    assert web.trace.chosen.replicas == (None if web.done and web.done.decision.undecided else expected or 4)


def test_the_sentence_the_condition_the_event_and_the_trace_name_the_policy_and_its_operands() -> None:
    web = workload("0.7*a + 0.3*b")
    decision = web.reconcile(series(8), series(4))
    asked = "metric policy 0.7*a + 0.3*b asks for 7: external metric a wants 8 (2 / 1 per replica, 8 in total), "
    assert str(decision).startswith(f"scale web from 4 to 7: {asked}")
    assert web.condition("ScalingActive").message.endswith("a replica count from metric policy 0.7*a + 0.3*b")
    assert web.events == [("SuccessfulRescale", "New size: 7; reason: metric policy 0.7*a + 0.3*b above target")]
    text = "\n".join(map(str, lines(web.trace, web.outlook)))
    assert "by the metric policy 0.7*a + 0.3*b" in text
    assert "a 8, b 4" in text


def test_the_metric_whose_proposal_is_taken_leads() -> None:
    web = workload("min(a, b)")
    web.reconcile(series(8), series(6))
    assert web.condition("ScalingActive").message.endswith("external metric b(nil)")
    assert web.trace.chosen is not None
    assert (web.trace.chosen.metric, web.trace.chosen.policy) == ("b", "min(a, b)")


def test_a_failure_that_makes_no_difference_is_reported_and_one_that_does_holds_the_count() -> None:
    web = workload("first(a, b)")
    web.reconcile(DOWN, series(2))
    assert web.settled is not None
    assert "metric policy first(a, b) does without it" in (web.settled.error or "")
    assert web.condition("ScalingActive").status == "True"
    web = workload("min(a, b)")
    decision = web.reconcile(DOWN, series(8))
    assert str(decision) == (
        "cannot decide: external metric a fails: the source is down; external metric b wants 8 (2 / 1 per replica, 8 in"
        " total); metric policy min(a, b) asks for no growth without the others"
    )
    assert web.condition("ScalingActive").status == "False"
    texts = [each.text for each in web.outlook]
    assert texts[0].startswith("stays at 4 until a can be read")


def test_a_metric_with_a_fallback_proposes_the_fallback() -> None:
    web = workload("min(a, b)", fallback="a=replicas:7 after 0s")
    assert web.reconcile(DOWN, series(9)).scale_to == 7


def test_the_whole_decision_by_max_is_that_of_kubernetes() -> None:
    dice = random.Random(3)
    for _ in range(300):
        answers = [dice.choice([DOWN, *[series(dice.randrange(12))] * 3]) for _ in "ab"]
        replicas = dice.randrange(1, 9)
        plain, ours = workload("max", replicas), workload("max(a, b)", replicas)
        assert plain.annotations is not None
        expected, found = plain.reconcile(*answers), ours.reconcile(*answers)
        assert found.desired == expected.desired
        assert found.undecided == expected.undecided
        assert ours.condition("ScalingActive").status == plain.condition("ScalingActive").status

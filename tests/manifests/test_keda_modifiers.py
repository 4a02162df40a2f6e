"""Formulas, idle counts, and what wakes a target: as `hpad.io/metric-policy`, or as one query."""

import math
from typing import Any

import pytest
from support.scaled_objects import CPU, PROMETHEUS, RABBITMQ, scaled

from hpad.api.hpa import from_builtins
from hpad.api.problem import Invalid
from hpad.engine import metric_policy
from hpad.engine.annotations import PLAIN
from hpad.engine.metric_policy import Count, Proposed, Standing
from hpad.engine.spec import compiled_spec
from hpad.manifests.keda import scaledobject
from hpad.manifests.keda.conversion import Converted

A = {**RABBITMQ, "name": "a"}
B = {**RABBITMQ, "name": "b", "metadata": {**RABBITMQ["metadata"], "queueName": "bills"}}
P = {**PROMETHEUS, "name": "p", "metricType": "AverageValue"}
Q = {**P, "name": "q", "metadata": {**PROMETHEUS["metadata"], "query": "sum(y)", "ignoreNullValues": "true"}}


def converted(*triggers: Any, formula: str = "", fallback: Any = None, **modifiers: Any) -> Converted:
    scaling = {"formula": formula, "target": "10", **modifiers}
    spec: dict[str, Any] = {"advanced": {"scalingModifiers": scaling}} if formula else {}
    return scaledobject.convert(scaled(*triggers, **spec, **({"fallback": fallback} if fallback else {})))


def annotations(found: Converted) -> dict[str, str]:
    assert found.hpa is not None
    return found.hpa["metadata"].get("annotations", {})


def targets(found: Converted) -> dict[str, str]:
    """Returns the target of each External metric by the last part of its name."""
    assert found.hpa is not None
    metrics = [each["external"] for each in found.hpa["spec"]["metrics"] if "external" in each]
    return {
        each["metric"]["name"].rpartition("-")[2]: each["target"].get("averageValue") or each["target"]["value"]
        for each in metrics
    }


def decided(found: Converted, values: dict[str, float | None], current: int = 5) -> int | None:
    """Returns the count of the policy for values of the metrics, as the engine proposes it for AverageValue.

    A value of None is a metric that fails. cpu's value is its proposal.
    """
    hpa = from_builtins(found.hpa)
    metrics, own = compiled_spec(hpa).metrics, PLAIN.of(hpa)
    assert own.errors == ()
    assert own.controls.metric_policy is not None
    policy = metric_policy.of_spec(own.controls.metric_policy, metrics)
    assert policy is not None
    constants = {source.metric: source.query.get("replicas") for source in found.sources if source.adapter == "cron"}
    proposed: list[Proposed] = []
    for index, metric in enumerate(metrics):
        name = metric.name.rpartition("-")[2]
        value = constants.get(metric.name, values.get(name))
        threshold = own.policies[index].activation if own.policies else None
        if value is None:
            proposed.append(metric_policy.FAILED)
            continue
        asleep = threshold is not None and value * 1000 <= threshold
        share = value if name == "cpu" else value * 1000 / metric.amount
        count = 0 if asleep else math.ceil(share)
        proposed.append(Count(count, count))
    range_ = policy.value(proposed, Standing(current, 0.1, 0.1))
    assert range_ is not None
    return metric_policy.replicas(range_) if range_.is_known else None


@pytest.mark.parametrize(
    ("formula", "values", "expected"),
    [
        ("max(a, b)", {"a": 40, "b": 70}, 7),
        ("min([a, b])", {"a": 40, "b": 70}, 4),
        ("a + b", {"a": 40, "b": 70}, 11),
        ("sum([a, b])", {"a": 41, "b": 71}, 13),
        ("(a + b) / 2", {"a": 40, "b": 80}, 6),
        ("mean(a, b)", {"a": 40, "b": 80}, 6),
        ("a * 2 + b * 0.5", {"a": 40, "b": 80}, 12),
        ("2 * max(a, b)", {"a": 40, "b": 30}, 8),
        ("max(a, 60)", {"a": 10, "b": 500}, 6),
        ("a + 20", {"a": 40, "b": 500}, 6),
        ("float(a)", {"a": 40, "b": 500}, 4),
        ("a ?? b", {"a": 40, "b": 70}, 4),
        ("a ?? b", {"a": None, "b": 70}, 7),
        ("a ?? b ?? 80", {"a": None, "b": None}, 8),
        ("a / (4 / 2)", {"a": 40, "b": 0}, 2),
        ("\n  a\n  + b\n", {"a": 40, "b": 70}, 11),
        ("2 * (a ?? b) + 20", {"a": None, "b": 20}, 6),
    ],
)
def test_a_formula_gives_the_count_that_keda_gives(
    formula: str, values: dict[str, float | None], expected: int
) -> None:
    """The expected count is ceil(value of the formula / target), where the parts of sums are whole numbers."""
    found = converted(A, B, formula=formula)
    assert [note.lost for note in found.notes if "formula" in note.field][:1] == [False]
    assert decided(found, values) == expected


def test_targets_and_thresholds_are_those_of_the_formula() -> None:
    found = converted(A, B, formula="max(a, 2 * b)", target="10", activationTarget="5", metricType="Value")
    assert targets(found) == {"a": "10", "b": "5"}
    assert annotations(found)["hpad.io/activation"] == "shop-worker-a=5,shop-worker-b=2500m"
    assert {
        each["external"]["metric"]["name"][-1]: each["external"]["target"]["type"]
        for each in (found.hpa or {})["spec"]["metrics"]
    } == {"a": "Value", "b": "Value"}


def test_triggers_that_the_formula_does_not_use_decide_nothing() -> None:
    found = converted(A, B, P, formula="max(a, b)")
    assert set(targets(found)) == {"a", "b"}
    assert [source.adapter for source in found.sources] == ["rabbitmq", "rabbitmq"]
    assert any('does not use the trigger "p"' in note.text for note in found.notes)


def test_cpu_stands_beside_a_formula_and_wakes_no_target() -> None:
    found = converted(A, B, CPU, formula="max(a, b)")
    assert decided(found, {"a": 40, "b": 0, "cpu": 9}) == 9
    assert decided(found, {"a": 40, "b": 0, "cpu": 2}) == 4
    assert decided(found, {"a": 0, "b": 0, "cpu": 9}) == 0


@pytest.mark.parametrize(
    ("formula", "query"),
    [
        ("p + q", "vector((scalar(sum(sum(x))) + scalar(sum(sum(y)) or vector(0))))"),
        ("p / q", "vector((scalar(sum(sum(x))) / scalar(sum(sum(y)) or vector(0))))"),
        ("p - 2.5", "vector((scalar(sum(sum(x))) + (-1 * 2.5)))"),
        ("mean(p, q)", "vector((scalar(sum(sum(x))) + scalar(sum(sum(y)) or vector(0))) / 2)"),
    ],
)
def test_arithmetic_over_one_prometheus_becomes_one_query(formula: str, query: str) -> None:
    found = converted(P, Q, formula=formula, activationTarget="3")
    [source] = found.sources
    assert source.query == {"query": query, "types": ["External"]}
    assert targets(found) == {"formula": "10"}
    assert annotations(found)["hpad.io/activation"] == "shop-worker-formula=3"
    assert [str(note) for note in found.notes if note.lost] == []


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("a > 2 ? a + b : 1", "powers and conditions are not carried over"),
        ("count([a,b],{#>1}) > 1 ? 5 : 0", "powers and conditions are not carried over"),
        ("count([a, b])", "the function count is not carried over"),
        ("int(a, b)", "int with 2 values is not carried over"),
        ("max([a], b)", '"[a]" is not carried over'),
        ("max(a, key=b)", '"max(a, key=b)" is not carried over'),
        ("a ?? 'x'", "\"'x'\" is not carried over"),
        ("a + True", '"True" is not carried over'),
        ("a + 1e999", "it is not arithmetic over triggers"),
        ("-" * 500 + "a", "more than 64 parts within each other"),
        ("a + " * 300 + "a", "more than 1000 characters"),
        ("a - b", "a difference is not carried over"),
        ("a * b", "a product of two triggers is not carried over"),
        ("100 / a", "a division by a trigger, or by zero, is not carried over"),
        ("a / 0", "a division by a trigger, or by zero, is not carried over"),
        ("a + 2 * a", "one trigger with two factors is not carried over"),
        ("a + c", '"c" is not the name of a trigger that is carried over'),
        ("max(a, -1)", "a constant of 0 or less is not carried over"),
        ("a +", "it is not arithmetic over triggers"),
        ("(a", "it is not arithmetic over triggers"),
        ("(" * 400 + "a" + ")" * 400, "it is not arithmetic over triggers"),
        ("a ** 2", "powers and conditions are not carried over"),
        ("a % 2", '"a % 2" is not carried over'),
    ],
)
def test_a_formula_that_is_not_carried_over_is_a_loss_with_its_text(formula: str, reason: str) -> None:
    found = converted(A, B, formula=formula)
    [note] = [note for note in found.notes if note.field == "spec.advanced.scalingModifiers.formula"]
    assert note.lost
    assert f'"{formula}"' in note.text
    assert reason in note.text
    assert set(targets(found)) == {"a", "b"}
    assert "hpad.io/metric-policy" not in annotations(found)


def test_a_threshold_of_a_sum_is_a_loss() -> None:
    found = converted(A, B, formula="a + b", activationTarget="5")
    [note] = [note for note in found.notes if note.lost]
    assert note.field == "spec.advanced.scalingModifiers.activationTarget"
    assert "hpad.io/activation" not in annotations(found)


def test_the_fallback_of_a_formula_is_its_last_resort() -> None:
    fallback = {"failureThreshold": 3, "replicas": 9, "behavior": "scalingModifiers"}
    found = converted(A, B, formula="a ?? b", fallback=fallback)
    assert decided(found, {"a": 40, "b": 70}) == 4
    assert decided(found, {"a": None, "b": None}) == 9
    assert "hpad.io/fallback" not in annotations(found)
    [note] = [note for note in found.notes if note.field == "spec.fallback.failureThreshold"]
    assert not note.lost
    assert "from the first failure on" in note.text
    with pytest.raises(Invalid, match="scalingModifiers"):
        converted(A, fallback=fallback)


@pytest.mark.parametrize(
    ("field", "value"), [("target", ""), ("target", "0"), ("target", "x"), ("metricType", "Utilization")]
)
def test_modifiers_that_keda_refuses_are_an_error(field: str, value: str) -> None:
    with pytest.raises(Invalid, match=field):
        converted(A, formula="a", **{field: value})


IDLE = {"minReplicaCount": 4, "idleReplicaCount": 0}


def test_an_idle_count_of_zero_sleeps_without_active_triggers_and_has_the_minimum_with_them() -> None:
    found = scaledobject.convert(scaled({**A, "metadata": A["metadata"] | {"activationValue": "5"}}, B, CPU, **IDLE))
    assert found.hpa is not None
    assert found.hpa["spec"]["minReplicas"] == 0
    assert decided(found, {"a": 5, "b": 0, "cpu": 9}) == 0
    assert decided(found, {"a": 6, "b": 0, "cpu": 1}) == 4
    assert decided(found, {"a": 0, "b": 140, "cpu": 1}) == 7
    assert decided(found, {"a": 6, "b": 0, "cpu": 9}) == 9
    assert decided(found, {"a": 0, "b": 0, "cpu": None}, current=0) == 0


def test_only_external_metrics_wake_a_target_and_keep_it_awake() -> None:
    found = scaledobject.convert(scaled(A, CPU))
    assert decided(found, {"a": 0, "cpu": 3}) == 0
    assert decided(found, {"a": 1, "cpu": 3}) == 3
    assert decided(found, {"a": 100, "cpu": 3}) == 5
    awake = scaledobject.convert(scaled(A, CPU, minReplicaCount=1))
    assert "hpad.io/metric-policy" not in annotations(awake)
    alone = scaledobject.convert(scaled(A, B))
    assert "hpad.io/metric-policy" not in annotations(alone)


@pytest.mark.parametrize(
    "spec", [{"minReplicaCount": 0, "idleReplicaCount": 0}, {"minReplicaCount": 2, "idleReplicaCount": 2}]
)
def test_an_idle_count_that_keda_refuses_is_an_error(spec: dict[str, int]) -> None:
    with pytest.raises(Invalid, match="idleReplicaCount"):
        scaledobject.convert(scaled(A, **spec))


def test_an_idle_count_above_zero_is_a_loss() -> None:
    found = scaledobject.convert(scaled(A, minReplicaCount=4, idleReplicaCount=1))
    assert [note.field for note in found.notes if note.lost] == ["spec.idleReplicaCount"]
    assert found.hpa is not None
    assert found.hpa["spec"]["minReplicas"] == 4

"""What counts as measured values alone in a change of a status."""

from typing import Any

import msgspec
import pytest
from support.engine import START

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, from_builtins
from hpad.engine.conditions import differs_in_values_alone
from hpad.engine.settle import is_to_write
from hpad.engine.view import View

KINDS: dict[str, dict[str, Any]] = {
    "resource": {"name": "cpu"},
    "containerResource": {"name": "cpu", "container": "app"},
    "pods": {"metric": {"name": "packets"}},
    "object": {"metric": {"name": "requests"}, "describedObject": {"kind": "Ingress", "name": "main"}},
    "external": {"metric": {"name": "queue", "selector": {"matchLabels": {"queue": "orders"}}}},
}


def entry(kind: str = "external", **current: Any) -> dict[str, Any]:
    return {"type": kind[0].upper() + kind[1:], kind: {**KINDS[kind], "current": current}}


def condition(kind: str, status: str, message: str, reason: str = "FailedGetExternalMetric") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T11:00:00Z",
    }


ACTIVE = condition("ScalingActive", "True", "a count from external metric queue(5)", "ValidMetricFound")


def status(*metrics: dict[str, Any], conditions: tuple[dict[str, Any], ...] = (ACTIVE,), **fields: Any) -> Any:
    counts = {"currentReplicas": 3, "desiredReplicas": 3, "lastScaleTime": "2026-01-01T10:00:00Z"}
    body = {**counts, "currentMetrics": list(metrics), "conditions": list(conditions), **fields}
    return from_builtins({"metadata": {"name": "web"}, "status": body}).status


VALUE = entry(averageValue="47500m")
OLD = status(VALUE)


def view(old: HorizontalPodAutoscalerStatus, *, held: bool) -> View:
    return View(hpa=HorizontalPodAutoscaler(status=old), now=START, values_held=held)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["value", "averageValue", "averageUtilization"])
def test_the_values_of_each_type_of_metric(kind: str, field: str) -> None:
    one, other = (40, 60) if field == "averageUtilization" else ("40", "60500m")
    old, new = status(VALUE, entry(kind, **{field: one})), status(VALUE, entry(kind, **{field: other}))
    assert differs_in_values_alone(old, new)
    assert not is_to_write(view(old, held=True), new)
    assert is_to_write(view(old, held=False), new), "nothing is held"


def test_nothing_is_written_without_a_change() -> None:
    assert not is_to_write(view(OLD, held=False), msgspec.structs.replace(OLD))


MOVED = entry(averageValue="48")
FAILED = {"type": ""}
CPU = entry("resource", averageUtilization=40, averageValue="80m")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD, status(MOVED, currentReplicas=4)),
        (OLD, status(MOVED, desiredReplicas=4)),
        (OLD, status(MOVED, lastScaleTime="2026-01-01T10:00:15Z")),
        (OLD, status(MOVED, lastScaleTime=None)),
        (OLD, status(MOVED, observedGeneration=2)),
        (OLD, status(FAILED)),
        (status(FAILED), OLD),
        (OLD, status(VALUE, CPU)),
        (status(VALUE, CPU), status(CPU, VALUE)),
        (OLD, status(currentMetrics=None)),
        (OLD, status(entry("pods", averageValue="48"))),
        (OLD, status({**MOVED, "external": {**MOVED["external"], "metric": {"name": "other"}}})),
        (OLD, status(entry(value="48"))),
        (status(CPU), status(entry("resource", averageValue="80m"))),
        (status(CPU), status(entry("resource", averageUtilization=40))),
        (status(entry(value="48", averageValue="48")), OLD),
        (OLD, status(MOVED, conditions=())),
        (OLD, status(MOVED, conditions=({**ACTIVE, "status": "False"},))),
        (OLD, status(MOVED, conditions=({**ACTIVE, "reason": "Other"},))),
        (OLD, status(MOVED, conditions=({**ACTIVE, "message": "a count from cpu resource utilization"},))),
        (OLD, status(MOVED, conditions=({**ACTIVE, "message": "a count from external metric queue(6)"},))),
        (OLD, status(MOVED, conditions=({**ACTIVE, "lastTransitionTime": "2026-01-01T11:00:15Z"},))),
    ],
)
def test_everything_else_is_written_at_once(old: Any, new: Any) -> None:
    assert not differs_in_values_alone(old, new)
    assert is_to_write(view(old, held=True), new)


FAILS = "the HPA was unable to compute the replica count: "


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("queue orders has stalled: 40 messages wait", "queue orders has stalled: 1.25e+06 messages wait"),
        ("the reply is -3, which is not a count", "the reply is 7, which is not a count"),
        ("of 90% at most", "of 7.5% at most"),
    ],
)
@pytest.mark.parametrize(("kind", "holds"), [("ScalingActive", "False"), ("ExternalMetricFallbackActive", "True")])
def test_values_in_the_error_that_a_condition_quotes(one: str, other: str, kind: str, holds: str) -> None:
    old, new = (status(VALUE, conditions=(condition(kind, holds, FAILS + text),)) for text in (one, other))
    assert differs_in_values_alone(old, new)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rabbitmq is down", "rabbitmq is slow"),
        ("40 messages wait", "40 consumers wait"),
        ("http://10.0.0.7:9090 did not answer", "http://10.0.0.8:9090 did not answer"),
        ("no metrics of pod web-5", "no metrics of pod web-6"),
        ("no metrics of queue1", "no metrics of queue2"),
        ("version 1.2.3 is too old", "version 1.2.4 is too old"),
        ("is older than max_age 60s", "is older than max_age 30s"),
        ("answered 503 Service Unavailable", "answered 500 Internal Server Error"),
    ],
)
def test_other_texts_of_an_error_are_written_at_once(one: str, other: str) -> None:
    old, new = (status(VALUE, conditions=(condition("ScalingActive", "False", text),)) for text in (one, other))
    assert not differs_in_values_alone(old, new)


@pytest.mark.parametrize(
    "change", [{"status": "True"}, {"reason": "FailedGetPodsMetric"}, {"lastTransitionTime": "2026-01-01T11:00:15Z"}]
)
def test_other_changes_of_a_condition_that_quotes_an_error_are_written_at_once(change: dict[str, str]) -> None:
    failing = condition("ScalingActive", "False", "40 messages wait")
    assert not differs_in_values_alone(status(conditions=(failing,)), status(conditions=({**failing, **change},)))


@pytest.mark.parametrize(("kind", "holds"), [("AbleToScale", "False"), ("ScalingLimited", "True")])
def test_numbers_in_other_conditions_are_written_at_once(kind: str, holds: str) -> None:
    old, new = (status(VALUE, conditions=(condition(kind, holds, f"up to {count} pods"),)) for count in (4, 5))
    assert not differs_in_values_alone(old, new)

"""The table of HPAs in the demo."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.lab.cluster.columns import duration
from hpad.lab.demo import view
from hpad.lab.demo.style import Style

BORN = datetime(2026, 1, 1, tzinfo=UTC)
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
CPU_NOW = {
    "type": "Resource",
    "resource": {"name": "cpu", "current": {"averageUtilization": 305, "averageValue": "610m"}},
}


def external(target: dict[str, str]) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "queue_messages"}, "target": target}}


def external_now(current: dict[str, str]) -> dict[str, Any]:
    return {"type": "External", "external": {"metric": {"name": "queue_messages"}, "current": current}}


def hpa(metrics: list[Any], current: list[Any] | None) -> HorizontalPodAutoscaler:
    return from_builtins(
        {
            "metadata": {"name": "web", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 10,
                "metrics": metrics,
            },
            "status": {"currentReplicas": 7, "desiredReplicas": 7, "currentMetrics": current},
        }
    )


AVERAGE = external({"type": "AverageValue", "averageValue": "15"})


@pytest.mark.parametrize(
    ("current", "number"),
    [
        ([CPU_NOW], 305),
        ([external_now({"value": "80"})], 80),
        ([external_now({"value": "0"})], 0),
        ([external_now({"averageValue": "11429m"})], 80),
        ([external_now({"averageValue": "0"})], 0),
        (None, None),
        ([], None),
    ],
)
def test_a_missing_reading_is_none_not_zero(current: list[Any] | None, number: float | None):
    assert view.reading(hpa([CPU], current)) == number


def test_a_row_has_a_cell_for_each_heading():
    row = view.row(hpa([CPU], [CPU_NOW]), BORN + timedelta(seconds=34))
    assert dict(zip(view.HEADINGS, row, strict=True)) == {
        "NAME": "web",
        "REFERENCE": "Deployment/web",
        "TARGETS": "cpu: 305%/50%",
        "MINPODS": "1",
        "MAXPODS": "10",
        "REPLICAS": "7",
        "AGE": "34s",
    }


def test_columns_are_aligned_with_their_headings():
    rows = [view.row(hpa([CPU], [CPU_NOW]), BORN), view.row(hpa([CPU, AVERAGE], None), BORN)]
    head, *lines = view.render(rows, Style())
    for line in lines:
        assert line.index("Deployment") == head.index("REFERENCE")
        assert line[head.index("REPLICAS")] == "7"


def test_a_narrow_terminal_narrows_the_gaps_first():
    rows = [view.row(hpa([CPU], [CPU_NOW]), BORN)]
    assert all(len(line) <= 72 for line in view.render(rows, Style(), width=72))
    assert "cpu: 305%/50%" in view.render(rows, Style(), width=72)[1]
    assert all(len(line) <= 30 for line in view.render(rows, Style(), width=30))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0s"), (-3, "0s"), (119.9, "119s"), (120, "2m"), (125, "2m5s"), (700, "11m")]
)
def test_age(seconds: float, shown: str):
    assert duration(seconds) == shown

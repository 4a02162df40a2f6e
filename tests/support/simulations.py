"""HPAs and runs for the tests of simulations."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hpad.api import hpa as v2
from hpad.api.hpa import HorizontalPodAutoscaler, from_builtins
from hpad.engine.view import Tunables
from hpad.simulation.run import Simulated, Workload, simulate

START = datetime(2026, 1, 1, tzinfo=UTC)
CPU: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
BACKLOG: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue_messages"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def hpa(metric: dict[str, Any], low: int = 1, high: int = 40, **spec: Any) -> HorizontalPodAutoscaler:
    """Returns an HPA with one metric and the defaults of the API server."""
    target = {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}
    fields = {"scaleTargetRef": target, "minReplicas": low, "maxReplicas": high, "metrics": [metric], **spec}
    return v2.defaulted(from_builtins({"metadata": {"name": "web", "namespace": "shop"}, "spec": fields}))


def turns(found: HorizontalPodAutoscaler, workload: Workload, minutes: float, **tunables: Any) -> list[Simulated]:
    """Runs so many minutes at a period of 15 s."""
    return list(run(found, workload, minutes, **tunables))


def run(found: HorizontalPodAutoscaler, workload: Workload, minutes: float, **tunables: Any) -> Iterator[Simulated]:
    """Yields the turns one by one, so that the workload can be looked at after each."""
    length = timedelta(minutes=minutes)
    period = timedelta(seconds=15)
    return simulate(found, workload, start=START, length=length, period=period, tunables=Tunables(**tunables))


def counts(found: Sequence[Simulated]) -> list[int]:
    """Returns the counts that the turns left, without repetitions."""
    left = [turn.after for turn in found]
    return [count for index, count in enumerate(left) if index == 0 or count != left[index - 1]]

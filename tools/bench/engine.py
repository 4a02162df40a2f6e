"""Benchmark of a decision: `python tools/bench/engine.py` prints decisions per second on one core.

It runs a turn of one HPA, with one CPU metric and five pods, and with four metrics and twenty pods
(CPU and memory, each of the pod and of a container): usage varies, the behavior is the default one, and the history is
that of a five-minute window; the spec is decoded before. `--short` decides 20 times.
"""

import statistics
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus, from_builtins
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue
from hpad.engine import turn
from hpad.engine.history import History
from hpad.engine.view import Tunables, View

SHORT = "--short" in sys.argv[1:]
DECISIONS = 20 if SHORT else 2_000
RUNS = 1 if SHORT else 7
SIZES = ((1, 5), (4, 20))
"""Numbers of metrics and of pods."""
START = datetime(2026, 1, 1, tzinfo=UTC)
HPA = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "minReplicas": 1,
        "maxReplicas": 40,
        "behavior": {
            "scaleUp": {
                "stabilizationWindowSeconds": 0,
                "selectPolicy": "Max",
                "policies": [
                    {"type": "Pods", "value": 4, "periodSeconds": 15},
                    {"type": "Percent", "value": 100, "periodSeconds": 15},
                ],
            },
            "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
        },
    },
}


def spec(metrics: int) -> dict[str, Any]:
    """Returns the HPA with so many metrics."""
    target = {"type": "Utilization", "averageUtilization": 50}
    resources = [{"name": name, "target": target} for name in ("cpu", "memory")]
    whole = [{"type": "Resource", "resource": each} for each in resources]
    parts = [{"type": "ContainerResource", "containerResource": {"container": "app", **each}} for each in resources]
    return {**HPA, "spec": {**HPA["spec"], "metrics": (whole + parts)[:metrics]}}


def samples(pods: int, now: datetime) -> list[PodSample]:
    """Returns answers of the metrics API, from idle to busy."""
    moment = now + timedelta(days=1)
    return [
        PodSample({f"web-{pod}": PodValue(used + pod, moment, timedelta(seconds=30)) for pod in range(pods)}, moment)
        for used in (60, 90, 100, 104, 140, 99, 10)
    ]


def run(metrics: int, size: int) -> float:
    """Returns seconds per decision."""
    hpa, history, tunables = from_builtins(spec(metrics)), History(), Tunables()
    scale = Scale(spec=ScaleSpec(size), status=ScaleStatus(size, "app=web"))
    request = (ContainerRequests("app", {"cpu": 200, "memory": 200}),)
    pods = [
        Pod(name=f"web-{n}", phase="Running", start_time=START, ready="True", ready_since=START, containers=request)
        for n in range(size)
    ]
    answers = samples(size, START)
    begin = time.perf_counter()
    for index in range(DECISIONS):
        now = START + timedelta(hours=1, seconds=15 * index)
        view = View(hpa=hpa, now=now, tunables=tunables, history=history, scale=scale, pods=pods)
        found = (answers[index % len(answers)],) * metrics
        done = turn.run(view, lambda _: found)  # noqa: B023  # it is called at once
        history = done.settlement.history
        if done.settlement.status_changed:
            hpa = msgspec.structs.replace(hpa, status=done.settlement.status)
    return (time.perf_counter() - begin) / DECISIONS


def main() -> None:
    for metrics, pods in SIZES:
        run(metrics, pods)
        cost = statistics.median(run(metrics, pods) for _ in range(RUNS))
        decisions = f"{1 / cost:,.0f} decisions per second, {cost * 1e6:.0f} µs a decision"
        print(f"engine: {decisions} ({metrics} metric{'s' * (metrics > 1)}, {pods} pods)")


if __name__ == "__main__":
    main()

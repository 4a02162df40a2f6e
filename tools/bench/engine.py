"""Benchmark of a decision: `python tools/bench/engine.py` prints decisions per second on one core.

It runs examine, decide and settle for one HPA with one CPU metric, five pods of varying usage, the default behavior and
the history of a five-minute window; the spec is decoded before. `--short` decides 20 times.
"""

import statistics
import sys
import time
from datetime import UTC, datetime, timedelta

import msgspec

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus, from_builtins
from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import PodSample, PodValue
from hpad.engine import decide, examine, settle
from hpad.engine.history import History
from hpad.engine.view import Tunables, View

SHORT = "--short" in sys.argv[1:]
DECISIONS = 20 if SHORT else 2_000
RUNS = 1 if SHORT else 7
PODS = 5
START = datetime(2026, 1, 1, tzinfo=UTC)
HPA = {
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"},
        "minReplicas": 1,
        "maxReplicas": 10,
        "metrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
            }
        ],
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


def samples(now: datetime) -> list[PodSample]:
    """Returns answers of the metrics API, from idle to busy."""
    moment = now + timedelta(days=1)
    return [
        PodSample({f"web-{pod}": PodValue(used + pod, moment, timedelta(seconds=30)) for pod in range(PODS)}, moment)
        for used in (60, 90, 100, 104, 140, 99, 10)
    ]


def run() -> float:
    """Returns seconds per decision."""
    hpa, history, tunables = from_builtins(HPA), History(), Tunables()
    scale = Scale(spec=ScaleSpec(PODS), status=ScaleStatus(PODS, "app=web"))
    request = (ContainerRequests("app", {"cpu": 200}),)
    pods = [
        Pod(name=f"web-{n}", phase="Running", start_time=START, ready="True", ready_since=START, containers=request)
        for n in range(PODS)
    ]
    answers = samples(START)
    begin = time.perf_counter()
    for index in range(DECISIONS):
        now = START + timedelta(hours=1, seconds=15 * index)
        view = View(hpa=hpa, now=now, tunables=tunables, history=history, scale=scale, pods=pods)
        verdict = examine.examine(view)
        decision = decide.decide(view, verdict, (answers[index % len(answers)],))
        outcome = None if decision.scale_to is None else settle.Outcome((decision.scale_to,))
        settlement = settle.settle(view, decision, outcome)
        history = settlement.history
        if settlement.status_changed:
            hpa = msgspec.structs.replace(hpa, status=settlement.status)
    return (time.perf_counter() - begin) / DECISIONS


def main() -> None:
    run()
    cost = statistics.median(run() for _ in range(RUNS))
    print(f"engine: {1 / cost:,.0f} decisions per second, {cost * 1e6:.0f} µs a decision (1 CPU metric, {PODS} pods)")


if __name__ == "__main__":
    main()

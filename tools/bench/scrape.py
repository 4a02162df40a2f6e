"""Benchmark of a scrape: `python -m tools.bench.scrape` prints what rendering the series of many HPAs costs.

Each HPA has one metric. The first line is without the series of decisions, the second with them. `--short` renders the
series of 20 HPAs once.
"""

import sys
import time

import prometheus_client

from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus, from_builtins
from hpad.api.metadata import Key
from hpad.api.sample import ExternalSample
from hpad.clock import EPOCH
from hpad.engine.history import EMPTY
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import Tunables, View
from hpad.telemetry import Telemetry

SHORT = "--short" in sys.argv[1:]
HPAS = 20 if SHORT else 5_000
RUNS = 1 if SHORT else 7


def decided(key: Key) -> Reconcile:
    """Returns a decision with one metric, which a stabilization window holds: three replicas stay, one is wanted."""
    target = {"type": "AverageValue", "averageValue": "15"}
    metric = {"type": "External", "external": {"metric": {"name": "queue"}, "target": target}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": key.name},
        "maxReplicas": 10,
        "metrics": [metric],
    }
    hpa = from_builtins({"metadata": {"namespace": key.namespace, "name": key.name}, "spec": spec})
    scale = Scale(spec=ScaleSpec(3), status=ScaleStatus(3, f"app={key.name}"))
    view = View(hpa=hpa, now=EPOCH, tunables=Tunables(), history=EMPTY, scale=scale)
    return run(view, lambda _: [ExternalSample((15_000,), EPOCH)])


def scrape(*, decisions: bool) -> tuple[float, bytes]:
    """Returns the seconds of the fastest scrape, and its text."""
    telemetry = Telemetry()
    for index in range(HPAS):
        key = Key(f"namespace-{index % 50}", f"application-{index}")
        telemetry.controller.desired(key, 3, 10, 0.0)
        if decisions:
            telemetry.controller.decisions.decided(decided(key))
    found = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        text = prometheus_client.generate_latest(telemetry.registry)
        found.append((time.perf_counter() - begin, text))
    return min(found)


def main() -> None:
    for decisions in (False, True):
        seconds, text = scrape(decisions=decisions)
        samples = sum(not line.startswith(b"#") for line in text.splitlines())
        which = "with" if decisions else "without"
        print(
            f"scrape of {HPAS:,} HPAs {which} the series of decisions: {samples:,} samples, {len(text) / 1e6:.1f} MB,"
            f" {seconds * 1e3:,.0f} ms"
        )


if __name__ == "__main__":
    main()

"""Benchmark of a scrape: `python -m tools.bench.scrape` prints what rendering the series of many HPAs costs.

Each HPA has one metric. The first line is without the series of decisions, the second with them. `--short` renders the
series of 20 HPAs once.
"""

import sys
import time

import prometheus_client

from hpad.api.metadata import Key
from hpad.telemetry import Telemetry
from hpad.telemetry.controller import HpaFigures, MetricFigures

SHORT = "--short" in sys.argv[1:]
HPAS = 20 if SHORT else 5_000
RUNS = 1 if SHORT else 7
FIGURES = HpaFigures(1, 10, 3, 4, 3, ("stabilization",), (MetricFigures("cpu", 0.5, 0.61, 4),))


def run(*, decisions: bool) -> tuple[float, bytes]:
    """Returns the seconds of the fastest scrape, and its text."""
    telemetry = Telemetry()
    for index in range(HPAS):
        key = Key(f"namespace-{index % 50}", f"application-{index}")
        telemetry.controller.desired(key, 3, 10, 0.0)
        if decisions:
            telemetry.controller.decisions.decided(key, lambda: FIGURES)
    found = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        text = prometheus_client.generate_latest(telemetry.registry)
        found.append((time.perf_counter() - begin, text))
    return min(found)


def main() -> None:
    for decisions in (False, True):
        seconds, text = run(decisions=decisions)
        samples = sum(not line.startswith(b"#") for line in text.splitlines())
        which = "with" if decisions else "without"
        print(
            f"scrape of {HPAS:,} HPAs {which} the series of decisions: {samples:,} samples, {len(text) / 1e6:.1f} MB,"
            f" {seconds * 1e3:,.0f} ms"
        )


if __name__ == "__main__":
    main()

"""The command line of the bench."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.bench.cluster.controllers import HPAD, ORIGINAL, Program
from tools.bench.cluster.measure import Plan
from tools.bench.cluster.population import MOST_METRICS, Population

SERVERS: Final = ("stub", "embedded", "real")
_MANY: Final = 1000
"""HPAs for which the original's default of five workers suffices."""
_DESCRIPTION: Final = """\
Measures what a reconcile costs: hpad as a process of its own, with an API server in another one, on loopback.

Each of N HPAs has a Deployment with pods; their usage moves within the tolerance, so that nearly every reconcile writes
a status and none scales. After the first round and a warm-up the figures are taken over a steady window.

servers:
  stub      canned answers over TLS: shows the cost of hpad itself, also at 10,000 HPAs
  embedded  the API server of the embedded cluster, without TLS
  real      etcd and kube-apiserver from the folder KUBEBUILDER_ASSETS; kube-controller-manager there is measured as
            well, in turn with hpad

With --storms the window is followed by what happens all at once in a cluster: a namespace is deleted, all pods are
restarted, the metrics API fails for a while, all connections are closed, a second instance takes over. That
needs the stub, and hpad keeps its state in ConfigMaps.
"""


class Options(NamedTuple):
    server: str
    hpas: tuple[int, ...]
    pods: int
    metrics: int
    per_namespace: int
    period: float
    warm: float
    window: float
    rounds: int
    original: bool
    syncs: int | None
    tls: bool
    json: Path | None
    chart: Path | None
    profile: Path | None
    calls: Path | None
    autoscalers: bool
    storms: bool
    outage: float
    python: str
    flags: tuple[str, ...]

    def program(self, hpas: int) -> Program:
        """Returns how the controllers are run; profiles of several sizes have names of their own."""
        profile = None
        for kind, file in (("sample", self.profile), ("calls", self.calls)):
            if file is not None:
                own = file.with_stem(f"{file.stem}-{hpas}") if len(self.hpas) > 1 else file
                profile = (kind, own)
        return Program(self.period, self.flags, profile, self.syncs or (5 if hpas <= _MANY else 50), self.python)

    @property
    def controllers(self) -> tuple[str, ...]:
        """The controllers that are measured in turn."""
        there = self.server == "real" and Path(os.environ.get("KUBEBUILDER_ASSETS", ""), ORIGINAL).exists()
        return (HPAD, ORIGINAL) if there and self.original else (HPAD,)

    @property
    def plan(self) -> Plan:
        return Plan(self.period, self.warm, self.window)

    def population(self, hpas: int) -> Population:
        return Population(hpas, self.pods, self.metrics, self.per_namespace, self.autoscalers)


def parsed(arguments: Sequence[str]) -> Options:
    """Parses the arguments; those after `--` are flags for `hpad run`. Exits as argparse does."""
    ours, flags = list(arguments), ()
    if "--" in ours:
        at = ours.index("--")
        ours, flags = ours[:at], tuple(ours[at + 1 :])
    parser = _parser()
    options = vars(parser.parse_args(ours))
    if options.pop("short"):
        options |= {"hpas": (10,), "per_namespace": 5, "period": 1.0, "warm": 1.0, "window": 3.0, "outage": 2.0}
    if options["autoscalers"] and (options["server"] != "stub" or options["storms"]):
        parser.error("--autoscalers needs the stub server, without --storms")
    if options["storms"] and (problem := _problem(options)):
        parser.error(problem)
    return Options(**options, flags=flags)


def _problem(options: Mapping[str, Any]) -> str:
    """Returns why storms cannot be measured with these options, "" if they can."""
    if options["server"] != "stub":
        return "--storms need the stub server"
    if options["rounds"] > 1 or any(options[name] is not None for name in ("chart", "profile", "calls")):
        return "--storms know no --rounds, --chart, --profile and --calls"
    if not 0 < options["per_namespace"] < min(options["hpas"]):
        return "--storms need two namespaces or more: one is deleted"
    return ""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.cluster",
        usage="%(prog)s [option ...] [-- FLAG_OF_HPAD_RUN ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--server", choices=SERVERS, default="stub", help="the API server (default: stub)")
    parser.add_argument(
        "--hpas", type=_counts, default=(1000, 5000), metavar="N,N", help="sizes, one run each (default: 1000,5000)"
    )
    parser.add_argument("--pods", type=int, default=4, metavar="P", help="pods of each HPA (default: 4)")
    parser.add_argument(
        "--metrics", type=int, choices=range(1, MOST_METRICS + 1), default=1,
        help="metrics of each HPA: cpu, memory, and both of the container (default: 1)",
    )  # fmt: skip
    parser.add_argument(
        "--per-namespace", type=int, default=50, metavar="K", help="HPAs of a namespace; 0: all in one (default: 50)"
    )
    parser.add_argument("--period", type=float, default=15.0, metavar="S", help="sync period (default: 15)")
    parser.add_argument("--warm", type=float, default=30.0, metavar="S", help="time before the window (default: 30)")
    parser.add_argument("--window", type=float, default=60.0, metavar="S", help="whole periods (default: 60)")
    parser.add_argument("--rounds", type=int, default=1, metavar="R", help="turns of each controller (default: 1)")
    parser.add_argument("--no-original", dest="original", action="store_false", help="measure hpad alone")
    parser.add_argument(
        "--syncs", type=int, metavar="N", help="workers of the original (default: 5, above 1,000 HPAs 50)"
    )
    parser.add_argument("--no-tls", dest="tls", action="store_false", help="the stub serves without TLS")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to a file")
    parser.add_argument("--chart", type=Path, metavar="FILE", help="write a chart (SVG)")
    parser.add_argument(
        "--python", default=sys.executable, metavar="FILE",
        help="the interpreter that runs hpad, such as that of an environment without packages for development, as"
        " structlog imports rich where it finds it (default: the one of the bench)",
    )  # fmt: skip
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--profile", type=Path, metavar="FILE", help="write a sampling profile of hpad in the window")
    kinds.add_argument("--calls", type=Path, metavar="FILE", help="write its calls; the other figures are useless then")
    parser.add_argument("--autoscalers", action="store_true", help="measure Autoscalers instead of HPAs (stub)")
    parser.add_argument("--storms", action="store_true", help="measure storms after the window")
    parser.add_argument(
        "--outage",
        type=float,
        default=60.0,
        metavar="S",
        help="how long the metrics API fails in a storm (default: 60)",
    )
    parser.add_argument("--short", action="store_true", help="10 HPAs, a period of 1 s, and a window of 3 s")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(each.replace("_", "")) for each in text.split(","))

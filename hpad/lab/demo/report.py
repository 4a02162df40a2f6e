"""The report at the end of the demo: text with charts, or one object for JSON."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpad.api.text import harmless_lines
from hpad.lab.demo import chart
from hpad.lab.demo.chart import Point
from hpad.lab.demo.style import Style
from hpad.lab.demo.view import clock_time


@dataclass(frozen=True)
class Rescale:
    """A change of the desired replicas, with the decision's sentence and the TARGETS column at that time."""

    at: float
    before: int
    after: int
    targets: str
    sentence: str


@dataclass(frozen=True)
class Result:
    """The result of one half; `problem` is why it failed, `""` if it did not.

    - `reacted`: seconds from the start of the load to the first decision to scale up; `because` explains them.
    - `peaked`: seconds from the start of the load until all replicas of the peak ran.
    - `returned`: seconds from the end of the load until only the minimum ran.
    - `consumers`: the maximum that the broker counted.
    """

    name: str
    heading: str
    label: str
    points: Sequence[Point]
    rescales: Sequence[Rescale]
    decisions: int
    start: int
    peak: int
    end: int
    reading: str = ""
    reacted: float | None = None
    because: str = ""
    peaked: float | None = None
    returned: float | None = None
    consumers: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Report:
    """The results of the demo. `requests` is hpad's number of API requests; `skipped` is why a half was left out."""

    results: Sequence[Result]
    seconds: float
    requests: int
    skipped: str = ""

    @property
    def ok(self) -> bool:
        return bool(self.results) and not any(result.problem for result in self.results)


NEXT = (
    ("cluster --hpad FILE…", "a cluster on this machine, for your own manifests and kubectl"),
    ("explain NAME", "why an HPA of that cluster has its replica count"),
    ("convert FILE…", "a KEDA ScaledObject or an old HPA, as autoscaling/v2"),
    ("doctor --kubeconfig FILE", "whether hpad will work in your cluster; changes nothing"),
    ("run --dry-run --kubeconfig FILE", "decides for the HPAs of your cluster, and writes nothing"),
)
"""Commands to try after the demo, and their purposes."""


def text(report: Report, width: int, style: Style, program: str = "hpad") -> list[str]:
    """Returns the lines of charts, results and next commands; `program` is the command that runs hpad."""
    lines: list[str] = []
    for result in report.results:
        lines += ["", style.bold(result.heading), *chart.chart(result.points, width, style, label=result.label)]
    if report.results:
        lines += ["", style.bold("What was seen"), *_seen(report, width, style)]
    if report.skipped:
        lines += ["", *textwrap.wrap(report.skipped, width)]
    lines += ["", *_verdict(report, width, style)]
    return [*lines, "", *_next(program, width, style)] if report.ok else lines


def _next(program: str, width: int, style: Style) -> list[str]:
    lines = [style.bold(line) for line in _wrapped("Next, with your own workloads (see README.md)", width, 2)]
    commands = [(f"  {program} {command}", purpose) for command, purpose in NEXT]
    column = max(len(command) for command, _ in commands) + 2
    if column + max(len(purpose) for _, purpose in commands) <= width:
        return [*lines, *(command.ljust(column) + purpose for command, purpose in commands)]
    for command, purpose in commands:
        lines += [command, *_wrapped(f"      {purpose}", width, 6)]
    return lines


def _seen(report: Report, width: int, style: Style) -> list[str]:
    lines = [line for result in report.results for line in _result(result, width, style)]
    decisions = sum(result.decisions for result in report.results)
    per_decision = f" ({report.requests / decisions:.1f} a decision)" if decisions else ""
    total = (
        f"  {decisions} decisions in {report.seconds:.0f} s, {report.requests} requests to the API server{per_decision}"
    )
    return [*lines, *_wrapped(total, width, 2)]


def _result(result: Result, width: int, style: Style) -> list[str]:
    path = " → ".join(str(count) for count in (result.start, result.peak, result.end))
    facts = [f"from {result.reading}"] if result.reading else []
    if result.reacted is not None:
        because = f" ({result.because})" if result.because else ""
        facts.append(f"decided {result.reacted:.1f} s after the load came{because}")
    if result.peaked is not None:
        facts.append(f"{result.peak} running after {result.peaked:.1f} s")
    if result.consumers is not None:
        facts.append(f"{result.consumers} consumers by the broker's own count")
    if result.returned is not None:
        when = f"{result.returned:.1f} s after" if result.returned >= 1 else "as soon as"
        facts.append(f"back at {result.end} replica{'s' * (result.end != 1)} {when} the load was over")
    head = f"  {style.bold(result.name)}  {path} replicas"
    lines = [head, *_wrapped(f"    {', '.join(facts)}", width, 4)]
    for each in result.rescales:
        lines += _wrapped(f"    {clock_time(each.at)}  {each.sentence}", width, 10)
    return lines


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(harmless_lines(text), width, subsequent_indent=" " * indent)


def _verdict(report: Report, width: int, style: Style) -> list[str]:
    problems = [f"✗ {result.name}: {result.problem}" for result in report.results if result.problem]
    if not report.results:
        problems = ["✗ there was nothing to show"]
    if any(result.problem for result in report.results):
        problems.append("  `hpad demo --keep-logs DIR` keeps what all the programs wrote")
    if problems:
        return [style.bad(line) for problem in problems for line in _wrapped(problem, width, 2)]
    return [style.good(line) for line in _wrapped("✓ the replicas followed the load, up and back down", width, 2)]


def machine(report: Report) -> dict[str, Any]:
    """Returns the report as plain builtins."""
    return {
        "ok": report.ok,
        "seconds": round(report.seconds, 1),
        "requests": report.requests,
        "skipped": report.skipped,
        "halves": [_machine_half(result) for result in report.results],
    }


def _machine_half(result: Result) -> dict[str, Any]:
    return {
        "name": result.name,
        "ok": not result.problem,
        "problem": result.problem,
        "replicas": {"start": result.start, "peak": result.peak, "end": result.end},
        "targetsAtScaleUp": result.reading,
        "consumers": result.consumers,
        "decisions": result.decisions,
        "secondsToDecide": _rounded(result.reacted),
        "secondsToPeak": _rounded(result.peaked),
        "secondsToReturn": _rounded(result.returned),
        "rescales": [
            {
                "at": round(each.at, 1),
                "from": each.before,
                "to": each.after,
                "targets": each.targets,
                "why": each.sentence,
            }
            for each in result.rescales
        ],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)

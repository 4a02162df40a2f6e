"""`hpad backtest`: what an HPA would have done with the past, and another spec beside it."""

import argparse
import concurrent.futures
import functools
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from hpad.api import numbers
from hpad.api.hpa import HorizontalPodAutoscaler, titled
from hpad.api.text import meant, shown
from hpad.cli import manifest, moments, output, simulate_text, simulate_workload
from hpad.cli.output import Failure, WrongUse, counted
from hpad.cli.replay import located
from hpad.clock import SystemClock
from hpad.engine.styled import BLANK, GOOD, QUIET, WARN, Line, Span, labelled, line, table
from hpad.engine.view import Tunables
from hpad.engine.words import span
from hpad.records import replay
from hpad.records.format import decode_scenario
from hpad.settings import Settings
from hpad.simulation import backtest, history
from hpad.simulation.advice.own_history import recorded_pasts
from hpad.simulation.backtest import Candidate, Goal, RecordedBacktest, Result
from hpad.simulation.history import REPLICAS, LoadHistory
from hpad.simulation.outcome import verdict
from hpad.simulation.past import PastLoad, PastModel, assumptions
from hpad.simulation.report import BacktestReport, page, span_of
from hpad.simulation.thinning import MetricChart, metric_charts

HELP: Final = "what an HPA would have done with the past"
DESCRIPTION: Final = """\
Backtest an HPA: run the decisions of hpad over the past load of a workload, and compare specs. The past is a recording
of `hpad run --record`, a CSV file, or range queries of Prometheus. Nothing is written to a cluster; docs/backtest.md
says what is measured and what is modelled."""

EPILOG: Final = f"""\
examples:
  hpad backtest web.yaml --recording ./records --set spec.maxReplicas=20
                                        the recorded HPA beside the one with another maximum
  hpad backtest web.yaml new.yaml --csv week.csv --price 0.04 --report week.html
                                        two manifests over a week, as a page with charts
  hpad backtest web.yaml --prometheus http://localhost:9090 --from 168h --step 1m \\
      --query cpu='100 * avg(rate(container_cpu_usage_seconds_total{{pod=~"web-.*"}}[5m])) / 0.5' \\
      --query replicas='kube_deployment_status_replicas{{deployment="web"}}'
  hpad backtest web.yaml --csv week.csv --queue orders=published,acked
                                        a queue, by what was published and acknowledged per second
  hpad backtest web.yaml --csv week.csv --price 0.04 \\
      --search 'spec.metrics[0].resource.target.averageUtilization=50,60,70,80' \\
      --search spec.behavior.scaleDown.stabilizationWindowSeconds=60,300,900

A TIME is {moments.FORMS}.

exit status: 0 success, 1 a manifest or the history is wrong, 2 wrong use"""

_WIDTH: Final = 11
_MOST_TURNS: Final = 2_500_000
"""More than a year with a reconcile each 15 seconds, in some minutes."""
_SHOWN: Final = 40
"""Rescales and candidates that are printed; the report and JSON have all."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("manifest", metavar="MANIFEST", help="file with the HPA")
    parser.add_argument("other", metavar="MANIFEST2", nargs="?", help="file with another form of it")
    manifest.add_arguments(parser)
    past = parser.add_argument_group("the past")
    source = past.add_mutually_exclusive_group(required=True)
    source.add_argument("--recording", metavar="FILE", help="file or folder of `hpad run --record`")
    source.add_argument("--csv", type=Path, metavar="FILE", help="columns: time, one per metric, replicas")
    source.add_argument("--prometheus", metavar="URL", help="range queries of this server, one --query per column")
    past.add_argument(
        "--query", metavar="COLUMN=PROMQL", action="append", default=[], help="column: a metric's address, or replicas"
    )
    past.add_argument("--prometheus-token-file", type=Path, metavar="FILE", help="file with a bearer token")
    past.add_argument("--prometheus-ca-file", type=Path, metavar="FILE", help="authorities of the certificate (PEM)")
    past.add_argument("--from", dest="begin", metavar="TIME", help="from this time on")
    past.add_argument("--to", dest="end", metavar="TIME", help="up to this time")
    past.add_argument("--step", metavar="DURATION", type=numbers.some_seconds, default=60.0, help="of queries (1m)")
    past.add_argument(
        "--shared",
        metavar="METRIC",
        action="append",
        default=[],
        help="an Object or External metric with an averageValue that falls as replicas grow; others do not depend on"
        " the count",
    )
    simulate_workload.add_argument(past)
    past.add_argument("--startup", metavar="DURATION", type=numbers.seconds, default=10.0, help="of a replica (10s)")
    past.add_argument("--lag", metavar="DURATION", type=numbers.seconds, default=0.0, help="until a value is seen (0s)")
    past.add_argument("--period", metavar="DURATION", type=numbers.some_seconds, help=manifest.PERIOD)
    parser.add_argument("--price", metavar="PRICE", type=numbers.number, default=None, help="of one replica per hour")
    parser.add_argument(
        "--search",
        metavar="PATH=A,B,…",
        action="append",
        default=[],
        help=f"try all combinations of these values, up to {backtest.MOST}; may be repeated",
    )
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page (HTML) with charts")
    output.add_format(parser)
    output.add_color(parser)


class _Case(NamedTuple):
    """One form of the HPA, and its name in the output."""

    name: str
    hpa: HorizontalPodAutoscaler


def run(args: argparse.Namespace) -> int:
    if args.query and args.prometheus is None:
        raise WrongUse("--query is for --prometheus")
    settings = manifest.tunables(args)
    if args.search:
        return _search(args, settings)
    cases = _cases(args, settings)
    report = _compared(args, settings, cases)
    if args.report is not None:
        output.write_report(args.report, page(report))
    output.show(args, _as_json(report), _as_lines(report))
    return 0


def _cases(args: argparse.Namespace, settings: Settings) -> list[_Case]:
    first = manifest.read(args.manifest, args.hpa, (), settings)
    cases = [_Case(args.manifest, first)]
    if args.other is not None:
        if args.changes:
            raise WrongUse("--set changes MANIFEST; leave MANIFEST2 out, or write the change into it")
        other = manifest.read(args.other, args.hpa, (), settings)
        return [*cases, _Case(args.other, other)]
    if not args.changes:
        return cases
    return [*cases, _Case(" ".join(args.changes), manifest.changed(first, args.changes, settings))]


def _compared(args: argparse.Namespace, settings: Settings, cases: Sequence[_Case]) -> BacktestReport:
    periods = [manifest.period(args.period, case.hpa, settings.sync_period) for case in cases]
    metrics: tuple[MetricChart, ...] = ()
    notes = list(dict.fromkeys(text for case in cases for text in manifest.mistakes(case.hpa)))
    if args.recording is not None:
        results, repeated = _over_recording(args, cases)
        metrics = _recorded_metrics(args, cases[0].hpa)
        source = f"recording {args.recording}"
        notes += [_modelled(each) for each in results if each.modelled]
        if repeated:
            notes.append(f"{counted(repeated, 'reconcile')} left out: the recording has others of the same time before")
    else:
        found = _history(args)
        for each in periods:
            _check_length(found, each)
        past = _past(args)
        first = backtest.as_recorded(found, settings.tunables.downscale_stabilization)
        results = [] if first is None else [first]
        results += [
            backtest.over(case.name, case.hpa, found, past, period, settings.tunables)
            for case, period in zip(cases, periods, strict=True)
        ]
        queues = PastModel(cases[0].hpa, found, past).backlogs
        metrics = metric_charts(cases[0].hpa, found)
        source = str(args.csv or args.prometheus)
        notes += assumptions(cases[0].hpa, queues, args.shared)
    parameters = {"past": source}
    if args.recording is None:  # a recording has the times of its reconciles, its pods and the ages of its values
        parameters["period"] = ", ".join(span(each.total_seconds()) for each in dict.fromkeys(periods))
        parameters |= {"startup": f"{args.startup:g}s", "lag": f"{args.lag:g}s"}
    key = cases[0].hpa.key
    return BacktestReport(str(key), parameters, results, metrics, notes, args.price)


def _modelled(result: Result) -> str:
    since = "" if result.since is None else f" from {result.since:%Y-%m-%d %H:%M:%SZ} on"
    turns = counted(result.modelled, "reconcile")
    return f"{result.name}: {turns}{since} had another count than recorded; their values are modelled, not measured"


def _check_length(found: LoadHistory, period: timedelta) -> None:
    """Raises Failure for a history without a second turn, and for one of decades, such as one with a wrong time."""
    length = found.end - found.start
    if length < period:
        lengths = f"{span(length.total_seconds())}, is shorter than the period, {span(period.total_seconds())}"
        raise Failure(f"the history, {lengths}")
    if length // period > _MOST_TURNS:
        times = f"{found.start:%Y-%m-%d} to {found.end:%Y-%m-%d}"
        most = f"at most {_MOST_TURNS} are simulated: choose a part with --from and --to, or a longer --period"
        raise Failure(f"the history of {times} has {length // period} reconciles; {most}")


def _past(args: argparse.Namespace) -> PastLoad:
    return PastLoad(args.startup, args.lag, frozenset(args.shared), simulate_workload.parse(args.queue))


def _history(args: argparse.Namespace) -> LoadHistory:
    begin, end = moments.between(args)
    if args.csv is not None:
        return history.read_csv(args.csv).between(begin, end)
    from hpad.simulation import prometheus  # imported late: it loads requests

    if begin is None:
        raise WrongUse("--prometheus needs --from TIME")
    queries = dict(_query(text) for text in args.query)
    if not queries:
        raise WrongUse("--prometheus needs --query COLUMN=PROMQL, one per metric, and one of replicas")
    server = prometheus.QueriedPrometheus(args.prometheus, args.prometheus_token_file, args.prometheus_ca_file)
    return prometheus.read(server, queries, begin, end or SystemClock().now(), args.step, _progress)


def _query(text: str) -> tuple[str, str]:
    column, equals, expression = text.partition("=")
    if not equals or not column.strip() or not expression.strip():
        raise WrongUse(f"--query {shown(text)}: COLUMN=PROMQL is needed, as in {REPLICAS}=kube_replicas")
    return column.strip(), expression


def _progress(column: str, done: int, of: int) -> None:
    if not sys.stderr.isatty():
        return
    end = "\n" if done == of else "\r"
    print(f"{column}: part {done} of {of}", end=end, file=sys.stderr, flush=True)


def _say_left_out(text: str) -> None:
    print(f"hpad: left out: {text}", file=sys.stderr)


def _over_recording(args: argparse.Namespace, cases: Sequence[_Case]) -> tuple[list[Result], int]:
    """Returns the results, and the number of reconciles that were left out (`RecordedBacktest.repeated`)."""
    if args.queue:
        raise WrongUse("--queue works with --csv or --prometheus: a recording has no rates of messages")
    known = history.named(cases[0].hpa)
    for unknown in {*args.shared} - {*known}:
        raise WrongUse(f"--shared {shown(unknown)}: the HPA has no such metric; it has {', '.join(known)}")
    begin, end = moments.between(args)
    runs = [RecordedBacktest(case.name, case.hpa, frozenset(args.shared)) for case in cases]
    key, found, others = cases[0].hpa.key, 0, dict[str, None]()
    for place, value in replay.read(args.recording, _say_left_out):
        with located(place):
            scenario = decode_scenario(value)
            others[str(scenario.hpa.key)] = None
            if scenario.hpa.key == key:
                found += 1
                for each in runs:
                    each.add(scenario, begin, end)
    if not found:
        raise Failure(f"{args.recording}: has no {titled(key)}{meant(str(key), others)}")
    if not runs[0].recorded.curve:
        raise Failure(f"{args.recording}: has no replica count of {titled(key)} in this interval")
    return [runs[0].recorded, *(each.changed for each in runs)], runs[0].repeated


def _recorded_metrics(args: argparse.Namespace, hpa: HorizontalPodAutoscaler) -> tuple[MetricChart, ...]:
    """Returns the values of a recording for the report; it is read a second time, which only a report is worth."""
    if args.report is None:
        return ()
    begin, end = moments.between(args)
    pasts = recorded_pasts(args.recording, begin, end, wanted=lambda key: key == hpa.key, left_out=lambda text: None)
    return next((metric_charts(hpa, past.load) for past in pasts), ())


def _search(args: argparse.Namespace, settings: Settings) -> int:
    """Tries every combination, and prints them in the order of replica-hours."""
    if args.recording is not None or args.other is not None or args.report is not None:
        raise WrongUse("--search works with --csv or --prometheus, and with one MANIFEST; it writes no report")
    hpa = manifest.read(args.manifest, args.hpa, args.changes, settings)
    found = _history(args)
    parameters = dict(_parameter(text) for text in args.search)
    try:
        combinations = list(backtest.grid(parameters))
    except ValueError as error:
        raise WrongUse(f"--search: {error}") from None
    cases = [
        _Case("", manifest.changed(hpa, [f"{path}={value}" for path, value in each.items()], settings))
        for each in combinations
    ]
    period = manifest.period(args.period, hpa, settings.sync_period)
    _check_length(found, period)
    past = _past(args)
    goal = Goal(hpa, settings.tunables)
    one = functools.partial(_outcome, found=found, past=past, period=period, tunables=settings.tunables, goal=goal)
    PastModel(cases[0].hpa, found, past)  # its errors are raised here, and not in another process
    with concurrent.futures.ProcessPoolExecutor(max_workers=min(os.cpu_count() or 1, len(cases))) as pool:
        outcomes = list(pool.map(one, cases))
    pairs = itertools.starmap(Candidate, zip(combinations, outcomes, strict=True))
    ranked = backtest.ranked(list(pairs))
    value = {"items": [_candidate_as_json(each, args.price) for each in ranked]}
    output.show(args, value, _ranking(ranked, list(parameters), args.price))
    return 0


def _outcome(
    case: _Case, *, found: LoadHistory, past: PastLoad, period: timedelta, tunables: Tunables, goal: Goal
) -> Any:
    return backtest.over(case.name, case.hpa, found, past, period, tunables, goal).outcome


def _parameter(text: str) -> tuple[str, list[str]]:
    path, equals, values = text.rpartition("=")
    found = [value.strip() for value in values.split(",")]
    if not equals or not path or not all(found):
        raise WrongUse(f"--search {shown(text)}: PATH=A,B,… is needed, as in spec.maxReplicas=10,20")
    return path, found


def _ranking(ranked: Sequence[Candidate], paths: Sequence[str], price: float | None) -> Iterator[Line]:
    heads = ["", *paths, "REPLICA-HOURS", *([] if price is None else ["COST"]), "ABOVE GOAL", "RESCALES", "FLAPS"]
    rows = [[Span(head, QUIET) for head in heads]]
    for each in ranked[:_SHOWN]:
        outcome = each.outcome
        cost = [] if price is None else [Span(f"{outcome.cost(price):.2f}")]
        rows.append(
            [
                Span("*" if each.best else "", GOOD),
                *(Span(each.values[path]) for path in paths),
                Span(f"{outcome.replica_hours:.1f}"),
                *cost,
                Span(span(round(outcome.above_goal))),
                Span(str(len(outcome.rescales))),
                Span(str(outcome.flaps)),
            ]
        )
    yield from table(rows, 0)
    if len(ranked) > _SHOWN:
        yield line(Span(f"{len(ranked) - _SHOWN} more; -o json has all", QUIET))
    yield line(Span("ABOVE GOAL: with fewer replicas than the metric targets of the manifest ask for", QUIET))
    yield line(Span("* no other one is better in both replica-hours and time above goal", QUIET))


def _candidate_as_json(each: Candidate, price: float | None) -> dict[str, Any]:
    return {"set": dict(each.values), "pareto": each.best, "summary": simulate_text.as_json(each.outcome, price)}


def _as_lines(report: BacktestReport) -> Iterator[Line]:
    yield labelled("HPA", report.hpa, width=_WIDTH)
    results = report.results
    first, last = span_of(results)
    yield labelled("Time", f"{first:%Y-%m-%d %H:%M:%SZ} to {last:%Y-%m-%d %H:%M:%SZ}", width=_WIDTH)
    past, *others = report.parameters.items()
    yield labelled("Past", "; ".join([past[1], *(f"{name} {text}" for name, text in others)]), width=_WIDTH)
    for note in report.notes:
        yield labelled("Note", Span(note, WARN), width=_WIDTH)
    tops = simulate_text.tops_of_counts(result.outcome.highest for result in results)
    for result in results:
        milli = [(at, count * 1000) for at, count in result.curve]
        yield from simulate_text.titled_graph(f"Replicas, {result.name}", milli, first, last, tops)
    for result in results:
        yield BLANK
        yield from _rescales(result)
    yield BLANK
    outcomes = [(result.name, result.outcome) for result in results]
    yield from simulate_text.figures(outcomes, report.price)
    if text := verdict(outcomes):
        yield BLANK
        yield line(text)


def _rescales(result: Result) -> Iterator[Line]:
    found = result.outcome.rescales
    yield line(Span(f"{result.name}: {counted(len(found), 'rescale')}", QUIET))
    rows = [
        [Span(f"{each.at:%m-%d %H:%M:%S}"), Span(f"{each.before} -> {each.after}", GOOD), Span(each.why)]
        for each in found[:_SHOWN]
    ]
    yield from table(rows, 0)
    if len(found) > _SHOWN:
        yield line(Span(f"{len(found) - _SHOWN} more; -o json and --report have them", QUIET))


def _as_json(report: BacktestReport) -> dict[str, Any]:
    return {
        "hpa": report.hpa,
        "parameters": dict(report.parameters),
        "notes": list(report.notes),
        "results": [_result_as_json(each, report.price) for each in report.results],
    }


def _result_as_json(result: Result, price: float | None) -> dict[str, Any]:
    return {
        "name": result.name,
        "summary": simulate_text.as_json(result.outcome, price),
        "modelled": result.modelled,
        "rescales": [
            {"time": f"{each.at:%Y-%m-%dT%H:%M:%SZ}", "from": each.before, "to": each.after, "decision": each.why}
            for each in result.outcome.rescales
        ],
    }

"""`hpad simulate`: what an HPA would do with a synthetic load on a model of its workload."""

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from hpad.cli import manifest, numbers, output, paint, workload
from hpad.cli.output import Failure, WrongUse, counted
from hpad.engine.render.text import BLANK, GOOD, QUIET, WARN, Line, Span, labelled, line, table
from hpad.engine.settle import sentence
from hpad.engine.words import span
from hpad.settings import SettingsError
from hpad.simulation import load
from hpad.simulation.figures import FigureRow
from hpad.simulation.figures import rows as figure_rows
from hpad.simulation.load import FORMS, LoadError
from hpad.simulation.outcome import OutcomeTally, SimulatedOutcome, wanted
from hpad.simulation.run import simulate

_DESCRIPTION = """\
Simulate an HPA: run the decisions of hpad against a model of a workload under a synthetic load. Nothing is read from a
cluster, and nothing is written. All parameters of the model are part of the output; docs/simulate.md describes them."""

_EXAMPLES = f"""\
loads (several add up):
  {f"{chr(10)}  ".join(FORMS)}

examples:
  hpad simulate web.yaml --load step:from=50,to=400,at=10m
                                        a service under a step of the load, for an hour
  hpad simulate web.yaml --load sine:mean=300,amplitude=250,period=24h --for 72h --noise 0.05 --price 0.04
  hpad simulate worker.yaml --workload queue --service-time 2s --load spikes:height=20,every=30m,for=2m
  hpad simulate web.yaml --load constant:400 --set spec.maxReplicas=5 --explain

exit status: 0 success, 1 the manifest or a setting is wrong, 2 wrong use"""

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The time at which a simulation begins, if none is given."""
_WIDTH: Final = 11
_MOST_TURNS: Final = 1_000_000


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "simulate",
        help="what an HPA would do with a synthetic load",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.add_argument("manifest", metavar="MANIFEST", help='file with the HPA; "-" is standard input')
    manifest.add_arguments(parser)
    parser.add_argument(
        "--load", metavar="LOAD", action="append", required=True, help="units of work per second; may be repeated"
    )
    parser.add_argument(
        "--for",
        dest="length",
        metavar="DURATION",
        type=numbers.some_seconds,
        default=None,
        help="simulated time (default: 1h, or the length of a CSV file)",
    )
    parser.add_argument("--period", metavar="DURATION", type=numbers.some_seconds, default=None, help=manifest.PERIOD)
    parser.add_argument(
        "--replicas", metavar="N", type=numbers.whole(1), default=None, help="at the start (default: minReplicas)"
    )
    parser.add_argument(
        "--seed", metavar="N", type=numbers.whole(0), default=1, help="of everything random (default: 1)"
    )
    parser.add_argument("--price", metavar="PRICE", type=numbers.number, default=None, help="of one replica per hour")
    parser.add_argument("--explain", action="store_true", help="print every decision, also those that keep the count")
    output.add_format(parser, "text", "json", "csv")
    workload.add_arguments(parser)
    paint.add_color(parser)
    parser.set_defaults(run=run)


class _Turn(msgspec.Struct, frozen=True):
    """One turn as it is shown; `load` is in units per second, `ready` the number of replicas that work."""

    time: str
    seconds: int
    load: float
    replicas: int
    ready: int
    desired: int
    decision: str


class _Run(msgspec.Struct, frozen=True):
    """A simulation as it is shown."""

    hpa: str
    parameters: dict[str, str]
    turns: list[_Turn]
    outcome: SimulatedOutcome
    notes: list[str]


def run(args: argparse.Namespace) -> int:
    try:
        found = _simulated(args)
    except LoadError as error:
        raise WrongUse(str(error)) from None
    except SettingsError as error:
        raise Failure(str(error)) from None
    if args.output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(_Turn.__struct_fields__)
        writer.writerows(msgspec.structs.astuple(turn) for turn in found.turns)
    elif args.output == "json":
        output.print_value(_as_json(found, args.price), "json")
    else:
        paint.show_lines(_as_lines(found, args.price, explain=args.explain), args.color)
    return 0


def _simulated(args: argparse.Namespace) -> _Run:
    settings = manifest.tunables(args)
    hpa = manifest.read(args.manifest, args.hpa, args.changes, settings)
    loads = [load.parse(text, args.seed + index) for index, text in enumerate(args.load)]
    period = manifest.period(args.period, hpa, settings.sync_period)
    length = timedelta(seconds=_length(args.length, loads))
    if length // period > _MOST_TURNS:
        raise WrongUse(f"--for: {length // period} reconciles; at most {_MOST_TURNS} are simulated")
    replicas = args.replicas or max(1, hpa.spec.min_replicas or 1)
    offered = load.together(loads)
    made = workload.LoadRecipe(args).make(hpa, offered, START, replicas, args.seed)
    tally, turns = OutcomeTally(settings.tunables.downscale_stabilization), []
    for done, ready, after in simulate(
        hpa, made.workload, start=START, length=length, period=period, tunables=settings.tunables
    ):
        view, decision = done.view, done.decision
        tally.add(view, decision, after, wanted(view, decision))
        seconds = round((view.now - START).total_seconds())
        turns.append(
            _Turn(
                f"{view.now:%Y-%m-%dT%H:%M:%SZ}",
                seconds,
                round(offered(seconds), 3),
                view.replicas,
                ready,
                after,
                sentence(decision, done.outcome),
            )
        )
    parameters = dict(made.parameters)
    parameters |= {"replicas at the start": str(replicas), "period": _span(period), "seed": str(args.seed)}
    given = {"load": " + ".join(args.load), "time": f"{_span(length)}, {counted(len(turns), 'reconcile')}"}
    return _Run(str(hpa.key), given | parameters, turns, tally.outcome(), manifest.mistakes(hpa))


def _length(given: float | None, loads: Sequence[load.Load]) -> float:
    if given is not None:
        return given
    recorded = [each.length for each in loads if isinstance(each, load.LoadSeries) and each.length > 0]
    return max(recorded, default=3600.0)


def _span(length: timedelta) -> str:
    return span(length.total_seconds())


def _as_lines(found: _Run, price: float | None, *, explain: bool) -> Iterator[Line]:
    shown = dict(found.parameters)
    yield labelled("HPA", found.hpa, width=_WIDTH)
    yield labelled("Load", shown.pop("load"), width=_WIDTH)
    yield labelled("Time", shown.pop("time"), width=_WIDTH)
    yield labelled("Model", "; ".join(f"{name} {value}" for name, value in shown.items()), width=_WIDTH)
    for note in found.notes:
        yield labelled("Note", Span(note, WARN), width=_WIDTH)
    width = min(output.width() or 100, 120)
    end = START + timedelta(seconds=found.outcome.seconds)
    counts = [turn.desired * 1000 for turn in found.turns]
    loads = [round(turn.load * 1000) for turn in found.turns]
    whole = output.scale_of_counts(turn.desired for turn in found.turns)
    for title, values, scale in (("Replicas", counts, whole), ("Load, units per second", loads, None)):
        yield BLANK
        yield line(Span(title, QUIET))
        yield from (line(row) for row in output.graph(values, START, end, width, scale))
    yield BLANK
    yield from decisions(found.turns, explain=explain)
    yield BLANK
    yield from figures([("", found.outcome)], price)


def decisions(turns: Iterable[_Turn], *, explain: bool) -> Iterator[Line]:
    """Yields the table of the rescales, or of all turns."""
    rows = [
        [Span(f"+{span(turn.seconds)}"), _change(turn), Span(turn.decision)]
        for turn in turns
        if explain or turn.desired != turn.replicas
    ]
    if not rows:
        yield line("No decision changes the count.")
        return
    yield from table([[Span(each, QUIET) for each in ("TIME", "REPLICAS", "DECISION")], *rows], 0)


def _change(turn: _Turn) -> Span:
    if turn.replicas == turn.desired:
        return Span(str(turn.replicas))
    return Span(f"{turn.replicas} -> {turn.desired}", GOOD)


def figures(outcomes: Sequence[tuple[str, SimulatedOutcome]], price: float | None) -> Iterator[Line]:
    """Yields the table of the figures of one or more runs, which are named."""
    rows: list[list[Span]] = []
    if len(outcomes) > 1:
        rows.append([Span("")] + [Span(name, QUIET) for name, _ in outcomes])
    rows += [[Span(row.label, QUIET), *(_cell(row, outcome) for _, outcome in outcomes)] for row in figure_rows(price)]
    yield from table(rows, 0)


def _cell(row: FigureRow, outcome: SimulatedOutcome) -> Span:
    text = row.value(outcome)
    return Span(text, WARN) if row.bad and text != "0" else Span(text)


def as_json(outcome: SimulatedOutcome, price: float | None) -> dict[str, Any]:
    """Returns the figures of a run in JSON, with the names of the API (camel case)."""
    found: dict[str, Any] = {
        "seconds": round(outcome.seconds, 3),
        "reconciles": outcome.turns,
        "rescales": len(outcome.rescales),
        "flaps": outcome.flaps,
        "lowest": outcome.lowest,
        "highest": outcome.highest,
        "replicaHours": round(outcome.replica_hours, 4),
    }
    if outcome.judged:
        found |= {
            "secondsAtMax": round(outcome.at_max, 3),
            "secondsAboveGoal": round(outcome.above_goal, 3),
            "replicaSecondsUnder": round(outcome.under, 3),
            "replicaSecondsOver": round(outcome.over, 3),
            "secondsUndecided": round(outcome.undecided, 3),
        }
    return found if price is None else {**found, "cost": round(outcome.cost(price), 4)}


def _as_json(found: _Run, price: float | None) -> dict[str, Any]:
    return {
        "hpa": found.hpa,
        "parameters": found.parameters,
        "notes": found.notes,
        "turns": [msgspec.structs.asdict(turn) for turn in found.turns],
        "summary": as_json(found.outcome, price),
    }

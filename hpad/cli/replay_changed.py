"""`hpad replay --set`: the same recorded inputs decided under another spec, beside the recorded decisions."""

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from hpad.cli import output, paint
from hpad.cli.output import Failure, WrongUse, counted
from hpad.cli.replay_selection import Located, Selection
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.render.text import BAD, BLANK, GOOD, PLAIN, QUIET, WARN, Line, Span, labelled, line, table
from hpad.engine.trace import encode
from hpad.engine.trace.make import make_trace
from hpad.engine.words import span
from hpad.records import spec_changes
from hpad.records.comparison import Comparison, Row, Side, Tally
from hpad.records.format import RecordingError, decode_scenario
from hpad.records.simulate import ComparedTurn, Difference, Simulation
from hpad.records.spec_changes import Change, ChangeError

_WIDTH: Final = 11
_MARK: Final = "*"
_MARKED: Final = "decided with answers that were recorded for another count"
_HEADS: Final = ("TIME", "RECORDED", "CHANGED", "", "DECISION WITH THE CHANGES")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="changes",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="decide with this field of the HPA changed, such as spec.maxReplicas=20 (YAML; null removes it); may be "
        "repeated",
    )
    parser.add_argument(
        "--until-different", action="store_true", help="with --set: stop where the count differs from the recorded one"
    )
    parser.add_argument(
        "--trace", action="store_true", help="with --set: also print each decision in full, as `hpad explain` does"
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="with --set: text (default), or json"
    )


def run(scenarios: Iterable[Located], selection: Selection, args: argparse.Namespace) -> int:
    """Simulates and prints. Raises RecordingError, and Failure for changes that do not fit."""
    try:
        changes = [spec_changes.parse(text) for text in args.changes]
        compared = _compared(scenarios, selection, changes, full=args.trace, until_different=args.until_different)
        found = list(compared)
    except ChangeError as error:
        raise WrongUse(str(error)) from None
    if not found:
        selection.check()
    if args.output == "json":
        output.print_value({"items": [_as_json(each, changes) for each in found]}, "json")
        return 0
    for index, each in enumerate(found):
        paint.show_lines([*([BLANK] if index else []), *_as_lines(each, changes)], args.color)
    return 0


def _compared(
    scenarios: Iterable[Located],
    selection: Selection,
    changes: Sequence[Change],
    *,
    full: bool,
    until_different: bool,
) -> Iterator[Comparison]:
    """Yields one comparison per HPA, and another one wherever its recorded state has a gap."""
    simulation, compared = Simulation(changes), None
    for place, scenario in scenarios:
        try:
            decoded = decode_scenario(scenario)
            stopped = compared is not None and until_different and compared.difference is not None
            if compared is not None and compared.key == decoded.hpa.metadata.key and stopped:
                continue
            if compared is None or not simulation.continues(decoded):
                if compared is not None and compared.turns:
                    yield compared
                compared = Comparison(decoded.hpa.metadata.key, full=full)
            _compare(compared, simulation.run(decoded), selection, until_different=until_different)
        except RecordingError as error:
            raise RecordingError(f"{place}: {error}") from error
    if compared is not None and compared.turns:
        yield compared


def _compare(
    compared: Comparison, turns: Iterator[ComparedTurn], selection: Selection, *, until_different: bool
) -> None:
    """Adds the selected turns. Raises Failure if it is to stop before the first of them."""
    for turn in turns:
        if selection.covers(turn.changed.view.now):
            compared.add(turn)
        else:
            compared.note(turn)
        if until_different and turn.difference is not None:
            if not compared.turns:
                when = f"{_text(turn.difference.time)}, before --from"
                raise Failure(f"--until-different: the count of {compared.key} differs from {when}")
            return


def _as_lines(compared: Comparison, changes: Sequence[Change]) -> Iterator[Line]:
    yield labelled("HPA", str(compared.key), width=_WIDTH)
    begin, end = compared.begin, compared.end
    assert begin is not None
    assert end is not None
    yield labelled("Time", f"{_text(begin)} to {_text(end)}, {counted(compared.turns, 'reconcile')}", width=_WIDTH)
    for change in changes:
        yield labelled("Set", change.text, width=_WIDTH)
    for note in _notes(compared):
        yield labelled("Note", Span(note, WARN), width=_WIDTH)
    if compared.difference is not None:
        apart = f"; {compared.apart} of {counted(compared.turns, 'reconcile')} began with another count"
        yield labelled("Differs", Span(f"{_statement(compared, compared.difference)}{apart}", WARN), width=_WIDTH)
    yield BLANK
    yield from _rows(compared.rows)
    yield BLANK
    yield from _summary(compared)
    for row in compared.rows:
        done = row.changed.done
        if done is not None:
            yield BLANK
            notes = [] if row.valid else [_MARKED]
            yield from lines(make_trace(done), outlook(done), notes=notes, all_pods=True)


def _statement(compared: Comparison, found: Difference) -> str:
    """Returns since when recorded answers are not those that the workload would have had, and why."""
    pods = f"usages per pod were recorded for {counted(found.recorded, 'pod')}" if compared.of_pods else ""
    replicas = counted(found.recorded, "replica")
    totals = f"external and object metrics were recorded with {replicas} at work" if compared.of_totals else ""
    why = ", and ".join(filter(None, (pods, totals))) or "nothing was recorded for the other count"
    return f"from {_text(found.time)} on the count differs, {found.changed} instead of {found.recorded}: {why}"


def _notes(compared: Comparison) -> Iterator[str]:
    if compared.withheld is not None:
        yield (
            f"no count was written in the recording ({compared.withheld.message}): each decision starts from the "
            "recorded count"
        )
    for label, count in compared.not_recorded.items():
        yield f"{label} was not recorded in {count} of {counted(compared.turns, 'reconcile')}"


def _rows(rows: Sequence[Row]) -> Iterator[Line]:
    if not rows:
        yield line("No decision changes the count, neither the recorded nor the changed one.")
        return
    yield from table([[Span(each, QUIET) for each in _HEADS], *(list(_cells(row)) for row in rows)], 0)
    if not all(row.valid for row in rows):
        yield line(Span(f"{_MARK} {_MARKED}", QUIET))


def _cells(row: Row) -> Iterator[Span]:
    yield Span(_text(row.time))
    yield _counts(row.recorded)
    yield _counts(row.changed)
    yield Span("" if row.valid else _MARK, WARN)
    reset = f"{row.changed.current} was set by other means; " if row.reset else ""
    yield Span(f"{reset}{row.changed.sentence}")


def _counts(side: Side) -> Span:
    if side.current == side.desired:
        return Span(str(side.current))
    return Span(f"{side.current} -> {side.desired}", GOOD if side.written else BAD)


def _summary(compared: Comparison) -> Iterator[Line]:
    heads = ("", "RESCALES", "LOWEST", "HIGHEST", "AT MAX", "REPLICA HOURS")
    both = (("recorded", compared.recorded), ("changed", compared.changed))
    yield from table(
        [
            [Span(each, QUIET) for each in heads],
            *([Span(each, PLAIN) for each in (name, *_figures(tally))] for name, tally in both),
        ],
        0,
    )


def _figures(tally: Tally) -> tuple[str, ...]:
    lowest, highest = ("-" if each is None else str(each) for each in (tally.lowest, tally.highest))
    at_max = "-" if tally.at_max is None else span(round(tally.at_max))
    hours = "-" if tally.replica_hours is None else f"{tally.replica_hours:.2f}"
    return str(tally.rescales), lowest, highest, at_max, hours


def _as_json(compared: Comparison, changes: Sequence[Change]) -> dict[str, Any]:
    found = compared.difference
    difference = None
    if found is not None:
        difference = {
            "time": _moment(found.time),
            "recorded": found.recorded,
            "changed": found.changed,
            "reconciles": compared.apart,
            "text": _statement(compared, found),
        }
    return {
        "namespace": compared.key.namespace,
        "name": compared.key.name,
        "begin": _moment(compared.begin),
        "end": _moment(compared.end),
        "reconciles": compared.turns,
        "set": [change.text for change in changes],
        "notes": list(_notes(compared)),
        "difference": difference,
        "steps": [_row_as_json(row) for row in compared.rows],
        "summary": {"recorded": _tally_as_json(compared.recorded), "changed": _tally_as_json(compared.changed)},
    }


def _row_as_json(row: Row) -> dict[str, Any]:
    return {
        "time": _moment(row.time),
        "valid": row.valid,
        "reset": row.reset,
        "recorded": _side_as_json(row.recorded),
        "changed": _side_as_json(row.changed),
    }


def _side_as_json(side: Side) -> dict[str, Any]:
    found = {
        "current": side.current,
        "desired": side.desired,
        "written": side.written,
        "sentence": side.sentence,
    }
    return found if side.done is None else {**found, "trace": json.loads(encode(make_trace(side.done)))}


def _tally_as_json(tally: Tally) -> dict[str, Any]:
    return {
        "rescales": tally.rescales,
        "lowest": tally.lowest,
        "highest": tally.highest,
        "secondsAtMax": tally.at_max,
        "replicaHours": tally.replica_hours,
    }


def _text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"


def _moment(time: datetime | None) -> str | None:
    return None if time is None else f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"

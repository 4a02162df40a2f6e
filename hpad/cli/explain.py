"""`hpad explain`: why an HPA has its replica count, now or at an earlier time, and what would change it."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from hpad.api import numbers
from hpad.api.text import shown
from hpad.cli import client, moments, output
from hpad.cli.fetch import AUTOSCALER, NAMES, Hpa, Json, NoHpa, looks, parsed
from hpad.cli.output import Failure, WrongUse, counted
from hpad.clock import SystemClock
from hpad.engine.styled import BAD, GOOD, PLAIN, QUIET, Line, Span, line, table
from hpad.engine.words import span

_MOST: Final = 10_000
"""Decisions in one list."""
_MORE_PODS: Final = "; --pods shows all"
_FORMS: Final = "text (default), or json or yaml: every number, as the API has it"
_SAVE: Final = (
    "write a recording of the last decisions with all their inputs, as far as hpad has them in memory (setting"
    " record_recent), to this new file; compressed if its name ends in .gz"
)
HELP: Final = "explain why an HPA has its replica count"
DESCRIPTION: Final = """\
Explain the last decision for an HPA, or an earlier one: the metrics with their samples and pods, how their proposals
became the replica count, the write, and what would have to change for the next step. It asks a running hpad."""
EPILOG: Final = f"""\
examples:
  hpad explain web                        why the HPA web of the namespace default has its count, and what comes next
  hpad explain shop/autoscaler/web        the Autoscaler web, beside an HPA of that name
  hpad explain -n shop web --at 02:40     the decision in force when it was last 02:40, local time
  hpad explain -n shop web --at -10m      the decision of ten minutes ago
  hpad explain -n shop web --last 20      the last 20 decisions, one line each
  hpad explain -n shop web --since 2h     all decisions of the last two hours
  hpad explain -n shop web --watch        the last decision, then each new one, until Ctrl-C
  hpad explain -n shop web --pods         all pods of each metric, not only those that need attention
  hpad explain -n shop web --save web.jsonl.gz
                                          the last minutes as a recording, for `hpad replay` and `hpad backtest`
  hpad explain -n shop web -o json | jq '.outlook'
                                          every number, as the API gives it

A TIME is {moments.FORMS}.
Times in the output are UTC.

exit status: 0 success; 1 if there is no such HPA, no decision at that time, or no hpad answers; 2 for wrong use; 130
after Ctrl-C
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=NAMES)
    parser.add_argument("-n", "--namespace", help="its namespace (default: default)")
    add_choices(parser)
    client.add_arguments(parser)


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that choose decisions and the form of the output."""
    parser.add_argument("--at", metavar="TIME", help="explain the decision at that time")
    parser.add_argument("--last", metavar="N", type=numbers.whole(1, _MOST), help="list the last N decisions")
    parser.add_argument("--since", metavar="TIME", help="list the decisions since that time, or of that duration")
    parser.add_argument("-w", "--watch", action="store_true", help="go on with each new decision until Ctrl-C")
    parser.add_argument("--pods", action="store_true", help="show all pods of each metric")
    parser.add_argument("--save", metavar="FILE", type=Path, help=_SAVE)
    parser.add_argument("-o", "--output", choices=("text", "json", "yaml"), default="text", help=_FORMS)
    output.add_color(parser)


def run(args: argparse.Namespace) -> int:
    """Explains as the arguments say. Raises Failure."""
    namespace, name, kind = parsed(args.name)
    if namespace and args.namespace not in (None, namespace):
        raise WrongUse(f"NAME: {shown(args.name)} is not of the namespace {shown(args.namespace)} (-n)")
    return show(Hpa(client.reader(args), namespace or args.namespace or "default", name, kind), args)


def show(hpa: Hpa, args: argparse.Namespace) -> int:
    """Explains what hpad answers about an HPA; one without a kind may be an Autoscaler as well. Raises Failure."""
    try:
        return _show(hpa, args)
    except NoHpa as missing:
        if not missing.other:
            raise
        return _show(hpa._replace(kind=AUTOSCALER), args)


def _show(hpa: Hpa, args: argparse.Namespace) -> int:
    listed = args.last is not None or args.since is not None
    if sum((args.at is not None, listed, args.watch, args.save is not None)) > 1:
        raise WrongUse("--at, --watch, --save and a list (--last, --since) exclude each other: choose one")
    if args.save is not None:
        return _save(hpa, args.save)
    if listed:
        since = None if args.since is None else moments.parse("--since", args.since, _now()).isoformat()
        return show_list(hpa, hpa.entries(args.last or _MOST, since), args)
    if args.at is not None:
        at = moments.through_second(moments.parse("--at", args.at, _now()))
        _print(hpa, hpa.get("/decision", {"at": at.isoformat()}), args, past=True)
        return 0
    found = hpa.latest()
    _print(hpa, found, args)
    if args.watch:
        follow(hpa, found, args)
    return 0


def _save(hpa: Hpa, path: Path) -> int:
    """Writes the last decisions of the HPA as a recording, and says how many there are."""
    # Imported late, as in `_print`: without these, `kubectl hpad status` starts in half the time.
    import msgspec

    from hpad.records import writer
    from hpad.records.format import RecordingError

    found = hpa.get("/recording")
    scenarios = (msgspec.json.encode(each) + b"\n" for each in found["scenarios"])
    try:
        writer.write(path, scenarios)
    except RecordingError as error:
        raise Failure(f"--save: {error}") from None
    began, ended = (datetime.fromisoformat(found[name]) for name in ("began", "ended"))
    print(f"{path}: {counted(found['decisions'], 'decision')}, {began:%Y-%m-%d %H:%M:%S}Z to {ended:%H:%M:%S}Z")
    return 0


def _now() -> datetime:
    return SystemClock().now()


def _print(hpa: Hpa, found: Json, args: argparse.Namespace, *, past: bool = False) -> None:
    """Prints a decision. `past`: as of its time, without how much of a time is left."""
    sentence = found["sentence"]
    if args.output != "text":
        output.print_value(found, args.output)
        return
    if found.get("trace") is None:
        raise Failure(f"only the sentence of this decision is kept, its inputs were too large: {sentence}")
    # Imported late: without these, `kubectl hpad status` starts in half the time.
    from hpad.engine.outlook.types import Outlook
    from hpad.engine.render import lines
    from hpad.engine.trace import Trace

    made = hpa.converted(found["trace"], Trace)
    outlook = hpa.converted(found.get("outlook", []), list[Outlook])
    now = None if past else _now()
    notes = list(_notes(found))
    shown_lines: Iterator[Line] = lines(made, outlook, now=now, notes=notes, all_pods=args.pods, hint=_MORE_PODS)
    output.show_lines(shown_lines, args.color)


def _notes(found: Json) -> Iterator[str]:
    """Yields what is true of the HPA apart from this decision."""
    if found.get("turns", 1) > 1:
        began, ended = (datetime.fromisoformat(found[name]) for name in ("began", "ended"))
        lasted = span(round((ended - began).total_seconds()))
        yield f"the first of {found['turns']} equal decisions in {lasted}, the last one at {ended:%Y-%m-%d %H:%M:%SZ}"
    if found.get("dryRun"):
        yield "dry run: hpad decides, but writes nothing"
    yield from found.get("notes", ())


_HEADS: Final = ("TIME", "REPLICAS", "RECONCILES", "FOR", "DECISION")
_MOST_NEW: Final = 100
"""Decisions between two looks; there is at most one per period."""


def show_list(hpa: Hpa, entries: Sequence[Json], args: argparse.Namespace) -> int:
    """Prints the entries of the decision history, the newest last; JSON and YAML have the newest first."""
    if args.output != "text":
        output.print_value({"items": list(entries)}, args.output)
    elif not entries:
        raise Failure(f"there is no decision for the {hpa.titled} in that time")
    else:
        output.show_lines(rows(list(reversed(entries))), args.color)
    return 0


def rows(entries: Sequence[Json]) -> Iterator[Line]:
    """Yields a table with one row per entry."""
    yield from table([[Span(each, QUIET) for each in _HEADS], *(list(_cells(each)) for each in entries)], 0)


def _cells(entry: Json) -> Iterator[Span]:
    began, ended = (datetime.fromisoformat(entry[name]) for name in ("began", "ended"))
    style, current, desired = _style(entry), entry.get("current", "?"), entry.get("desired", "?")
    yield Span(f"{began:%Y-%m-%d %H:%M:%SZ}")
    yield Span(f"{current} -> {desired}" if current != desired else str(current), style)
    yield Span(str(entry["turns"]))
    yield Span(output.age((ended - began).total_seconds()) if entry["turns"] > 1 else "-")
    yield Span(entry["sentence"], style)


def _style(entry: Json) -> str:
    if entry.get("error"):
        return BAD
    return GOOD if entry.get("current") != entry.get("desired") else PLAIN


def follow(hpa: Hpa, shown: Json, args: argparse.Namespace) -> None:
    """Prints each decision after the one in `shown`, until Ctrl-C. An hpad that does not answer is asked again."""
    last = datetime.fromisoformat(shown["trace"]["time"])
    for found in looks(lambda: hpa.entries(_MOST_NEW), lambda text: print(f"hpad: {text}", file=sys.stderr)):
        for entry in reversed(found):
            if datetime.fromisoformat(entry["began"]) > last:
                _print_one(entry, args)
                last = datetime.fromisoformat(entry["began"])


def _print_one(entry: Json, args: argparse.Namespace) -> None:
    """Prints a decision as one line of text or JSON, or as a YAML document."""
    if args.output == "json":
        print(json.dumps(entry, ensure_ascii=False))
    elif args.output == "yaml":
        print("---")
        output.print_value(entry, args.output)
    else:
        head = f"{datetime.fromisoformat(entry['began']):%Y-%m-%d %H:%M:%SZ}  "
        output.show_lines([line(head, Span(entry["sentence"], _style(entry)), hang=len(head))], args.color)

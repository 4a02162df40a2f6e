"""Past and new decisions of an HPA, one line each."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from hpad.cli import output, paint
from hpad.cli.hpa_reader import Hpa, Json
from hpad.cli.output import Failure
from hpad.engine.render.text import BAD, GOOD, PLAIN, QUIET, Line, Span, line, table

WATCH_SECONDS: Final = 2.0
_HEADS: Final = ("TIME", "REPLICAS", "RECONCILES", "FOR", "DECISION")
_MOST_NEW: Final = 100
"""Decisions between two looks; there is at most one per period."""


def show(hpa: Hpa, entries: Sequence[Json], args: argparse.Namespace) -> int:
    """Prints the entries of the decision history, the newest last; JSON and YAML have the newest first."""
    if args.output != "text":
        output.print_value({"items": list(entries)}, args.output)
    elif not entries:
        raise Failure(f"there is no decision for the HPA {hpa} in that time")
    else:
        paint.show_lines(rows(list(reversed(entries))), args.color)
    return 0


def rows(entries: Sequence[Json]) -> Iterator[Line]:
    """Yields a table with one row per entry."""
    yield from table([[Span(each, QUIET) for each in _HEADS], *(list(_cells(each)) for each in entries)], 0)


def _cells(entry: Json) -> Iterator[Span]:
    began, ended = (datetime.fromisoformat(entry[name]) for name in ("began", "ended"))
    moved, style = entry["current"] != entry["desired"], _style(entry)
    yield Span(f"{began:%Y-%m-%d %H:%M:%SZ}")
    yield Span(f"{entry['current']} -> {entry['desired']}" if moved else str(entry["current"]), style)
    yield Span(str(entry["turns"]))
    yield Span(output.age((ended - began).total_seconds()) if entry["turns"] > 1 else "-")
    yield Span(entry["sentence"], style)


def _style(entry: Json) -> str:
    if entry.get("error"):
        return BAD
    return GOOD if entry["current"] != entry["desired"] else PLAIN


def watch(hpa: Hpa, shown: Json, args: argparse.Namespace) -> int:
    """Prints each decision after the one in `shown`, until Ctrl-C. An hpad that does not answer is asked again."""
    last, trouble = datetime.fromisoformat(shown["trace"]["time"]), ""
    while True:
        time.sleep(WATCH_SECONDS)
        try:
            found = hpa.entries(_MOST_NEW)
        except Failure as failure:
            if str(failure) != trouble:
                print(f"hpad: {failure}; trying again", file=sys.stderr)
            trouble = str(failure)
            continue
        trouble = ""
        fresh = [each for each in reversed(found) if datetime.fromisoformat(each["began"]) > last]
        for entry in fresh:
            _print(entry, args)
            last = datetime.fromisoformat(entry["began"])
        sys.stdout.flush()


def _print(entry: Json, args: argparse.Namespace) -> None:
    """Prints a decision as one line of text or JSON, or as a YAML document."""
    if args.output == "json":
        print(json.dumps(entry, ensure_ascii=False))
    elif args.output == "yaml":
        print("---")
        output.print_value(entry, args.output)
    else:
        head = f"{datetime.fromisoformat(entry['began']):%Y-%m-%d %H:%M:%SZ}  "
        paint.show_lines([line(head, Span(entry["sentence"], _style(entry)), hang=len(head))], args.color)

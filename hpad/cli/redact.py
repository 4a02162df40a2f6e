"""`hpad redact`: a copy of a recording without names."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from hpad.cli.output import Failure, WrongUse, counted
from hpad.cli.replay import Selection, add_hpa, located
from hpad.records import writer
from hpad.records.format import RecordingError
from hpad.records.redact import Redaction

HELP: Final = "replace the names in a recording"
DESCRIPTION: Final = """\
Write a copy of recordings in which names are replaced: of HPAs, namespaces, targets, pods and containers, and the keys
and values of labels and selectors. One name has one replacement in the whole copy. Numbers, times and names of metrics
stay, and so do words of error texts that are none of these names: read the copy before you publish it. The copy gives
the same decisions in `hpad replay`; this is checked before it is written."""
EPILOG: Final = """\
examples:
  hpad redact ./records -o report.jsonl.gz                   all HPAs
  hpad redact ./records --hpa shop/web -o report.jsonl.gz    one HPA
  hpad redact web.jsonl -o report.jsonl --names names.json   write the names and their replacements, too: keep them

exit status: 0 success, 2 wrong use, or a file cannot be read, redacted or written"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help=".jsonl or .jsonl.gz, or a folder of them")
    add_hpa(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the copy; compressed if it ends in .gz; must not exist"
    )
    parser.add_argument("--names", metavar="FILE", help="file for the names and replacements, JSON; must not exist")


def run(args: argparse.Namespace) -> int:
    """Writes the copy. Returns 0, or 2 if a file cannot be read, redacted or written."""
    try:
        _run(args)
    except (RecordingError, Failure) as error:
        print(f"hpad redact: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: argparse.Namespace) -> None:
    if "-" in args.files:
        raise WrongUse("FILE: standard input cannot be read twice: name a file")
    redaction = Redaction()
    for place, scenario in Selection(args.hpa).scenarios(args.files, _say_left_out):
        with located(place):
            redaction.collect(scenario)
    lines = []
    for number, (place, scenario) in enumerate(Selection(args.hpa).scenarios(args.files, lambda text: None), start=1):
        with located(place):
            redacted = redaction.redact(scenario, f"scenario-{number}")
        lines.append((json.dumps(redacted, separators=(",", ":")) + "\n").encode())
    writer.write(Path(args.output), lines)
    if args.names is not None:
        writer.write(Path(args.names), [(json.dumps(redaction.names, indent=1) + "\n").encode()])
    print(f"{args.output}: {counted(len(lines), 'scenario')}, {counted(len(redaction.names), 'name')} replaced")


def _say_left_out(text: str) -> None:
    print(f"hpad redact: left out: {text}", file=sys.stderr)

"""`hpad replay`: decides recorded reconciles again."""

import argparse
import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hpad.cli import paint
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.render.text import BLANK
from hpad.engine.settle import sentence
from hpad.engine.trace import Trace
from hpad.engine.trace.evidence import Evidence, make_trace
from hpad.recording import replay
from hpad.recording.format import RecordingError, decode_scenario

_DESCRIPTION = """\
Replay recorded scenarios offline and print what hpad decides in each step: one JSON line per scenario,
{"id", "steps": [{"scaleTo", "scaleUpdateAttempts", "statusUpdate", "events", "error", "action", "errorLabel",
"metricComputations"}]}. A recording holds one scenario per line, a JSON object, as `hpad run --record DIR` writes it.
Only --check reads the expectations of a scenario ("expect")."""

_EXAMPLES = """\
examples:
  hpad replay --explain ./records       everything that `hpad run --record ./records` wrote
  hpad replay web.jsonl                 decisions as JSON
  hpad replay --explain web.jsonl.gz    decisions as sentences, one line a step
  hpad replay --explain -v web.jsonl    each decision in full, as `hpad explain` shows it
  hpad replay --check scenarios.jsonl   compare decisions with the expectations in the file
  zcat web.jsonl.gz | hpad replay -     read standard input

exit status: 0 success, 1 a step differs from its expectation (--check), 2 wrong use, or a file cannot be read or
replayed"""


_Located = tuple[str, dict[str, Any]]
"""A scenario and its place, a file and line."""


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="decide recorded reconciles again",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help='.jsonl or .jsonl.gz, or a folder of them; "-" is standard input'
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--explain", action="store_true", help="print the decisions as sentences, one line a step")
    form.add_argument("--check", action="store_true", help="compare with `expect` and print how many steps agree")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --explain: print each decision in full")
    paint.add_color(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replays files. Returns 0, or 1 if a step differs from its expectation, 2 if a file cannot be read or replayed."""
    if args.verbose and not args.explain:
        print("hpad replay: -v needs --explain", file=sys.stderr)
        return 2
    print_all: Callable[[Iterable[_Located]], int]
    if args.verbose:
        print_all = functools.partial(_explain_in_full, color=args.color)
    else:
        print_all = _explain if args.explain else _check if args.check else _print
    try:
        return print_all(itertools.chain.from_iterable(map(replay.read, args.files)))
    except RecordingError as error:
        print(f"hpad replay: {error}", file=sys.stderr)
        return 2


def _print(scenarios: Iterable[_Located]) -> int:
    for place, scenario in scenarios:
        with _located(place):
            print(json.dumps(replay.replay(scenario), ensure_ascii=False))
    return 0


def _explain(scenarios: Iterable[_Located]) -> int:
    for place, scenario in scenarios:
        with _located(place):
            decoded = decode_scenario(scenario)
            print(f"{decoded.id or place}:")
            for each in list(replay.run(decoded)):  # all steps first, so that no error comes after half of them
                print(f"  {each.step.time:%Y-%m-%dT%H:%M:%SZ} {sentence(each.decision, each.outcome)}")
    return 0


def _explain_in_full(scenarios: Iterable[_Located], color: str) -> int:
    for place, scenario in scenarios:
        with _located(place):
            traces = [_traced(each) for each in replay.run(decode_scenario(scenario))]
        for made in traces:
            paint.show_lines([*lines(made, outlook(made), all_pods=True), BLANK], color)
    return 0


def _traced(step: replay.Replayed) -> Trace:
    return make_trace(Evidence(step.view, step.answers, step.decision, step.outcome, step.settlement))


def _check(scenarios: Iterable[_Located]) -> int:
    total = agreed = 0
    for place, scenario in scenarios:
        with _located(place):
            replayed = replay.replay(scenario)
        for index, (step, decided) in enumerate(zip(scenario.get("steps", ()), replayed["steps"], strict=True)):
            expected = step.get("expect")
            if expected is None:
                continue
            total += 1
            differing = [name for name in expected if not replay.agrees(decided.get(name), expected[name])]
            agreed += not differing
            for name in differing:
                before, after = json.dumps(expected[name]), json.dumps(decided.get(name))
                print(f"{place}: steps[{index}].{name}: {before} expected, {after} decided")
    print(f"{agreed} of {total} steps as expected")
    return 0 if agreed == total else 1


@contextlib.contextmanager
def _located(place: str) -> Iterator[None]:
    """Adds the place of a scenario to errors of the block."""
    try:
        yield
    except RecordingError as error:
        raise RecordingError(f"{place}: {error}") from error

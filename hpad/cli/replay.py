"""`hpad replay`: decides recorded reconciles again."""

import argparse
import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hpad.cli import moments, paint, replay_selection
from hpad.cli.output import Failure, WrongUse
from hpad.cli.replay_selection import Located, Selection
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.render.text import BLANK
from hpad.engine.settle import sentence
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.records import replay
from hpad.records.format import RecordingError, Scenario, decode_scenario

_DESCRIPTION = """\
Replay recorded scenarios offline and print what hpad decides in each step: one JSON line per scenario,
{"id", "steps": [{"scaleTo", "scaleUpdateAttempts", "statusUpdate", "events", "error", "action", "errorLabel",
"metricComputations"}]}. A recording holds one scenario per line, a JSON object, as `hpad run --record DIR` writes it.
Only --check reads the expectations of a scenario ("expect")."""

_EXAMPLES = f"""\
examples:
  hpad replay --explain ./records       everything that `hpad run --record ./records` wrote
  hpad replay web.jsonl                 decisions as JSON
  hpad replay --explain web.jsonl.gz    decisions as sentences, one line a step
  hpad replay --explain -v web.jsonl    each decision in full, as `hpad explain` shows it
  hpad replay --check scenarios.jsonl   compare decisions with the expectations in the file
  hpad replay --explain --hpa shop/web --from 02:40Z --to 02:50Z ./records
                                        ten minutes of one HPA
  zcat web.jsonl.gz | hpad replay -     read standard input

A TIME is {moments.FORMS}.
Times in the output are UTC.

exit status: 0 success, 1 a step differs from its expectation (--check), 2 wrong use, or a file cannot be read or
replayed"""


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
    replay_selection.add_arguments(parser)
    paint.add_color(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replays files. Returns 0, or 1 if a step differs from its expectation, 2 if a file cannot be read or replayed."""
    try:
        return _run(args)
    except (RecordingError, Failure) as error:
        print(f"hpad replay: {error}", file=sys.stderr)
        return 2


def _run(args: argparse.Namespace) -> int:
    """Replays as the arguments say. Raises RecordingError, and Failure for wrong use."""
    if args.verbose and not args.explain:
        raise WrongUse("-v needs --explain")
    selection = Selection.of(args)
    scenarios = selection.scenarios(itertools.chain.from_iterable(map(replay.read, args.files)))
    print_all: Callable[[Iterable[Located], Selection], int]
    if args.verbose:
        print_all = functools.partial(_explain_in_full, color=args.color)
    else:
        print_all = _explain if args.explain else _check if args.check else _print
    status = print_all(scenarios, selection)
    selection.check()
    return status


def _print(scenarios: Iterable[Located], selection: Selection) -> int:
    for place, scenario in scenarios:
        with _located(place):
            decoded = decode_scenario(scenario)
            steps = [replay.results_of(each) for each in _selected(decoded, selection)]
        if steps or not selection.limited:
            print(json.dumps({"id": decoded.id, "steps": steps}, ensure_ascii=False))
    return 0


def _explain(scenarios: Iterable[Located], selection: Selection) -> int:
    for place, scenario in scenarios:
        with _located(place):
            decoded = decode_scenario(scenario)
            steps = _selected(decoded, selection)
        if steps or not selection.limited:
            print(f"{decoded.id or place}:")
        for each in steps:
            print(f"  {each.view.now:%Y-%m-%dT%H:%M:%SZ} {sentence(each.decision, each.outcome)}")
    return 0


def _explain_in_full(scenarios: Iterable[Located], selection: Selection, color: str) -> int:
    for place, scenario in scenarios:
        with _located(place):
            steps = _selected(decode_scenario(scenario), selection)
        for each in steps:
            paint.show_lines([*lines(make_trace(each), outlook(each), all_pods=True), BLANK], color)
    return 0


def _check(scenarios: Iterable[Located], selection: Selection) -> int:
    total = agreed = 0
    for place, scenario in scenarios:
        with _located(place):
            replayed = list(replay.run(decode_scenario(scenario)))
        for index, (step, each) in enumerate(zip(scenario.get("steps", ()), replayed, strict=True)):
            expected = step.get("expect")
            if not selection.covers(each.view.now) or expected is None:
                continue
            decided = replay.results_of(each)
            total += 1
            differing = [name for name in expected if not replay.agrees(decided.get(name), expected[name])]
            agreed += not differing
            for name in differing:
                before, after = json.dumps(expected[name]), json.dumps(decided.get(name))
                print(f"{place}: steps[{index}].{name}: {before} expected, {after} decided")
    print(f"{agreed} of {total} steps as expected")
    return 0 if agreed == total else 1


def _selected(scenario: Scenario, selection: Selection) -> list[Reconcile]:
    """Returns the selected steps, all at once, so that no error comes after half of them."""
    return [each for each in replay.run(scenario) if selection.covers(each.view.now)]


@contextlib.contextmanager
def _located(place: str) -> Iterator[None]:
    """Adds the place of a scenario to errors of the block."""
    try:
        yield
    except RecordingError as error:
        raise RecordingError(f"{place}: {error}") from error

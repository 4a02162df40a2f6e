"""`hpad replay`: decides recorded reconciles again."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hpad.engine.settle import sentence
from hpad.recording import replay
from hpad.recording.format import RecordingError, Scenario, decode_scenario

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
  hpad replay --check scenarios.jsonl   compare decisions with the expectations in the file
  zcat web.jsonl.gz | hpad replay -     read standard input

exit status: 0 success, 1 a step differs from its expectation (--check), 2 wrong use, or a file cannot be read or
replayed"""

Steps = tuple[str, dict[str, Any]]


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "replay",
        help="decide recorded reconciles again",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help='.jsonl or .jsonl.gz, or a folder of them; "-" is standard input'
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--explain", action="store_true", help="print the decisions as sentences, one line a step")
    how.add_argument("--check", action="store_true", help="compare with `expect` and say how many steps agree")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0; 1 if a step differs from its expectation; 2 if a file cannot be read or replayed."""
    print_all = _explain if args.explain else _check if args.check else _print
    try:
        return print_all(_scenarios(args.files))
    except RecordingError as error:
        print(f"hpad replay: {error}", file=sys.stderr)
        return 2


def _scenarios(files: list[str]) -> Iterator[Steps]:
    for name in files:
        yield from replay.read(name)


def _print(scenarios: Iterator[Steps]) -> int:
    for place, scenario in scenarios:
        print(json.dumps(_named(place, lambda value: replay.replay(value), scenario), ensure_ascii=False))
    return 0


def _explain(scenarios: Iterator[Steps]) -> int:
    for place, scenario in scenarios:
        decoded = _named(place, decode_scenario, scenario)
        print(f"{decoded.id or place}:")
        for line in _named(place, lambda value: list(_sentences(value)), decoded):
            print(f"  {line}")
    return 0


def _sentences(scenario: Scenario) -> Iterator[str]:
    for replayed in replay.run(scenario):
        yield f"{replayed.step.time:%Y-%m-%dT%H:%M:%SZ} {sentence(replayed.decision, replayed.outcome)}"


def _check(scenarios: Iterator[Steps]) -> int:
    total = agreed = 0
    for place, scenario in scenarios:
        answered = _named(place, lambda value: replay.replay(value), scenario)
        for index, (step, ours) in enumerate(zip(scenario.get("steps", ()), answered["steps"], strict=True)):
            expected = step.get("expect")
            if expected is None:
                continue
            total += 1
            differing = [name for name in expected if not replay.agrees(ours.get(name), expected[name])]
            agreed += not differing
            for name in differing:
                before, after = json.dumps(expected[name]), json.dumps(ours.get(name))
                print(f"{place}: steps[{index}].{name}: {before} expected, {after} decided")
    print(f"{agreed} of {total} steps as expected")
    return 0 if agreed == total else 1


def _named(place: str, act: Callable[[Any], Any], value: Any) -> Any:
    """`act(value)` for one scenario; adds the scenario's place to an error."""
    try:
        return act(value)
    except RecordingError as error:
        raise RecordingError(f"{place}: {error}") from error

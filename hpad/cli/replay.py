"""`hpad replay`: what the engine decides about what reconciles saw."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from hpad.engine.settle import sentence
from hpad.recording import replay
from hpad.recording.format import RecordingError, Scenario, decode_scenario

_DESCRIPTION = """\
Replay recorded scenarios offline and print what hpad decides in each step: one JSON line a scenario,
{"id", "steps": [{"scaleTo", "scaleUpdateAttempts", "statusUpdate", "events", "error", "action", "errorLabel",
"metricComputations"}]}. A scenario is a JSON object a line, as `hpad run --record DIR` writes it; what a file says
under "expect" is looked at by --check alone."""

_EXAMPLES = """\
examples:
  hpad replay --explain ./records       all that `hpad run --record ./records` wrote
  hpad replay web.jsonl                 decisions as JSON
  hpad replay --explain web.jsonl.gz    decisions as sentences, one line a step
  hpad replay --check scenarios.jsonl   compare with what was expected; exit status 1 where something differs
  zcat web.jsonl.gz | hpad replay -     read standard input"""

Steps = tuple[str, dict[str, Any]]


def add_parser(commands: Any) -> None:
    """Add the command to argparse's subparsers."""
    parser = commands.add_parser(
        "replay",
        help="decide again what was recorded",
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
    """Exit status 0; 1 where a step differs; 2 where a file can't be read or replayed."""
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
    total = held = 0
    for place, scenario in scenarios:
        answered = _named(place, lambda value: replay.replay(value), scenario)
        for index, (step, ours) in enumerate(zip(scenario.get("steps", ()), answered["steps"], strict=True)):
            expected = step.get("expect")
            if expected is None:
                continue
            total += 1
            odd = [name for name in expected if not replay.agrees(ours.get(name), expected[name])]
            held += not odd
            for name in odd:
                wanted, got = json.dumps(expected[name]), json.dumps(ours.get(name))
                print(f"{place}: steps[{index}].{name}: {wanted} expected, {got} decided")
    print(f"{held} of {total} steps as expected")
    return 0 if held == total else 1


def _named(place: str, act: Callable[[Any], Any], value: Any) -> Any:
    """The result of acting on one scenario; what is wrong with it is said with its place."""
    try:
        return act(value)
    except RecordingError as error:
        raise RecordingError(f"{place}: {error}") from error

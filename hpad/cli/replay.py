"""`hpad replay`: decides recorded reconciles again."""

import argparse
import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from hpad.api.hpa import key_of
from hpad.api.metadata import Key
from hpad.api.text import meant, shown
from hpad.cli import moments, output
from hpad.cli.moments import written
from hpad.cli.output import Failure, WrongUse
from hpad.engine.outlook import outlook
from hpad.engine.render import lines
from hpad.engine.styled import BLANK
from hpad.engine.trace.make import make_trace
from hpad.engine.turn import Reconcile
from hpad.records import replay
from hpad.records.format import RecordingError, decode_scenario

HELP: Final = "decide recorded reconciles again"
DESCRIPTION: Final = """\
Replay recorded scenarios offline and print what hpad decides in each step: one JSON line per scenario,
{"id", "steps": [{"scaleTo", "scaleUpdateAttempts", "statusUpdate", "events", "error", "action", "errorLabel",
"metricComputations"}]}. A recording holds one scenario per line, a JSON object, as `hpad run --record DIR` writes it.
Only --check reads the expectations of a scenario ("expect")."""

EPILOG: Final = f"""\
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
replayed in whole"""


Located = tuple[str, dict[str, Any]]
"""A scenario and its place, a file and line."""
_MOST_NAMES: Final = 10


def add_hpa(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--hpa",
        metavar="[NAMESPACE/]NAME",
        action="append",
        default=[],
        help="only this HPA (an Autoscaler: [NAMESPACE/]autoscaler/NAME); may be repeated (default: all)",
    )


class Selection:
    """Selects scenarios by HPA and steps by time, and remembers what there was, for messages."""

    def __init__(self, hpas: Iterable[str] = (), begin: datetime | None = None, end: datetime | None = None) -> None:
        self._hpas = tuple(hpas)
        self._begin, self._end = begin, end
        self._names: dict[str, None] = {}
        self._first: datetime | None = None
        self._last: datetime | None = None
        self._found = False

    @property
    def limited(self) -> bool:
        """Whether only an interval is selected."""
        return self._begin is not None or self._end is not None

    def scenarios(self, files: Iterable[str], left_out: replay.LeftOut) -> Iterator[Located]:
        """Yields the scenarios of the selected HPAs. Raises RecordingError at the end for an HPA without any."""
        wanted = set(self._hpas)
        for place, scenario in itertools.chain.from_iterable(replay.read(file, left_out) for file in files):
            key = _identity(scenario)
            self._names[str(key)] = None
            chosen = {each for each in self._hpas if each in (key.local, str(key))}
            wanted -= chosen
            if chosen or not self._hpas:
                yield place, scenario
        for missing in self._hpas:
            if missing in wanted:
                raise RecordingError(f"--hpa: no recording of the HPA {shown(missing)}{self._others(missing)}")

    def _others(self, missing: str) -> str:
        near = meant(missing, [*self._names, *(name.partition("/")[2] for name in self._names)])
        names = list(self._names)
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return near or f"; there are {', '.join(names[:_MOST_NAMES])}{more}"

    def covers(self, time: datetime) -> bool:
        """Returns whether a step of that time is selected."""
        self._first = time if self._first is None else min(self._first, time)
        self._last = time if self._last is None else max(self._last, time)
        selected = (self._begin is None or self._begin <= time) and (self._end is None or time <= self._end)
        self._found = self._found or selected
        return selected

    def check(self) -> None:
        """Raises RecordingError if an interval is selected that has no step."""
        if not self.limited or self._found or self._first is None or self._last is None:
            return
        flags = [
            f"{flag} {written(time)}"
            for flag, time in (("--from", self._begin), ("--to", self._end))
            if time is not None
        ]
        recorded = f"the recording is of {written(self._first)} to {written(self._last)}"
        raise RecordingError(f"{', '.join(flags)}: no step was recorded in that time; {recorded}")


def _identity(scenario: dict[str, Any]) -> Key:
    """Returns the key of the HPA; texts that are missing, or no texts, are reported when it is decoded."""
    hpa = scenario.get("hpa")
    whole = hpa if isinstance(hpa, dict) else {}
    metadata = whole.get("metadata")
    found = metadata if isinstance(metadata, dict) else {}
    return key_of(str(found.get("namespace") or "default"), str(found.get("name") or ""), str(whole.get("kind")))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help='.jsonl or .jsonl.gz, or a folder of them; "-" is standard input'
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--explain", action="store_true", help="print the decisions as sentences, one line a step")
    form.add_argument("--check", action="store_true", help="compare with `expect` and print how many steps agree")
    parser.add_argument("-v", "--verbose", action="store_true", help="with --explain: print each decision in full")
    add_hpa(parser)
    parser.add_argument("--from", dest="begin", metavar="TIME", help="only steps since that time")
    parser.add_argument("--to", dest="end", metavar="TIME", help="only steps until that time")
    output.add_color(parser)


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
    selection, left_out = Selection(args.hpa, *moments.between(args)), list[str]()

    def leave_out(text: str) -> None:
        left_out.append(text)
        print(f"hpad replay: left out: {text}", file=sys.stderr)

    scenarios = selection.scenarios(args.files, leave_out)
    print_all: Callable[[Iterable[Located], Selection], int]
    if args.verbose:
        print_all = functools.partial(_explain_in_full, color=args.color)
    else:
        print_all = _explain if args.explain else _check if args.check else _print
    status = print_all(scenarios, selection)
    selection.check()
    return 2 if left_out else status


def _print(scenarios: Iterable[Located], selection: Selection) -> int:
    for _, name, steps in _replayed(scenarios, selection):
        results = [replay.results_of(each) for each in steps]
        print(json.dumps({"id": name, "steps": results}, ensure_ascii=False))
    return 0


def _explain(scenarios: Iterable[Located], selection: Selection) -> int:
    for place, name, steps in _replayed(scenarios, selection):
        print(f"{name or place}:")
        for each in steps:
            print(f"  {each.view.now:%Y-%m-%dT%H:%M:%SZ} {each.sentence}")
    return 0


def _explain_in_full(scenarios: Iterable[Located], selection: Selection, color: str) -> int:
    for _, _, steps in _replayed(scenarios, selection):
        for each in steps:
            output.show_lines([*lines(make_trace(each), outlook(each), all_pods=True), BLANK], color)
    return 0


def _check(scenarios: Iterable[Located], selection: Selection) -> int:
    total = agreed = 0
    for place, scenario in scenarios:
        with located(place):
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


def _replayed(scenarios: Iterable[Located], selection: Selection) -> Iterator[tuple[str, str, list[Reconcile]]]:
    """Yields place, id and selected steps of each scenario; none of one without such steps, if times are selected.

    The steps of a scenario come all at once, so that no error comes after half of them.
    """
    for place, scenario in scenarios:
        with located(place):
            decoded = decode_scenario(scenario)
            steps = [each for each in replay.run(decoded) if selection.covers(each.view.now)]
        if steps or not selection.limited:
            yield place, decoded.id, steps


@contextlib.contextmanager
def located(place: str) -> Iterator[None]:
    """Adds the place of a scenario to errors of the block."""
    try:
        yield
    except RecordingError as error:
        raise RecordingError(f"{place}: {error}") from error

"""Replays scenarios: reads recordings and runs the engine on the inputs of each step, without a cluster."""

import contextlib
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import msgspec

from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler
from hpad.api.sample import AdapterError, Answer, Query
from hpad.api.text import refuse_halves
from hpad.engine import turn
from hpad.engine.settle import Outcome
from hpad.engine.turn import Reconcile
from hpad.engine.view import PAUSED, Shadow, View
from hpad.records.encode import results
from hpad.records.format import CONFLICT, RecordingError, Scenario, Step, decode_scenario, decode_step

ATTEMPTS: Final = 5
"""How often the scale is written when each write meets a conflict (client-go, util/retry: DefaultRetry)."""
_GZIP_MAGIC: Final = b"\x1f\x8b"
_LONGEST: Final = 1 << 25
"""Characters of a line: a scenario with 50,000 pods has some 12 million. A file of 2 MB may hold gigabytes by gzip."""
_STEPS: Final = '"steps":['
"""How the writer begins the steps, the last field of a scenario."""
_DECODER: Final = json.JSONDecoder()
_SUFFIXES: Final = (".jsonl", ".jsonl.gz")
_LATEST: Final = datetime(9700, 1, 1, tzinfo=UTC)
"""Later times are refused: a duration (`hpad.api.duration`: 292 years) may lead from them beyond the year 9999."""
_CONTINUED: Final = re.compile(r"(.*?)(?:(?<=Z)-([0-9]{1,9}))?(\.jsonl(?:\.gz)?)", re.DOTALL)


Answers = Callable[[Sequence[Query | AdapterError]], Sequence[Answer]]
"""Returns one answer per query, in order."""


def replay(scenario: dict[str, Any]) -> dict[str, Any]:
    """Returns the engine's results for each step of a scenario, in the format of the vectors. Ignores `expect`.

    Raises RecordingError (a ValueError) naming the field that cannot be read.
    """
    decoded = decode_scenario(scenario)
    return {"id": decoded.id, "steps": [results_of(each) for each in run(decoded)]}


def results_of(done: Reconcile) -> dict[str, Any]:
    """Returns the results of a reconcile, in the format of the vectors."""
    return results(done.decision.scale_to, done.outcome, done.settlement)


def run(scenario: Scenario) -> Iterator[Reconcile]:
    """Reconciles step by step; status and history carry over to the next step. Raises RecordingError."""
    return (done for _, done in steps(scenario))


def steps(scenario: Scenario) -> Iterator[tuple[Step, Reconcile]]:
    """Yields each step of a scenario with its reconcile, as `run` does."""
    tunables, others = scenario.tunables, scenario.others
    hpa, history = scenario.hpa, scenario.history
    for index, value in enumerate(scenario.steps):
        where = f"steps[{index}]"
        step = decode_step(value, where)
        if step.spec is not None:
            hpa = msgspec.structs.replace(hpa, spec=step.spec)
        if step.generation:
            metadata = msgspec.structs.replace(hpa.metadata, generation=step.generation)
            hpa = msgspec.structs.replace(hpa, metadata=metadata)
        try:
            own, policies = step.controls, step.fallback_policies
        except RecordingError as error:
            raise RecordingError(f"{where}.{error}") from error
        with _in_range(where):
            view = View(
                hpa=hpa,
                now=_moment(step, where),
                tunables=tunables.of_hpa(own),
                history=history,
                scale=step.scale,
                scale_error=step.scale_failure,
                pods=step.selected(),
                overlapping_hpas=step.overlapping_hpas(others),
                fallback_policies=policies,
                annotation_error=step.annotation_error,
                annotation_reason=step.annotation_reason,
                set_by_other=step.set_by_other,
                zero_by=step.zero_by,
                competitors=step.competitors,
                values_held=step.values_held,
                controls=own,
                shadow=_modelled(step.shadow),
            )
        done = msgspec.structs.replace(reconcile(view, step, step.answer, where), timing=step.timing)
        history = done.settlement.history
        if done.settlement.status_changed:
            hpa = msgspec.structs.replace(hpa, status=done.settlement.status)
        yield step, done


LeftOut = Callable[[str], None]
"""Takes what is left out of a recording, such as the rest of a line that a full disk has cut, and why."""


def refuse(left_out: str) -> NoReturn:
    """Refuses a recording of which something would be left out. Raises RecordingError."""
    raise RecordingError(left_out)


def read(name: str, left_out: LeftOut = refuse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the scenarios of a .jsonl or .jsonl.gz file, of all such files of a folder, or of standard input ("-").

    Each comes with its file and line for messages. At the end, `left_out` is called with each file that cannot be read
    or has no scenario, and each line that is not a JSON object; of a line that hpad has begun and not ended, the whole
    steps are read. Raises RecordingError for a folder without such files, and if no scenario can be read.
    """
    problems = []
    empty = True
    for file in files(name):
        for place, found in _read(str(file)):
            if isinstance(found, RecordingError):
                problems.append(f"{place}: {found}")
            else:
                empty = False
                yield place, found
    if empty:
        raise RecordingError(problems[0])
    for problem in problems:
        left_out(problem)


def files(name: str) -> list[Path]:
    """Returns the files of a recording: the one of this name, or those of a folder, by HPA and time.

    Raises RecordingError for a folder without such files. Blocks.
    """
    if not Path(name).is_dir():
        return [Path(name)]
    found = [path for path in Path(name).iterdir() if path.name.endswith(_SUFFIXES) and path.is_file()]
    if not found:
        raise RecordingError(f"{name}: the folder has no file that ends in {' or '.join(_SUFFIXES)}")
    return sorted(found, key=_in_order)


def _in_order(path: Path) -> tuple[str, int, str]:
    """Sorts files of `hpad run --record` by HPA and time: a continued file has a number, which counts as a number."""
    begin, number, end = _CONTINUED.fullmatch(path.name).groups()  # type: ignore[union-attr] # it matches any name
    return begin, int(number or 0), end


def _read(name: str) -> Iterator[tuple[str, dict[str, Any] | RecordingError]]:
    """Yields scenarios, and what cannot be read, with the place of each; one of both at least."""
    shown = "standard input" if name == "-" else name
    place, empty = shown, True
    try:
        with _lines(name) as lines:
            for number in itertools.count(1):
                place = f"{shown}, line {number}"
                line = lines.readline(_LONGEST + 1)
                if not line:
                    break
                if len(line) > _LONGEST:
                    yield place, RecordingError(f"has more than {_LONGEST:,} characters, too many for a scenario")
                    return
                if line.strip():
                    empty = False
                    yield from _parsed(line, place)
    except UnicodeDecodeError as error:
        yield (
            _rest(shown, place, empty),
            RecordingError(f"not a recording: byte {error.object[error.start]:#04x} is not UTF-8"),
        )
    except OSError as error:
        yield _rest(shown, place, empty), RecordingError(f"cannot be read: {error.strerror or error}")
    except (EOFError, zlib.error) as error:
        yield _rest(shown, place, empty), RecordingError(str(error))
    else:
        if empty:
            yield shown, RecordingError("has no scenario")


def _rest(file: str, place: str, empty: bool) -> str:
    """Returns what of a file cannot be read: all of it if it is `empty` up to the place."""
    return file if empty else f"{place} and what follows"


def _modelled(shadow: Shadow | None) -> Shadow | None:
    """Marks a recorded shadow: pods and answers are recorded as it decided on them (`hpad.engine.shadow.applied`)."""
    if shadow is None or shadow.metrics is not None:
        return shadow
    return msgspec.structs.replace(shadow, metrics=())


def _moment(step: Step, where: str) -> datetime:
    """Returns the step's time in UTC. Raises RecordingError if that is before the year 1 or after `_LATEST`."""
    try:
        moment = step.time.astimezone(UTC)
    except OverflowError as error:
        raise RecordingError(f"{where}.time: {step.time.isoformat()} is out of range: {error}") from error
    if moment > _LATEST:
        raise RecordingError(f"{where}.time: {step.time.isoformat()} is out of range: it is after the year 9699")
    return moment


def agrees(ours: Any, expected: Any) -> bool:
    """Returns whether a result equals the expected one in value and type; "*" stands for any value but null."""
    if expected == "*":
        return ours is not None
    if isinstance(expected, dict):
        return (
            isinstance(ours, dict)
            and ours.keys() == expected.keys()
            and all(agrees(ours[name], expected[name]) for name in ours)
        )
    if isinstance(expected, list):
        return isinstance(ours, list) and len(ours) == len(expected) and all(map(agrees, ours, expected))
    return type(ours) is type(expected) and bool(ours == expected)


def reconcile(view: View, step: Step, answer: Answers, where: str) -> Reconcile:
    """Decides on `view` with the answers that `answer` gives; the write ends as in the step.

    Raises RecordingError naming the field below `where`.
    """
    # Whether an HPA is paused follows from its controls, which may be other ones than those recorded.
    held = None if step.withheld is None or step.withheld.reason == PAUSED else step.withheld
    with _in_range(where):
        try:
            return turn.run(
                view,
                lambda queries: tuple(answer(queries)),
                lambda count: _write(step, view.hpa, count),
                work=step.pod_work(),
                shares=lambda _: step.shares,
                held=held,
            )
        except RecordingError as error:
            raise RecordingError(f"{where}.{error}") from error


@contextlib.contextmanager
def _in_range(where: str) -> Iterator[None]:
    """Raises RecordingError for an OverflowError."""
    try:
        yield
    except OverflowError as error:
        raise RecordingError(f"{where}: a time, a duration or a number is out of range: {error}") from error


def _write(step: Step, hpa: HorizontalPodAutoscaler, count: int) -> Outcome:
    """Returns the outcome of writing the scale: the recorded errors, then success. Only conflicts are tried again."""
    for attempt, error in enumerate(step.scale_update_errors[:ATTEMPTS], start=1):
        if error != CONFLICT:
            return Outcome((count,) * attempt, error, unsure=step.unsure)
    conflicts = len(step.scale_update_errors)
    if conflicts >= ATTEMPTS:
        return Outcome((count,) * ATTEMPTS, _conflict_message(hpa.spec.scale_target_ref))
    return Outcome((count,) * (conflicts + 1))


def _conflict_message(target: CrossVersionObjectReference) -> str:
    """Returns the API server's message (apimachinery, pkg/api/errors: NewConflict)."""
    group = target.api_version.rpartition("/")[0]
    resource = f"{target.kind.lower()}s" + (f".{group}" if group else "")
    return (
        f'Operation cannot be fulfilled on {resource} "{target.name}": '
        "the object has been modified; please apply your changes to the latest version and try again"
    )


@contextlib.contextmanager
def _lines(name: str) -> Iterator[IO[str]]:
    """Opens a file as text, decompressed if it begins like gzip, whatever its name."""
    if name == "-":
        yield sys.stdin
        return
    with Path(name).open("rb") as raw:
        compressed = raw.peek(2)[:2] == _GZIP_MAGIC
        with io.TextIOWrapper(gzip.GzipFile(fileobj=raw) if compressed else raw, encoding="utf-8") as text:
            yield text


def _parsed(line: str, place: str) -> Iterator[tuple[str, dict[str, Any] | RecordingError]]:
    """Yields the scenario of a line, or why it has none; both for a line that is cut after a whole step."""
    try:
        value = json.loads(line)
        refuse_halves(value, line)
    except (ValueError, RecursionError) as error:
        begun = _begun(line)
        if begun is not None:
            yield place, begun
            place += f" after {len(begun['steps'])} whole steps"
        yield place, RecordingError(f"not JSON: {error}")
        return
    if isinstance(value, dict):
        yield place, value
    else:
        yield place, RecordingError(f"a scenario is a JSON object, not {type(value).__name__}")


def _begun(line: str) -> dict[str, Any] | None:
    """Returns the whole steps of a scenario whose line was cut, as by a full disk; None if there are none."""
    head, _, rest = line.partition(_STEPS)
    steps: list[Any] = []
    end = 0
    try:
        scenario: dict[str, Any] = json.loads(f"{head}{_STEPS}]}}")
        with contextlib.suppress(ValueError):
            while not steps or rest[end : end + 1] == ",":
                step, end = _DECODER.raw_decode(rest, end + bool(steps))
                steps.append(step)
        scenario["steps"] = steps
        refuse_halves(scenario, line)
    except (ValueError, RecursionError):
        return None
    return scenario if steps else None

"""The past of HPAs from recordings of hpad: the values that it read, its counts and bounds, and why it failed.

Of each step, a minute by default, the last reconcile counts. A step without one is a gap. The engine runs again on the
recorded inputs, so the values are those that it compares with the metric targets.

In shadow mode the past is that of the target, which another controller scales: its count, and the values that its
pods had.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import groupby, pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.api.sample import CONTAINER_RESOURCE, RESOURCE
from hpad.engine import spare
from hpad.engine.annotations import ACTIVATION, FALLBACK
from hpad.engine.examine import DISABLED, Halt
from hpad.engine.propose import Proposal
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.turn import Reconcile
from hpad.records import replay, writer
from hpad.records.format import RecordingError, Scenario, Step, decode_scenario
from hpad.simulation.advice.past import HpaPast, MetricReading
from hpad.simulation.history import REPLICAS, Column, LoadHistory, is_same, is_total, metrics_of, named, pointwise

SOURCE: Final = "hpad's recording"
_STEP: Final = 60.0
_STALE: Final = 1.5
"""So many times the usual distance of two reconciles, where that is longer than a step, a reconcile counts."""
Wanted = Callable[[Key], bool]


def recorded_pasts(
    path: str,
    begin: datetime | None = None,
    end: datetime | None = None,
    step: float = _STEP,
    wanted: Wanted = lambda key: True,
    left_out: replay.LeftOut = replay.refuse,
) -> Iterator[HpaPast]:
    """Yields the past of each HPA of a file or folder of `hpad run --record`, those that have two steps or more.

    Times are multiples of `step` seconds, of what is recorded from `begin` to `end`. The spec is the last one
    recorded. One HPA is in memory at a time, unless a file holds several. `left_out` is called with each file, line and
    scenario that cannot be read. Raises RecordingError for a folder without recordings. Blocks.
    """
    for files in _together(replay.files(path)):
        found: dict[Key, _Recorded] = {}
        for place, line in _lines(files, left_out):
            try:
                scenario = decode_scenario(line)
                if wanted(scenario.hpa.key) and _overlaps(scenario.steps, begin, end):
                    found.setdefault(scenario.hpa.key, _Recorded(step)).add(scenario)
            except RecordingError as error:
                left_out(f"{place}: {error}")
        pasts = (found.pop(key).past(begin, end) for key in sorted(found))
        yield from (each for each in pasts if each is not None)


def _together(files: Sequence[Path]) -> Iterator[Sequence[Path]]:
    """Yields the files of each HPA where their names tell it, else all files at once."""
    if all(writer.of_hpa(file.name) for file in files):
        ordered = sorted(files, key=lambda file: writer.of_hpa(file.name))  # stable: those of an HPA stay in order
        for _, group in groupby(ordered, key=lambda file: writer.of_hpa(file.name)):
            yield list(group)
    else:
        yield files


def _lines(files: Sequence[Path], left_out: replay.LeftOut) -> Iterator[tuple[str, dict[str, Any]]]:
    for file in files:
        try:
            yield from replay.read(str(file), left_out)
        except RecordingError as error:
            left_out(str(error))


def _overlaps(steps: Sequence[Any], begin: datetime | None, end: datetime | None) -> bool:
    """Returns whether steps may be between two times; also where their times cannot be read, for the error."""
    try:
        first, last = (datetime.fromisoformat(each["time"]) for each in (steps[0], steps[-1]))
        return (begin is None or last >= begin) and (end is None or first <= end)
    except (IndexError, KeyError, TypeError, ValueError):
        return True


class _Turn(NamedTuple):
    """What one reconcile tells. `values` are those of `metrics`; `reasons` say what failed.

    `replicas` and `desired` are None where the scale was unknown.
    """

    at: float
    replicas: int | None
    desired: int | None
    minimum: int
    maximum: int
    metrics: Sequence[CompiledMetric]
    values: Sequence[float | None]
    reasons: frozenset[str]


class _Recorded:
    """The last turn of each step of one HPA, and what its last reconcile had: the HPA with annotations, and pods."""

    def __init__(self, step: float) -> None:
        self._step = step
        self._turns: list[_Turn] = []
        self._latest = -math.inf
        self._hpa: HorizontalPodAutoscaler | None = None
        self._pods: Sequence[Pod] = ()
        self._errors: dict[str, str] = {}

    def add(self, scenario: Scenario) -> None:
        """Runs a scenario. Raises RecordingError."""
        last: tuple[Step, Reconcile] | None = None
        for step, done in replay.steps(scenario):
            turn = _turn(done)
            before = self._turns[-1] if self._turns else None
            if before is not None and before.at <= turn.at and self._number(before.at) == self._number(turn.at):
                self._turns.pop()
            self._turns.append(turn)
            self._note_errors(done)
            self._pods = done.view.pods or self._pods
            last = step, done
        if last is not None and last[1].view.now.timestamp() >= self._latest:
            self._latest = last[1].view.now.timestamp()
            self._hpa = _annotated(*last)

    def _note_errors(self, done: Reconcile) -> None:
        for name, proposal in zip(named(done.view.hpa), done.decision.proposals, strict=False):
            if proposal.error is not None:
                self._errors[name] = proposal.cause

    def _number(self, at: float) -> int:
        """Returns the number of the step that a time belongs to: the one that ends there or next."""
        return math.ceil(at / self._step)

    def past(self, begin: datetime | None, end: datetime | None) -> HpaPast | None:
        """Returns the past; None with less than two steps."""
        turns = sorted(self._turns, key=lambda turn: turn.at)
        if self._hpa is None or not turns:
            return None
        first, last = self._number(turns[0].at), self._number(turns[-1].at)
        if begin is not None:
            first = max(first, self._number(begin.timestamp()))
        if end is not None:
            last = min(last, math.floor(end.timestamp() / self._step))
        if last <= first:
            return None
        times = [index * self._step for index in range(first, last + 1)]
        return self._made(self._hpa, times, _last_of_each(turns, times, self._step))

    def _made(self, hpa: HorizontalPodAutoscaler, times: Sequence[float], chosen: "Sequence[_Turn | None]") -> HpaPast:
        columns = {name: _values(chosen, metric) for name, metric in metrics_of(hpa).items()}
        known = {name: column for name, column in columns.items() if any(value is not None for value in column)}
        counts = _column(chosen, lambda turn: turn.replicas)
        read = {name: self._reading(name, name in known) for name in columns}
        return HpaPast(
            hpa=hpa,
            load=LoadHistory(times, {**known, REPLICAS: counts}),
            desired=_column(chosen, lambda turn: turn.desired),
            minimum=_column(chosen, lambda turn: turn.minimum),
            maximum=_column(chosen, lambda turn: turn.maximum),
            failing=_failing(chosen),
            readings=read,
            unrequested=_unrequested(hpa, self._pods),
            samples=sum(value is not None for column in (*known.values(), counts) for value in column),
        )

    def _reading(self, name: str, known: bool) -> MetricReading:
        if known:
            return MetricReading(SOURCE)
        why = self._errors.get(name)
        return MetricReading("", problem="hpad has read no value of it" + (f": {why}" if why else ""))


def _turn(done: Reconcile) -> _Turn:
    view, status = done.view, done.settlement.status
    known = view.scale is not None
    return _Turn(
        at=view.now.timestamp(),
        replicas=view.target_replicas if known else None,
        desired=status.desired_replicas if known else None,
        minimum=view.min_replicas,
        maximum=view.max_replicas,
        metrics=view.spec.metrics,
        values=[_value(done, proposal) for proposal in done.decision.proposals],
        reasons=_reasons(done),
    )


def _value(done: Reconcile, proposal: Proposal) -> float | None:
    """Returns the value in the unit of the metric target: percent, or whole units; of an AverageValue the total."""
    usage, metric = proposal.usage, proposal.metric
    if usage is None:
        return None
    if metric.kind == UTILIZATION:
        value: float | None = usage.percent
    else:
        milli = usage.value if usage.total is None else usage.total
        value = None if milli is None else milli / 1000
    count, counted = done.view.target_replicas, spare.counting(done.view).replicas
    if value is None or is_total(metric) or counted == count:
        return value
    # A shadow saw the load of the target shared by its own count; spare replicas are left out of both.
    return value * counted / count if count else None


def _reasons(done: Reconcile) -> frozenset[str]:
    """Returns the reasons of the conditions for what could not be read."""
    verdict = done.decision.verdict
    if isinstance(verdict, Halt):
        return frozenset() if verdict.kind == DISABLED else frozenset((verdict.reason,))
    failed = (each for each in done.decision.proposals if each.error is not None)
    return frozenset(each.metric.wording.reason for each in failed)


def _annotated(step: Step, done: Reconcile) -> HorizontalPodAutoscaler:
    """Returns the HPA with the annotations that recordings keep as their values."""
    hpa = done.view.hpa
    texts = dict(step.control_texts)
    for annotation, field in ((FALLBACK, "fallback"), (ACTIVATION, "activation")):
        parts = ((name, getattr(each, field)) for name, each in zip(named(hpa), step.fallback_texts, strict=False))
        if written := ", ".join(f"{name}={text}" for name, text in parts if text is not None):
            texts[annotation] = written
    metadata = msgspec.structs.replace(hpa.metadata, annotations=texts or None)
    return msgspec.structs.replace(hpa, metadata=metadata)


def _last_of_each(turns: Sequence[_Turn], times: Sequence[float], step: float) -> list[_Turn | None]:
    """Returns for each time the last turn of the step that ends there; None in a gap.

    Where reconciles are usually further apart than a step, one counts until the next is due.
    """
    apart = [later.at - earlier.at for earlier, later in pairwise(turns)]
    usual = median(apart) if apart else 0.0
    longest = usual * _STALE if usual > step else step
    found: list[_Turn | None] = []
    index = -1
    for time in times:
        while index + 1 < len(turns) and turns[index + 1].at <= time:
            index += 1
        found.append(turns[index] if index >= 0 and time - turns[index].at < longest else None)
    return found


def _values(chosen: Sequence[_Turn | None], metric: CompiledMetric) -> Column:
    """Returns the values of a metric, also from specs in which it had another target of the same kind."""
    places: dict[int, int | None] = {}
    column: list[float | None] = []
    for turn in chosen:
        if turn is None or not turn.values:
            column.append(None)
            continue
        if id(turn.metrics) not in places:
            same = (index for index, each in enumerate(turn.metrics) if is_same(each, metric))
            places[id(turn.metrics)] = next(same, None)
        place = places[id(turn.metrics)]
        column.append(None if place is None else turn.values[place])
    return column


def _column(chosen: Sequence[_Turn | None], of: Callable[[_Turn], int | None]) -> Column:
    return pointwise(float, [None if turn is None else of(turn) for turn in chosen])


def _failing(chosen: Sequence[_Turn | None]) -> dict[str, Column]:
    reasons = sorted({reason for turn in chosen if turn is not None for reason in turn.reasons})
    return {reason: [None if each is None else float(reason in each.reasons) for each in chosen] for reason in reasons}


def _unrequested(hpa: HorizontalPodAutoscaler, pods: Sequence[Pod]) -> dict[str, Sequence[str]]:
    """Returns the containers without a request, by the metrics that compare usage with requests."""
    found = {
        name: _lacking(metric, pods)
        for name, metric in metrics_of(hpa).items()
        if metric.type in (RESOURCE, CONTAINER_RESOURCE) and metric.kind == UTILIZATION
    }
    return {name: lacking for name, lacking in found.items() if lacking}


def _lacking(metric: CompiledMetric, pods: Sequence[Pod]) -> list[str]:
    query = metric.query
    names = {
        container.name
        for pod in pods
        if pod.pod_requests is None or query.name not in pod.pod_requests
        for container in pod.containers
        if query.name not in container.requests and query.container in ("", container.name)
    }
    return sorted(names - set(query.ignored_containers))

"""Runs specs over a history or a recording, and says how each would have done."""

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale, ScaleSpec
from hpad.api.quantity import MAX_INT32
from hpad.api.sample import AdapterError, Answer, Query
from hpad.engine.annotations import PLAIN
from hpad.engine.examine import examine
from hpad.engine.history import EMPTY, History
from hpad.engine.shadow import evenly
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import Tunables, View
from hpad.records import replay
from hpad.records.format import Scenario, Step, decode_step
from hpad.simulation.history import REPLICAS, LoadHistory
from hpad.simulation.outcome import FLAP, OutcomeTally, SimulatedOutcome, wanted
from hpad.simulation.past import PastLoad, PastModel
from hpad.simulation.run import simulate

Curve = Sequence[tuple[datetime, int]]
"""Times, and the replica count from then on."""


# The count that another spec would want in the same turns: the common goal of the candidates of a search.
#
# Measured against its own metric targets, the spec with the highest ones would always be the best.

_UNREAD: Final = AdapterError("the spec that was run does not read this metric in this turn")


class Goal:
    """What the metrics of an HPA ask for, without its minimum, maximum, windows and policies."""

    def __init__(self, hpa: HorizontalPodAutoscaler, tunables: Tunables) -> None:
        own = PLAIN.of(hpa)
        self._spec = msgspec.structs.replace(hpa.spec, min_replicas=1, max_replicas=MAX_INT32)
        self._policies = own.policies
        self._controls = msgspec.structs.replace(own.controls, schedule=None)
        self._tunables = tunables.of_hpa(own.controls)

    def wanted(self, done: Reconcile) -> int | None:
        """Returns the count for a turn of another spec; None where the metrics could not decide."""
        view = msgspec.structs.replace(
            done.view,
            hpa=msgspec.structs.replace(done.view.hpa, spec=self._spec),
            tunables=self._tunables,
            fallback_policies=self._policies,
            controls=self._controls,
        )
        recommendation = run(view, functools.partial(known_answers, done)).decision.recommendation
        return None if recommendation is None or recommendation.leader is None else recommendation.replicas


def known_answers(done: Reconcile, queries: Sequence[Query | AdapterError]) -> list[Answer]:
    """Returns the answers that a turn had, for the queries of another spec; an error for each that it did not ask."""
    known = list(zip(done.queries, done.answers, strict=True))
    return [
        query if isinstance(query, AdapterError) else next((answer for each, answer in known if each == query), _UNREAD)
        for query in queries
    ]


class Result(NamedTuple):
    """How one spec did. `curve` has an entry per turn; `modelled` turns had values that were not measured so."""

    name: str
    curve: Curve
    outcome: SimulatedOutcome
    modelled: int = 0
    since: datetime | None = None


def over(
    name: str,
    hpa: HorizontalPodAutoscaler,
    history: LoadHistory,
    past: PastLoad,
    period: timedelta,
    tunables: Tunables,
    goal: Goal | None = None,
) -> Result:
    """Runs one spec from the first time of the history to the last. It is measured against `goal` (None: its own)."""
    tally, curve = OutcomeTally(tunables.downscale_stabilization), []
    workload, start, length = PastModel(hpa, history, past), history.start, history.end - history.start + period
    for done, _, after in simulate(hpa, workload, start=start, length=length, period=period, tunables=tunables):
        target = wanted(done.view, done.decision) if goal is None else goal.wanted(done)
        tally.add(done.view, done.decision, after, target)
        curve.append((done.view.now, after))
    return Result(name, curve, tally.outcome())


def as_recorded(history: LoadHistory, flap: timedelta) -> Result | None:
    """Returns the curve of the history itself; None if its counts are not known.

    Nothing is known of what its metrics asked for, so only counts and rescales have figures.
    """
    if REPLICAS not in history.columns:
        return None
    counts = [
        (datetime.fromtimestamp(time, history.start.tzinfo), round(count))
        for time, count in zip(history.times, history.columns[REPLICAS], strict=True)
        if count is not None
    ]
    if not counts:
        return None
    tally = OutcomeTally(flap)
    for at, count in counts:
        tally.add_count(at, count)
    return Result("recorded", counts, msgspec.structs.replace(tally.outcome(), judged=False))


# Over a recording: its answers as they are while the count is the recorded one, else scaled to the count.
#
# State, status and the replica count run on under the new decisions; all else of a step is that of the recording. How
# answers and pods are scaled is said in `hpad.engine.shadow`.


class RecordedBacktest:
    """Both curves of a recording: as recorded, and as an HPA would have decided; add its scenarios in their order.

    The HPA has its own spec and annotations, in place of the recorded ones; `shared` as in PastLoad. `repeated` is the
    number of turns that were left out, since their time had been counted.
    """

    def __init__(self, name: str, hpa: HorizontalPodAutoscaler, shared: Collection[str] = ()) -> None:
        self._name = name
        self._spec = hpa.spec
        self._own = PLAIN.of(hpa)
        self._shared = shared
        self._modelled = 0
        self._since: datetime | None = None
        self._until: datetime | None = None
        self.repeated = 0
        self._last: Reconcile | None = None
        self._status = HorizontalPodAutoscalerStatus()
        self._history: History = EMPTY
        self._count: int | None = None
        """The count of the changed HPA; None where it is the recorded one."""
        self._expected: int | None = None
        """The recorded count after the turn before."""
        self._recorded, self._changed = OutcomeTally(FLAP), OutcomeTally(FLAP)
        self._curves: tuple[list[tuple[datetime, int]], list[tuple[datetime, int]]] = ([], [])

    def add(self, scenario: Scenario, begin: datetime | None = None, end: datetime | None = None) -> None:
        """Decides a scenario, and counts its turns from `begin` to `end`. Raises RecordingError.

        One that begins with the state in which the one before ended continues it; any other one starts with the
        recorded state and count. A time that has been counted, as where two daemons recorded the HPA or a clock was set
        back, counts once.
        """
        if not self.continues(scenario):
            self._status, self._history = scenario.hpa.status, scenario.history
            self._count = self._expected = None
        tunables = scenario.tunables.of_hpa(self._own.controls)
        for index, (step, recorded) in enumerate(replay.steps(scenario)):
            changed, self._last = self._turn(step, recorded, tunables, f"steps[{index}]"), recorded
            now = recorded.view.now
            if (begin is None or begin <= now) and (end is None or now <= end):
                self._add(now, recorded, changed)

    def continues(self, scenario: Scenario) -> bool:
        """Returns whether the scenario goes on where the one before ended: later, with the same HPA and its history."""
        last = self._last
        if last is None or not scenario.steps or last.view.hpa.key != scenario.hpa.key:
            return False
        first = decode_step(scenario.steps[0], "steps[0]")
        return first.time > last.view.now and last.settlement.history == scenario.history

    def _add(self, now: datetime, recorded: Reconcile, changed: Reconcile) -> None:
        if self._until is not None and now <= self._until:
            self.repeated += 1
            return
        self._until = now
        sides = ((recorded, self._recorded, self._curves[0]), (changed, self._changed, self._curves[1]))
        for done, tally, curve in sides:
            if done.view.scale is not None:
                tally.add(done.view, done.decision, after(done), wanted(done.view, done.decision))
                curve.append((now, after(done)))

    def _turn(self, step: Step, recorded: Reconcile, tunables: Tunables, where: str) -> Reconcile:
        view, own = recorded.view, self._own
        if step.scale is not None and step.scale.spec.replicas != self._expected:
            self._count = None  # another client has set the recorded count
        view = msgspec.structs.replace(
            view,
            hpa=msgspec.structs.replace(view.hpa, spec=self._spec, status=self._status),
            history=self._history,
            scale=_with(view.scale, self._count),
            tunables=tunables,
            fallback_policies=own.policies,
            controls=own.controls,
            annotation_error=own.error,
            annotation_reason=own.reason,
        )
        changed = self._decided(view, step, recorded, where)
        self._history = changed.settlement.history
        if changed.settlement.status_changed:
            self._status = changed.settlement.status
        if recorded.view.scale is not None:
            self._expected, count = after(recorded), after(changed)
            self._count = None if count == self._expected else count
        return changed

    def _decided(self, view: View, step: Step, recorded: Reconcile, where: str) -> Reconcile:
        if self._count is None or recorded.view.scale is None:
            return replay.reconcile(view, step, lambda queries: known_answers(recorded, queries), where)
        self._modelled += 1
        self._since = self._since or view.now
        answers: Sequence[Answer] = known_answers(recorded, examine(view).queries)
        made = evenly(view, answers, recorded.view.scale.spec.replicas, self._shared)
        return replay.reconcile(msgspec.structs.replace(view, pods=made.pods), step, lambda _: made.answers, where)

    @property
    def recorded(self) -> Result:
        return Result("recorded", self._curves[0], self._recorded.outcome())

    @property
    def changed(self) -> Result:
        return Result(self._name, self._curves[1], self._changed.outcome(), self._modelled, self._since)


def after(done: Reconcile) -> int:
    """Returns the replica count after a turn."""
    written = done.outcome is not None and (done.outcome.written or done.view.shadow is not None)
    return done.decision.scale_to if written and done.decision.scale_to is not None else done.view.replicas


def _with(scale: Scale | None, count: int | None) -> Scale | None:
    """Returns the scale with a count; the same one without."""
    if scale is None or count is None:
        return scale
    status = msgspec.structs.replace(scale.status, replicas=count)
    return msgspec.structs.replace(scale, spec=ScaleSpec(count), status=status)


# A search among specs.


class Candidate(NamedTuple):
    """One combination of a search: the value of each parameter, and its outcome."""

    values: Mapping[str, str]
    outcome: SimulatedOutcome
    best: bool = False


MOST: int = 2000
"""Combinations that a search may have."""


def grid(parameters: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """Yields every combination of the values. Raises ValueError for more than MOST."""
    count = 1
    for values in parameters.values():
        count *= len(values)
    if count > MOST:
        raise ValueError(f"{count} combinations; at most {MOST} are tried")
    for values in itertools.product(*parameters.values()):
        yield dict(zip(parameters, values, strict=True))


def ranked(found: Sequence[Candidate]) -> list[Candidate]:
    """Sorts by replica-hours, and marks those that no other beats in both replica-hours and time above goal."""
    marked: list[Candidate] = []
    last = (0.0, float("inf"))
    for each in sorted(found, key=_both):
        best = _both(each)[1] < last[1] or _both(each) == last
        last = _both(each) if best else last
        marked.append(each._replace(best=best))
    return marked


def _both(candidate: Candidate) -> tuple[float, float]:
    return candidate.outcome.replica_seconds, candidate.outcome.above_goal

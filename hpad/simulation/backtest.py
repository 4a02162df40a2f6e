"""Runs specs over one history, and says how each would have done."""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.quantity import MAX_INT32
from hpad.api.sample import AdapterError, Answer, Query
from hpad.engine.annotations import PLAIN
from hpad.engine.turn import Reconcile, run
from hpad.engine.view import Tunables
from hpad.simulation.history import REPLICAS, LoadHistory
from hpad.simulation.outcome import OutcomeTally, SimulatedOutcome, wanted
from hpad.simulation.run import Workload, simulate

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
    workload: Workload,
    span: LoadHistory,
    period: timedelta,
    tunables: Tunables,
    goal: Goal | None = None,
) -> Result:
    """Runs one spec from the first time of the history to the last. It is measured against `goal` (None: its own)."""
    tally, curve = OutcomeTally(tunables.downscale_stabilization), []
    length = span.end - span.start + period
    for done, _, after in simulate(hpa, workload, start=span.start, length=length, period=period, tunables=tunables):
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

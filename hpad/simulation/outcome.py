"""What a run amounts to: rescales, replica-hours, and how well the count fitted what the metrics asked for.

The wanted count of a turn is the recommendation of its metrics within the bounds of the HPA, before windows and
policies hold it back. The metrics of a turn show the time since the turn before: its wanted count is compared with the
count that was in force then. Durations are in seconds.
"""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from hpad.engine.decide import Decision
from hpad.engine.view import View

FLAP: Final = timedelta(minutes=5)
"""A rescale within this time after one in the other direction is a flap: the default stabilization window."""


_SUMS: Final = ("seconds", "replica_seconds", "at_max", "above_goal", "over", "under", "undecided")


class SimulatedRescale(msgspec.Struct, frozen=True):
    """One change of the count. `why` is the decision in one sentence."""

    at: datetime
    before: int
    after: int
    why: str


class SimulatedOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a run.

    `at_max` and `above_goal`: with the count at the maximum, and below the wanted count. `over` and `under`:
    replica-seconds above and below the wanted count. `undecided`: without a decision; there is no wanted count then.
    `judged`: the wanted count is known at all; without it `at_max` and the figures that compare with it are not.
    """

    seconds: float = 0.0
    turns: int = 0
    rescales: tuple[SimulatedRescale, ...] = ()
    flaps: int = 0
    lowest: int = 0
    highest: int = 0
    replica_seconds: float = 0.0
    at_max: float = 0.0
    above_goal: float = 0.0
    over: float = 0.0
    under: float = 0.0
    undecided: float = 0.0
    judged: bool = True

    @property
    def replica_hours(self) -> float:
        return self.replica_seconds / 3600

    def cost(self, price: float) -> float:
        """Returns the cost at a price per replica and hour."""
        return self.replica_hours * price


def wanted(view: View, decision: Decision) -> int | None:
    """Returns the count that the metrics ask for, within the bounds; None where they did not decide.

    Outside the bounds the nearer bound decides without metrics, and is the wanted count.
    """
    recommendation = decision.recommendation
    if recommendation is None:
        return None if decision.undecided or decision.scale_to is None else decision.desired
    if recommendation.leader is None:
        return None
    return min(max(recommendation.replicas, view.min_replicas), view.max_replicas)


def flaps(rescales: Sequence[SimulatedRescale], within: timedelta) -> int:
    """Returns the number of rescales that come soon after one in the other direction."""
    return sum(
        (one.after > one.before) != (two.after > two.before) and two.at - one.at <= within
        for one, two in itertools.pairwise(rescales)
    )


class OutcomeTally:
    """Adds up an outcome, turn by turn."""

    def __init__(self, flap: timedelta = FLAP) -> None:
        self._flap = flap
        self._rescales: list[SimulatedRescale] = []
        self._sums = dict.fromkeys(_SUMS, 0.0)
        self._turns = 0
        self._range = (0, 0)
        self._last: tuple[datetime, int] | None = None

    def add(self, view: View, decision: Decision, after: int, target: int | None) -> None:
        """Adds a turn that left the count `after`; `target` is its wanted count, None where it is not known."""
        now, before, more = view.now, view.replicas, decision.spare
        self._close(now, target, view.max_replicas, 0 if more is None else more.replicas - more.wanted)
        self._turns += 1
        if after != before:
            self._rescales.append(SimulatedRescale(now, before, after, str(decision)))
        lowest, highest = (after, after) if self._last is None else self._range
        self._range = min(lowest, after), max(highest, after)
        self._last = now, after

    def _close(self, now: datetime, target: int | None, most: int, spare: int) -> None:
        """Adds the time since the last turn. Replicas that the HPA keeps as spare ones are not too many."""
        if self._last is None:
            return
        since, count = self._last
        seconds, sums = (now - since).total_seconds(), self._sums
        sums["seconds"] += seconds
        sums["replica_seconds"] += seconds * count
        if count >= most:
            sums["at_max"] += seconds
        if target is None:
            sums["undecided"] += seconds
        elif target > count:
            sums["above_goal"] += seconds
            sums["under"] += seconds * (target - count)
        else:
            sums["over"] += seconds * max(0, count - target - spare)

    def outcome(self) -> SimulatedOutcome:
        """Returns the figures from the first to the last turn."""
        lowest, highest = self._range
        return SimulatedOutcome(
            turns=self._turns,
            rescales=tuple(self._rescales),
            flaps=flaps(self._rescales, self._flap),
            lowest=lowest,
            highest=highest,
            judged=True,
            **self._sums,
        )

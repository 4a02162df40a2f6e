"""What a run amounts to: rescales, replica-hours, and how well the count fitted what the metrics asked for.

The wanted count of a turn is the recommendation of its metrics and at least the minimum of the HPA, before its maximum,
windows and policies hold it back. The metrics of a turn show the time since the turn before: its wanted count is
compared with the count that was in force then. Durations are in seconds.
"""

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.quantity import MAX_INT32
from hpad.engine.decision import Decision
from hpad.engine.view import View
from hpad.engine.words import percent, span

FLAP: Final = timedelta(minutes=5)
"""A rescale within this time after one in the other direction is a flap: the default stabilization window."""


class SimulatedRescale(msgspec.Struct, frozen=True):
    """One change of the count. `why` is the decision in one sentence."""

    at: datetime
    before: int
    after: int
    why: str


class SimulatedOutcome(msgspec.Struct, kw_only=True):
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
    """Returns the count that the metrics ask for, or the minimum if that is more; None where they did not decide.

    The maximum does not limit it: a lower one would otherwise pass for a better fit. Outside the bounds the nearer
    bound decides without metrics, and is the wanted count.
    """
    recommendation = decision.recommendation
    if recommendation is None:
        return None if decision.undecided or decision.scale_to is None else decision.desired
    if recommendation.leader is None:
        return None
    return max(recommendation.replicas, view.min_replicas)


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
        self._sums = SimulatedOutcome()
        self._last: tuple[datetime, int] | None = None

    def add(self, view: View, decision: Decision, after: int, target: int | None) -> None:
        """Adds a turn that left the count `after`; `target` is its wanted count, None where it is not known."""
        more = decision.spare
        self._close(view.now, target, view.max_replicas, 0 if more is None else more.replicas - more.wanted)
        self._count(view.now, view.replicas, after, decision)

    def add_count(self, now: datetime, after: int) -> None:
        """Adds a recorded count, of which nothing is known that the metrics asked for."""
        before = after if self._last is None else self._last[1]
        self._close(now, None, MAX_INT32, 0)
        self._count(now, before, after, "recorded")

    def _count(self, now: datetime, before: int, after: int, why: Decision | str) -> None:
        sums = self._sums
        sums.turns += 1
        if after != before:
            self._rescales.append(SimulatedRescale(now, before, after, str(why)))
        sums.lowest = after if self._last is None else min(sums.lowest, after)
        sums.highest = max(sums.highest, after)
        self._last = now, after

    def _close(self, now: datetime, target: int | None, most: int, spare: int) -> None:
        """Adds the time since the last turn. Replicas that the HPA keeps as spare ones are not too many."""
        if self._last is None:
            return
        since, count = self._last
        seconds, sums = (now - since).total_seconds(), self._sums
        sums.seconds += seconds
        sums.replica_seconds += seconds * count
        if count >= most:
            sums.at_max += seconds
        if target is None:
            sums.undecided += seconds
        elif target > count:
            sums.above_goal += seconds
            sums.under += seconds * (target - count)
        else:
            sums.over += seconds * max(0, count - target - spare)

    def outcome(self) -> SimulatedOutcome:
        """Returns the figures from the first to the last turn."""
        found = tuple(self._rescales)
        return msgspec.structs.replace(self._sums, rescales=found, flaps=flaps(found, self._flap))


# The figures of runs as text, the same on a terminal and on a page, and a verdict in one line.


class FigureRow(NamedTuple):
    """One row: its label, the text of an outcome, and that of the difference of two.

    `judged`: the figure needs to know what the metrics asked for. `bad`: a value above zero is worth a warning.
    """

    label: str
    text: Callable[[SimulatedOutcome], str]
    difference: Callable[[SimulatedOutcome, SimulatedOutcome], str]
    judged: bool = False
    bad: bool = False

    def value(self, outcome: SimulatedOutcome) -> str:
        """Returns the text of an outcome, "-" where it is not known."""
        return self.text(outcome) if outcome.judged or not self.judged else "-"

    def change(self, before: SimulatedOutcome, after: SimulatedOutcome) -> str:
        """Returns the text of the difference, "-" where it is not known."""
        known = not self.judged or (before.judged and after.judged)
        return self.difference(before, after) if known else "-"


Number = Callable[[SimulatedOutcome], float]


def rows(price: float | None) -> list[FigureRow]:
    """Returns the rows; the cost only with the price of a replica per hour."""
    cost = [] if price is None else [_row("cost", lambda each: each.cost(price), _decimal)]
    return [
        _row("rescales", lambda each: len(each.rescales), _whole),
        _row("flaps", lambda each: each.flaps, _whole, bad=True),
        FigureRow("lowest, highest", lambda each: f"{each.lowest}, {each.highest}", _bounds),
        _row("replica-hours", lambda each: each.replica_hours, _decimal),
        *cost,
        _row("at the maximum", lambda each: each.at_max, _seconds, judged=True),
        _row("above goal", lambda each: each.above_goal, _seconds, judged=True),
        _row("too few", lambda each: each.under, _replica_seconds, judged=True),
        _row("too many", lambda each: each.over, _replica_seconds, judged=True),
        _row("undecided", lambda each: each.undecided, _seconds, judged=True),
    ]


def _row(
    label: str, number: Number, write: Callable[[float], str], *, judged: bool = False, bad: bool = False
) -> FigureRow:
    def difference(before: SimulatedOutcome, after: SimulatedOutcome) -> str:
        change = number(after) - number(before)
        text = write(abs(change))
        return text if text == write(0) else f"{'-' if change < 0 else '+'}{text}"

    return FigureRow(label, lambda each: write(number(each)), difference, judged, bad)


def _whole(number: float) -> str:
    return f"{number:.0f}"


def _decimal(number: float) -> str:
    return f"{number:.2f}"


def _seconds(number: float) -> str:
    return span(round(number))


def _replica_seconds(number: float) -> str:
    return f"{number:.0f} replica-seconds"


def _bounds(before: SimulatedOutcome, after: SimulatedOutcome) -> str:
    changes = after.lowest - before.lowest, after.highest - before.highest
    return ", ".join(f"{change:+d}" if change else "0" for change in changes)


def verdict(outcomes: Sequence[tuple[str, SimulatedOutcome]]) -> str:
    """Returns one line that compares the last run with the one before it; "" for a single one."""
    if len(outcomes) < 2:
        return ""
    (before_name, before), (name, after) = outcomes[-2:]
    text = f"{name}: {_compared(before.replica_seconds, after.replica_seconds)} {before_name}"
    if not after.judged or not after.seconds:
        return text
    share = percent(after.above_goal / after.seconds)
    text = f"{text}; above goal {share} of the time"
    if before.judged and before.seconds:
        other = percent(before.above_goal / before.seconds)
        text += ", as before" if share == other else f" instead of {other}"
    undecided = percent(after.undecided / after.seconds)
    return f"{text}; undecided {undecided} of the time" if after.undecided else text


def _compared(before: float, after: float) -> str:
    if not before:
        return "replica-hours cannot be compared with"
    change = after / before - 1
    if abs(change) < 0.0005:
        return "as many replica-hours as"
    return f"{percent(abs(change))} {'more' if change > 0 else 'fewer'} replica-hours than"

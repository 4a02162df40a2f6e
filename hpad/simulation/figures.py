"""The figures of simulated runs as text, the same on a terminal and on a page, and a verdict in one line."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hpad.engine.words import percent, span
from hpad.simulation.outcome import SimulatedOutcome


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
    if not before.judged or not before.seconds:
        return f"{text}; above goal {share} of the time"
    other = percent(before.above_goal / before.seconds)
    instead = ", as before" if share == other else f" instead of {other}"
    return f"{text}; above goal {share} of the time{instead}"


def _compared(before: float, after: float) -> str:
    if not before:
        return "replica-hours cannot be compared with"
    change = after / before - 1
    if abs(change) < 0.0005:
        return "as many replica-hours as"
    return f"{percent(abs(change))} {'more' if change > 0 else 'fewer'} replica-hours than"

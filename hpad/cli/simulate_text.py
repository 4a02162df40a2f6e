"""What `hpad simulate` prints: the turns and figures of one HPA or more, and the budgets that they share."""

import csv
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final

import msgspec

from hpad.api import amounts
from hpad.cli import output
from hpad.engine.budget import amount_text
from hpad.engine.styled import BLANK, GOOD, QUIET, WARN, Line, Span, labelled, line, table
from hpad.engine.words import span
from hpad.lab.demo.chart import EIGHTHS
from hpad.simulation.outcome import FigureRow, SimulatedOutcome
from hpad.simulation.outcome import rows as figure_rows
from hpad.simulation.run import BudgetUse

_WIDTH: Final = 11


class SimulatedTurn(msgspec.Struct, frozen=True):
    """One turn as it is shown; `load` is in units per second, `ready` the number of replicas that work."""

    time: str
    seconds: int
    load: float
    replicas: int
    ready: int
    desired: int
    decision: str


class SimulatedHpa(msgspec.Struct, frozen=True):
    """What an HPA did, as it is shown."""

    hpa: str
    parameters: dict[str, str]
    turns: list[SimulatedTurn]
    outcome: SimulatedOutcome
    notes: list[str]


class SharedSimulation(msgspec.Struct, frozen=True):
    """What one or more HPAs did, and the budgets that they share."""

    hpas: list[SimulatedHpa]
    budgets: list[BudgetUse]


def print_csv(found: SharedSimulation) -> None:
    """Prints a line for each turn; with several HPAs the first column names them."""
    several = len(found.hpas) > 1
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow((*(["hpa"] if several else []), *SimulatedTurn.__struct_fields__))
    for turn, hpa in _in_time(found.hpas):
        writer.writerow((*([hpa] if several else []), *msgspec.structs.astuple(turn)))


def simulation_json(found: SharedSimulation, price: float | None) -> dict[str, Any]:
    """Returns one HPA as a document of its own, several as a list; with their budgets, if they share any."""
    hpas = [_as_json(each, price) for each in found.hpas]
    whole: dict[str, Any] = hpas[0] if len(hpas) == 1 else {"hpas": hpas}
    return {**whole, "budgets": [_budget_json(each) for each in found.budgets]} if found.budgets else whole


def simulation_lines(found: SharedSimulation, start: datetime, price: float | None, *, explain: bool) -> Iterator[Line]:
    """Yields the parameters, the counts over time, the rescales and the figures."""
    yield from _heads(found.hpas)
    for each in found.hpas:
        yield from _graphs(each, start, "" if len(found.hpas) == 1 else f" of {each.hpa}")
    yield BLANK
    yield from _decisions(found.hpas, explain=explain)
    yield BLANK
    yield from figures([(each.hpa, each.outcome) for each in found.hpas], price)
    if found.budgets:
        yield BLANK
    for use in found.budgets:
        yield labelled("Budget", _used(use), width=_WIDTH)


def _used(use: BudgetUse) -> str:
    peak, amount = f"{use.peak / 1000:g}", amount_text(use.amount, use.unit)
    short = f"short for {span(round(use.limited))}" if use.limited else "never short"
    return f"{use.budget}: at most {peak} of {amount} held; {short}"


def _budget_json(use: BudgetUse) -> dict[str, Any]:
    return {
        "budget": use.budget,
        "unit": use.unit,
        "amount": use.amount / 1000,
        "peak": use.peak / 1000,
        "secondsShort": round(use.limited, 3),
    }


def _in_time(hpas: Sequence[SimulatedHpa]) -> Iterable[tuple[SimulatedTurn, str]]:
    """Returns the turns of all HPAs in the order of time, with the HPA of each."""
    return sorted(((turn, each.hpa) for each in hpas for turn in each.turns), key=lambda found: found[0].seconds)


def _heads(hpas: Sequence[SimulatedHpa]) -> Iterator[Line]:
    """Yields what each HPA has of its own, then the parameters that all have."""
    common = set.intersection(*(set(each.parameters.items()) for each in hpas))
    for each in hpas:
        yield labelled("HPA", each.hpa, width=_WIDTH)
        yield labelled("Load", each.parameters["load"], width=_WIDTH)
        yield from _model(each, lambda item: item not in common)
        for note in each.notes:
            yield labelled("Note", Span(note, WARN), width=_WIDTH)
    yield from _model(hpas[0], common.__contains__)


def _model(found: SimulatedHpa, of: Callable[[tuple[str, str]], bool]) -> Iterator[Line]:
    """Yields the time and the parameters of the model that are chosen."""
    chosen = {item[0]: item[1] for item in found.parameters.items() if item[0] != "load" and of(item)}
    time = chosen.pop("time", None)
    if time is not None:
        yield labelled("Time", time, width=_WIDTH)
    if chosen:
        yield labelled("Model", "; ".join(f"{name} {value}" for name, value in chosen.items()), width=_WIDTH)


def _graphs(found: SimulatedHpa, start: datetime, of: str) -> Iterator[Line]:
    end = start + timedelta(seconds=found.outcome.seconds)
    times = [start + timedelta(seconds=turn.seconds) for turn in found.turns]
    counts = [turn.desired for turn in found.turns]
    loads = [round(turn.load * 1000) for turn in found.turns]
    for title, values, rows in (
        (f"Replicas{of}", [count * 1000 for count in counts], tops_of_counts(counts)),
        (f"Load{of}, units per second", loads, tops_of(loads)),
    ):
        yield from titled_graph(title, [*zip(times, values, strict=True)], start, end, rows)


def _decisions(hpas: Sequence[SimulatedHpa], *, explain: bool) -> Iterator[Line]:
    """Yields the table of the rescales, or of all turns."""
    several = len(hpas) > 1
    rows = [
        [Span(f"+{span(turn.seconds)}"), *([Span(hpa)] if several else []), _change(turn), Span(turn.decision)]
        for turn, hpa in _in_time(hpas)
        if explain or turn.desired != turn.replicas
    ]
    if not rows:
        yield line("No decision changes the count.")
        return
    heads = ("TIME", *(("HPA",) if several else ()), "REPLICAS", "DECISION")
    yield from table([[Span(each, QUIET) for each in heads], *rows], 0)


def _change(turn: SimulatedTurn) -> Span:
    if turn.replicas == turn.desired:
        return Span(str(turn.replicas))
    return Span(f"{turn.replicas} -> {turn.desired}", GOOD)


def figures(outcomes: Sequence[tuple[str, SimulatedOutcome]], price: float | None) -> Iterator[Line]:
    """Yields the table of the figures of one or more runs, which are named."""
    rows: list[list[Span]] = []
    if len(outcomes) > 1:
        rows.append([Span("")] + [Span(name, QUIET) for name, _ in outcomes])
    rows += [[Span(row.label, QUIET), *(_cell(row, outcome) for _, outcome in outcomes)] for row in figure_rows(price)]
    yield from table(rows, 0)


def _cell(row: FigureRow, outcome: SimulatedOutcome) -> Span:
    text = row.value(outcome)
    return Span(text, WARN) if row.bad and text != "0" else Span(text)


def as_json(outcome: SimulatedOutcome, price: float | None) -> dict[str, Any]:
    """Returns the figures of a run in JSON, with the names of the API (camel case)."""
    found: dict[str, Any] = {
        "seconds": round(outcome.seconds, 3),
        "reconciles": outcome.turns,
        "rescales": len(outcome.rescales),
        "flaps": outcome.flaps,
        "lowest": outcome.lowest,
        "highest": outcome.highest,
        "replicaHours": round(outcome.replica_hours, 4),
    }
    if outcome.judged:
        found |= {
            "secondsAtMax": round(outcome.at_max, 3),
            "secondsAboveGoal": round(outcome.above_goal, 3),
            "replicaSecondsUnder": round(outcome.under, 3),
            "replicaSecondsOver": round(outcome.over, 3),
            "secondsUndecided": round(outcome.undecided, 3),
        }
    return found if price is None else {**found, "cost": round(outcome.cost(price), 4)}


def _as_json(found: SimulatedHpa, price: float | None) -> dict[str, Any]:
    return {
        "hpa": found.hpa,
        "parameters": found.parameters,
        "notes": found.notes,
        "turns": [msgspec.structs.asdict(turn) for turn in found.turns],
        "summary": as_json(found.outcome, price),
    }


# Graphs of block characters, which `hpad backtest` prints as well.

ROWS: Final = 8
MARGIN: Final = 10
GAP: Final = "·"
_TICK: Final = 16
"""Columns from one time on the axis to the next, at least."""
_ONE_DAY: Final = timedelta(days=1)


def tops_of(values: Iterable[int]) -> list[int]:
    """Returns the values, in thousandths, at the top of each row of a graph from zero to the highest value."""
    most = max(values, default=0) or 1000
    return [most * (row + 1) // ROWS for row in range(ROWS)]


def tops_of_counts(counts: Iterable[int]) -> list[int]:
    """Returns the same for replica counts, with whole numbers."""
    most = max(1, *counts)
    a_row = math.ceil(most / ROWS)
    return [1000 * a_row * (row + 1) for row in range(math.ceil(most / a_row))]


def titled_graph(
    title: str, curve: Sequence[tuple[datetime, int]], begin: datetime, end: datetime, tops: Sequence[int]
) -> Iterator[Line]:
    """Yields a graph below its title, as wide as the terminal, but 120 columns at most."""
    yield BLANK
    yield line(Span(title, QUIET))
    yield from map(line, graph(curve, begin, end, min(output.width() or 100, 120), tops))


def graph(
    curve: Sequence[tuple[datetime, int]], begin: datetime, end: datetime, width: int, tops: Sequence[int]
) -> list[str]:
    """Returns a graph of block characters, at most `width` columns wide; empty for an empty curve.

    The values of the curve, in thousandths, hold until the next time. A column shows the highest one of its slice of
    time, a dot if there is none: missing is not zero. `tops` are the values at the top of each row, ascending.
    """
    if not curve:
        return []
    columns = _at_equal_intervals(curve, begin, end, max(_TICK, width - MARGIN - 1))
    lines = []
    for row in reversed(range(len(tops))):
        cells = "".join(_graph_cell(value, tops[-1] / len(tops), row) for value in columns)
        lines.append(f"{amounts.rounded(tops[row]):>{MARGIN - 2}} ┤{cells.rstrip()}")
    return [*lines, *_axis(len(columns), begin, end)]


def _at_equal_intervals(
    curve: Sequence[tuple[datetime, int]], begin: datetime, end: datetime, count: int
) -> list[int | None]:
    """Returns the highest value in each of `count` slices of time.

    The last value holds for an average interval, and a single one to the end. None before that and after it.
    """
    found: list[int | None] = []
    slices = [begin + (end - begin) * number / count for number in range(count + 1)]
    ends = curve[-1][0] + (curve[-1][0] - curve[0][0]) / (len(curve) - 1) if len(curve) > 1 else end
    place = 0
    for start, until in pairwise(slices):
        after = bisect_left(curve, until, place, key=itemgetter(0)) if until < end else len(curve)
        within = curve[max(0, place - 1) : after] if start < ends else ()
        found.append(max((each for _, each in within), default=None))
        place = after
    return found


def _graph_cell(value: int | None, a_row: float, row: int) -> str:
    """Returns one cell of a column; zero is a line in the bottom row, a missing value a dot there."""
    if value is None:
        return GAP if row == 0 else " "
    eighths = round(value * 8 / a_row) - row * 8
    return EIGHTHS[min(8, max(1 if row == 0 else 0, eighths))]


def _axis(columns: int, begin: datetime, end: datetime) -> list[str]:
    """Returns the time axis, from the first time to the last."""
    form = "%H:%M" if end - begin < _ONE_DAY else "%m-%d %H:%M"
    ticks = max(1, columns // _TICK)
    line, numbers = ["─"] * columns, [" "] * columns
    for tick in range(ticks):
        column = tick * columns // ticks
        line[column] = "┴"
        text = (begin + (end - begin) * column / columns).strftime(form)
        numbers[column : column + len(text)] = text
    last = end.strftime(form)
    if columns - (ticks - 1) * columns // ticks >= 2 * len(last) + 1:
        numbers[columns - len(last) :] = last
    pad = " " * (MARGIN - 1)
    return [f"{pad}└{''.join(line)}", f"{pad} {''.join(numbers).rstrip()}"]

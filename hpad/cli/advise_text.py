"""The output of `hpad advise` on a terminal: the fleet, a ranked table, and a block for each HPA."""

from collections.abc import Iterator, Sequence
from typing import Final

from hpad.api.metadata import Key
from hpad.cli import advise_block
from hpad.cli.advise_block import SEVERITIES, TRUST
from hpad.cli.advise_report import FleetAdvice
from hpad.cli.output import counted
from hpad.engine.render.text import BLANK, GOOD, QUIET, STRONG, WARN, Line, Span, line, table
from hpad.simulation.advice import summary
from hpad.simulation.advice.assessment import Assessment
from hpad.simulation.advice.words import hours_only, money

_LONGEST_NAME: Final = 26
_LEAST_VERDICT: Final = 16
"""Columns that the verdict has at least in the table, however narrow the terminal is."""
_ELLIPSIS: Final = "…"


def lines(found: FleetAdvice, *, whole: bool, width: int | None) -> Iterator[Line]:
    """Yields the output for a terminal of this width (None: no terminal). `whole`: good HPAs have blocks as well."""
    yield from _summary(found)
    if len(found.notable) > 1:
        yield BLANK
        yield from _ranking(found, width)
    for each in (*found.notable, *(found.good if whole else ())):
        yield BLANK
        yield from advise_block.lines(each, found.price, queries=whole)
    if found.good and not whole:
        yield BLANK
        yield from _good(found.good, width)
    if found.unread:
        yield BLANK
        for missing in found.unread:
            yield line(Span(f"{missing.key}: ", WARN), missing.problem, hang=2)


def _summary(found: FleetAdvice) -> Iterator[Line]:
    sums = summary.summed(found.assessments)
    yield line(Span(summary.counts_of(sums), STRONG))
    yield line("; ".join(summary.sums_of(sums, found.price)), hang=2)
    span = f"{found.begin:%Y-%m-%d %H:%M} to {found.end:%Y-%m-%d %H:%MZ}"
    yield line(Span(f"{span}, {found.samples:,} values read from {found.source}", QUIET), hang=2)
    for note in found.notes:
        yield line(Span(note, WARN), hang=2)


_HEADS: Final = ("NAMESPACE/NAME", "FAULT", "SAVES", "TRUST", "VERDICT")


def _ranking(found: FleetAdvice, width: int | None) -> Iterator[Line]:
    rows = [[Span(head, QUIET) for head in _HEADS], *(_row(each, found.price) for each in found.notable)]
    yield from table(_fitting(rows, width), 0)


def _fitting(rows: list[list[Span]], width: int | None) -> list[list[Span]]:
    """Shortens the last column to the width (None: not at all)."""
    if width is None:
        return rows
    taken = sum(max(len(row[column].text) for row in rows) + 2 for column in range(len(rows[0]) - 1))
    return [[*row[:-1], _cut(row[-1], max(_LEAST_VERDICT, width - taken))] for row in rows]


def _row(each: Assessment, price: float | None) -> list[Span]:
    fault = Span("-")
    if each.findings:
        fault = Span(each.findings[0].fault.value, SEVERITIES[each.findings[0].severity])
    saved = summary.saved(each)
    text = "-" if each.advice is None else f"{hours_only(saved)} h" if price is None else money(saved, price)
    level = each.trust.level
    return [
        Span(_short_name(each.key), STRONG),
        fault,
        Span(text, GOOD if saved > 0 else ""),
        Span(level.value, TRUST[level]),
        Span(each.verdict),
    ]


def _short_name(key: Key) -> str:
    """Returns the name, with an ellipsis in the middle if it is long: its end tells it from others."""
    text = str(key)
    if len(text) <= _LONGEST_NAME:
        return text
    half = (_LONGEST_NAME - 1) // 2
    return f"{text[:half]}{_ELLIPSIS}{text[half + 1 - _LONGEST_NAME :]}"


def _cut(span: Span, most: int) -> Span:
    text = span.text
    return span if len(text) <= most else span._replace(text=f"{text[: most - 1].rstrip()}{_ELLIPSIS}")


def _good(found: Sequence[Assessment], width: int | None) -> Iterator[Line]:
    yield line(Span(f"without a fault: {counted(len(found), 'HPA')}; --all shows them in full", QUIET))
    yield from table(_fitting([[Span(_short_name(each.key), GOOD), Span(each.verdict)] for each in found], width), 0)

"""All that `hpad advise` says of one HPA, as lines."""

from collections.abc import Iterator
from typing import Final

from hpad.cli.output import counted
from hpad.engine.render.text import BAD, GOOD, QUIET, STRONG, WARN, Line, Span, labelled, line, table
from hpad.simulation.advice.assessment import Advice, Assessment, Facts, Level, SettingChange
from hpad.simulation.advice.faults import Severity
from hpad.simulation.advice.words import days, figures, hours, often, rounded, share, written

SEVERITIES: Final = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: QUIET}
TRUST: Final = {Level.GOOD: GOOD, Level.FAIR: WARN, Level.POOR: BAD}
_INDENT: Final = 2
_WIDTH: Final = 9


def lines(each: Assessment, price: float | None, *, queries: bool) -> Iterator[Line]:
    """Yields the block of an HPA: its verdict first, then what it rests on. `queries`: with the PromQL of values."""
    yield line(Span(str(each.key), STRONG), f"  {each.verdict}", hang=_INDENT)
    yield _labelled("Past", "; ".join(past(each.facts, price)))
    for found in each.findings:
        is_note = found.severity is Severity.NOTE
        name = found.fault.value if is_note else f"{found.severity.value} {found.fault.value}"
        yield _labelled("Note" if is_note else "Fault", Span(name, SEVERITIES[found.severity]), f": {found.text}")
    if each.advice is not None:
        yield from _advice(each.advice, each.verdict, price)
    yield _labelled("Trust", Span(each.trust.level.value, TRUST[each.trust.level]), f": {each.trust.text}")
    for address, reading in each.readings.items():
        what = Span(reading.problem, WARN) if reading.problem else Span(reading.source)
        yield _labelled("Values", f"{address}: ", what)
        if queries and reading.expression:
            yield line(Span(f"{'':{_INDENT + _WIDTH}}{reading.expression}", QUIET), hang=_INDENT + _WIDTH)
    for note in each.notes:
        yield _labelled("Model", note)


def _labelled(label: str, *cells: Span | str) -> Line:
    return labelled(label, *cells, indent=_INDENT, width=_WIDTH)


def past(facts: Facts, price: float | None) -> Iterator[str]:
    """Yields what the HPA did, in clauses."""
    if not facts.seconds:
        yield "its replica count is not known at any time"
        return
    counts = str(facts.lowest) if facts.lowest == facts.highest else f"{facts.lowest} to {facts.highest}"
    many = "replica" if facts.highest == 1 else "replicas"
    yield f"{counts} {many} in {rounded(facts.seconds)}, {hours(facts.replica_seconds, price)}"
    yield f"{often(facts.rescales, 'rescale', facts.seconds)}, {counted(facts.flaps, 'flap')}"
    if facts.at_maximum:
        longest = f" (longest {rounded(facts.longest_at_maximum)})" if facts.longest_at_maximum else ""
        yield f"at the maximum {share(facts.at_maximum, facts.seconds)} of the time{longest}"
    if facts.at_minimum:
        yield f"at the minimum {share(facts.at_minimum, facts.seconds)}"
    if facts.above_goal is not None:
        yield f"above goal {share(facts.above_goal, facts.seconds)}"
    if facts.idle:
        yield f"{share(facts.idle, facts.replica_seconds)} of the replica-hours above what the metrics asked for"
    for reason, seconds in facts.failing.items():
        if seconds:
            yield f"failing for {rounded(seconds)} ({reason})"


def _advice(advice: Advice, verdict: str, price: float | None) -> Iterator[Line]:
    if advice.text != verdict:
        yield _labelled("Advice", Span(advice.text, GOOD))
    indent = _INDENT + _WIDTH
    for index, each in enumerate(map(_change, advice.changes)):
        first = index == 0 and advice.text == verdict
        label = f"{'':{_INDENT}}{'Advice:' if first else '':{_WIDTH}}"
        yield line(label, *each, hang=indent + 2)
    first_days, last_days = days(advice.before.seconds), days(advice.checked_before.seconds)
    heads = ["", f"first {first_days}", "advised", f"last {last_days}", "advised"]
    columns = (advice.before, advice.after, advice.checked_before, advice.checked_after)
    rows = [
        [Span(name, QUIET), *(Span(write(each)) for each in columns)]
        for name, write in figures(price)
        if len({write(each) for each in columns}) > 1 or write(columns[0]) not in ("0", "0 %")
    ]
    yield from table([[Span(head, QUIET) for head in heads], *rows], indent)


def _change(change: SettingChange) -> list[Span]:
    before, after = Span(written(change.before), BAD), Span(written(change.after), GOOD)
    return [Span(f"{change.path}: "), before, Span(" -> "), after]

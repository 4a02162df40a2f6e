"""The output of `hpad advise`: the fleet, a ranked table and a block for each HPA; or the same in JSON."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.structs import asdict

from hpad.api.hpa import kind_of
from hpad.api.metadata import Key
from hpad.cli import moments
from hpad.cli.output import counted
from hpad.engine.styled import BAD, BLANK, GOOD, QUIET, STRONG, WARN, Line, Span, labelled, line, table
from hpad.simulation.advice import summary, words
from hpad.simulation.advice.assessment import (
    Advice,
    Assessment,
    Facts,
    Figures,
    Level,
    ModelTrust,
    Sawtooth,
    SettingChange,
    Severity,
)
from hpad.simulation.advice.summary import FleetAdvice

_SEVERITIES: Final = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: QUIET}
_TRUST: Final = {Level.GOOD: GOOD, Level.FAIR: WARN, Level.POOR: BAD, Level.UNKNOWN: QUIET}
_INDENT: Final = 2
_WIDTH: Final = 9
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
        yield from block(each, found.price, queries=whole)
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
        fault = Span(each.findings[0].fault.value, _SEVERITIES[each.findings[0].severity])
    saved = summary.saved(each)
    text = f"{words.hours_only(saved)} h" if price is None else words.money(saved, price)
    level = each.trust.level
    return [
        Span(_short_name(each.key), STRONG),
        fault,
        Span("-" if each.advice is None else text, GOOD if saved > 0 else ""),
        Span(level.value, _TRUST[level]),
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


def block(each: Assessment, price: float | None, *, queries: bool) -> Iterator[Line]:
    """Yields the block of an HPA: its verdict first, then what it rests on. `queries`: with the PromQL of values."""
    yield line(Span(str(each.key), STRONG), f"  {each.verdict}", hang=_INDENT)
    yield _labelled("Past", "; ".join(past(each.facts, price)))
    for found in each.findings:
        is_note = found.severity is Severity.NOTE
        name = found.fault.value if is_note else f"{found.severity.value} {found.fault.value}"
        yield _labelled("Note" if is_note else "Fault", Span(name, _SEVERITIES[found.severity]), f": {found.text}")
    if each.advice is not None:
        yield from _advice(each.advice, each.verdict, price)
    elif each.unadvised:
        yield _labelled("Advice", f"none: {each.unadvised}")
    yield _labelled("Trust", Span(each.trust.level.value, _TRUST[each.trust.level]), f": {each.trust.text}")
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
    yield f"{counts} {many} in {words.rounded(facts.seconds)}, {words.hours(facts.replica_seconds, price)}"
    yield f"{words.often(facts.rescales, 'rescale', facts.seconds)}, {counted(facts.flaps, 'flap')}"
    if facts.at_maximum:
        longest = f" (longest {words.rounded(facts.longest_at_maximum)})" if facts.longest_at_maximum else ""
        yield f"at the maximum {words.share(facts.at_maximum, facts.seconds)} of the time{longest}"
    if facts.at_minimum:
        yield f"at the minimum {words.share(facts.at_minimum, facts.seconds)}"
    if facts.above_goal is not None:
        yield f"above goal {words.share(facts.above_goal, facts.seconds)}"
    if facts.idle:
        yield f"{words.share(facts.idle, facts.replica_seconds)} of the replica-hours above what the load needed"
    for reason, seconds in facts.failing.items():
        if seconds:
            yield f"failing for {words.rounded(seconds)} ({words.reason_of(reason)})"


def _advice(advice: Advice, verdict: str, price: float | None) -> Iterator[Line]:
    if advice.text != verdict:
        yield _labelled("Advice", Span(advice.text, GOOD))
    indent = _INDENT + _WIDTH
    for index, each in enumerate(map(_change, advice.changes)):
        first = index == 0 and advice.text == verdict
        label = f"{'':{_INDENT}}{'Advice:' if first else '':{_WIDTH}}"
        yield line(label, *each, hang=indent + 2)
    heads, columns = ["", f"first {words.days(advice.before.seconds)}", "advised"], [advice.before, advice.after]
    if advice.is_checked:
        heads += [f"last {words.days(advice.checked_before.seconds)}", "advised"]
        columns += [advice.checked_before, advice.checked_after]
    rows = [
        [Span(name, QUIET), *(Span(write(each)) for each in columns)]
        for name, write in words.figures(price)
        if len({write(each) for each in columns}) > 1 or write(columns[0]) not in ("0", "0 %")
    ]
    yield from table([[Span(head, QUIET) for head in heads], *rows], indent)


def _change(change: SettingChange) -> list[Span]:
    before, after = Span(words.written(change.before), BAD), Span(words.written(change.after), GOOD)
    return [Span(f"{change.path}: "), before, Span(" -> "), after]


# JSON. Durations are in seconds, times in RFC 3339.


def as_json(found: FleetAdvice) -> dict[str, Any]:
    """Returns the advice on all HPAs: those with faults first, as in the text."""
    price, sums = found.price, summary.summed(found.assessments)
    return {
        "begin": moments.written(found.begin),
        "end": moments.written(found.end),
        "source": found.source,
        "notes": list(found.notes),
        "summary": {
            "hpas": sums.hpas,
            "withFaults": sums.faulty,
            "withAdvice": sums.advised,
            "samples": found.samples,
            **_priced("replicaHours", sums.replica_seconds, "cost", price),
            **_priced("savedReplicaHours", sums.saved, "savedCost", price),
            **_priced("addedReplicaHours", sums.added, "addedCost", price),
        },
        "items": [_item_json(each, price) for each in (*found.notable, *found.good)],
        "unread": [{**named(each.key), "problem": each.problem} for each in found.unread],
    }


def _item_json(each: Assessment, price: float | None) -> dict[str, Any]:
    return {
        **named(each.key),
        "verdict": each.verdict,
        "faults": [
            {"fault": found.fault.value, "severity": found.severity.value, "text": found.text}
            for found in each.findings
        ],
        "advice": None if each.advice is None else _advice_json(each, each.advice, price),
        "unadvised": each.unadvised or None,
        "trust": trust_json(each.trust),
        "facts": _facts_json(each.facts, price),
        "readings": {address: reading._asdict() for address, reading in each.readings.items()},
        "notes": list(each.notes),
        "samples": each.samples,
    }


def _advice_json(each: Assessment, advice: Advice, price: float | None) -> dict[str, Any]:
    def compared(before: Figures, after: Figures) -> dict[str, Any]:
        return {"before": figures_json(before, price), "after": figures_json(after, price)}

    return {
        "text": advice.text,
        "changes": [asdict(change) for change in advice.changes],
        "saved": round(advice.saved, 4),
        **_priced("savedReplicaHours", summary.saved(each), "savedCost", price),
        "chosen": compared(advice.before, advice.after),
        "checked": compared(advice.checked_before, advice.checked_after) if advice.is_checked else None,
    }


def _facts_json(facts: Facts, price: float | None) -> dict[str, Any]:
    sawtooth = facts.sawtooth
    return {
        "seconds": round(facts.seconds, 3),
        **_priced("replicaHours", facts.replica_seconds, "cost", price),
        "lowest": facts.lowest,
        "highest": facts.highest,
        "secondsAtMax": round(facts.at_maximum, 3),
        "longestSecondsAtMax": round(facts.longest_at_maximum, 3),
        "secondsAtMin": round(facts.at_minimum, 3),
        "secondsAboveGoal": None if facts.above_goal is None else round(facts.above_goal, 3),
        "secondsFailing": {reason: round(seconds, 3) for reason, seconds in facts.failing.items()},
        "rescales": facts.rescales,
        "flaps": facts.flaps,
        "sawtooth": sawtooth and _sawtooth_json(sawtooth),
        "idleReplicaHours": None if facts.idle is None else round(facts.idle / 3600, 4),
        "peak": facts.peak,
    }


def _sawtooth_json(found: Sawtooth) -> dict[str, Any]:
    return {**asdict(found), "begin": moments.written(found.begin), "end": moments.written(found.end)}


def trust_json(found: ModelTrust) -> dict[str, Any]:
    """Returns how far the model is trusted."""
    agreement = None if found.agreement is None else round(found.agreement, 4)
    return {"level": found.level.value, "agreement": agreement, "text": found.text}


def figures_json(found: Figures, price: float | None) -> dict[str, Any]:
    """Returns how one spec did."""
    return {
        "seconds": round(found.seconds, 3),
        **_priced("replicaHours", found.replica_seconds, "cost", price),
        "secondsAboveGoal": round(found.above_goal, 3),
        "secondsOverloaded": round(found.overloaded, 3),
        "rescales": found.rescales,
        "flaps": found.flaps,
        "lowest": found.lowest,
        "highest": found.highest,
    }


def _priced(name: str, replica_seconds: float, cost: str, price: float | None) -> dict[str, float]:
    """Returns replica-hours, and what they cost if the price is known."""
    hours = replica_seconds / 3600
    found = {name: round(hours, 4)}
    return found if price is None else {**found, cost: round(hours * price, 4)}


def named(key: Key) -> dict[str, str]:
    """Returns the names of an HPA."""
    return {"namespace": key.namespace, "name": key.name, "kind": kind_of(key)}

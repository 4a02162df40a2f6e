"""The page of `hpad advise --report`: the fleet, then each HPA; one HTML file without anything from elsewhere."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from hpad.engine.words import percent
from hpad.simulation.advice import words
from hpad.simulation.advice.assessment import Assessment
from hpad.simulation.advice.faults import Severity
from hpad.simulation.advice.pages import of_hpa, table
from hpad.simulation.advice.pages.table import link
from hpad.simulation.advice.summary import (
    FleetSummary,
    at_risk,
    counts_of,
    ranked,
    risk,
    saved,
    savings,
    summed,
    sums_of,
)
from hpad.simulation.document import document, escaped, prose

_FILES: Final = ("advice.css", "advice.js", "pointer.js")
_MOST: Final = 7
"""HPAs in each of the lists above the table."""


class PageHeader(NamedTuple):
    """What the page says of the whole fleet.

    `source`: where the past is from, such as the URL of Prometheus without secrets. `price`: of one replica per hour.
    `skipped`: HPAs without an assessment, with the reason. `notes`: what else a reader has to know.
    """

    begin: datetime
    end: datetime
    source: str
    price: float | None = None
    skipped: Mapping[str, str] = {}
    notes: Sequence[str] = ()


def page(assessments: Sequence[Assessment], header: PageHeader) -> Iterator[str]:
    """Yields the parts of the page, to be written one after the other."""
    yield from document("Advice on HPAs", _body(ranked(assessments), header), _FILES)


def _body(assessments: Sequence[Assessment], header: PageHeader) -> Iterator[str]:
    found = summed(assessments)
    yield from _header(found, header)
    yield "<main>\n"
    yield from _tiles(found, header.price)
    yield from _lists(assessments, header.price)
    yield from table.table(assessments, header.price)
    yield from _skipped(header.skipped)
    if assessments:
        yield '<section class="hpas" aria-labelledby="each"><div><h2 id="each">Each HPA</h2></div>\n'
        for each in assessments:
            yield from of_hpa.block(each, header.price)
        yield "</section>\n"
    yield "</main>\n"
    yield (
        "<footer><p>All times are in UTC. <b>Above goal</b>: a metric is above its own goal beyond the tolerance. "
        "<b>Overloaded</b>: it is above a level that is the same before and after the advice. <b>Flap</b>: a rescale "
        "within five minutes after one in the other direction. <b>Trust</b>: how well the model, with the settings of "
        "now, gives the replica curve that was recorded.</p></footer>\n"
    )


def _header(found: FleetSummary, header: PageHeader) -> Iterator[str]:
    times = f"{_moment(header.begin)} to {_moment(header.end)} UTC"
    yield f'<header><h1>Advice on HPAs</h1><p class="soft">{times}, from {escaped(header.source)}</p>'
    yield f'<p class="lead">{prose(sentence(found, header.price))}</p>'
    yield "".join(f'<p class="warning severity">{prose(note)}</p>' for note in header.notes)
    yield "</header>\n"


def sentence(found: FleetSummary, price: float | None) -> str:
    """Returns the fleet in one sentence."""
    if not found.hpas:
        return "There is no HPA to give advice on."
    return f"{counts_of(found)}: {'; '.join(sums_of(found, price))}."


def _tiles(found: FleetSummary, price: float | None) -> Iterator[str]:
    errors = found.severities.get(Severity.ERROR, 0)
    others = found.faulty - errors
    yield '<section class="tiles" aria-label="The fleet">'
    yield _tile(
        f"{found.hpas:,}", "HPAs" if found.hpas != 1 else "HPA", f"{found.hpas - found.faulty:,} without a fault"
    )
    yield _tile(
        f"{errors:,}", "at risk: a fault that is an error", f"{others:,} more with faults", "error" if errors else ""
    )
    yield _tile(words.hours_only(found.replica_seconds), "replica-hours", _cost(found.replica_seconds, price))
    share = words.share(found.saved, found.replica_seconds)
    below = f"{share} of all{_for(found.saved, price)}"
    yield _tile(words.hours_only(found.saved), "replica-hours could be saved", below, "fine" if found.saved else "")
    if found.added:
        share = words.share(found.added, found.replica_seconds)
        text = "replica-hours would end overload"
        yield _tile(words.hours_only(found.added), text, f"{share} of all{_for(found.added, price)}", "warning")
    yield "</section>\n"


def _tile(number: str, what: str, more: str, kind: str = "") -> str:
    below = f'<span class="soft">{prose(more)}</span>' if more else ""
    return f'<div class="card tile {kind}"><b>{number}</b><span>{prose(what)}</span>{below}</div>'


def _cost(replica_seconds: float, price: float | None) -> str:
    return "" if price is None else f"cost {words.money(replica_seconds, price)}, at {price:g} per hour"


def _for(replica_seconds: float, price: float | None) -> str:
    return "" if price is None else f", {words.money(replica_seconds, price)}"


def _lists(assessments: Sequence[Assessment], price: float | None) -> Iterator[str]:
    risks, gains = at_risk(assessments), savings(assessments)
    if not risks and not gains:
        return
    yield '<div class="pair">'
    if risks:
        most = risk(risks[0]) or 1.0
        items = [_item(each, "error", percent(risk(each)), risk(each) / most) for each in risks]
        yield _list("At risk", "share of the time above goal, or without metrics", items)
    if gains:
        most = saved(gains[0])
        items = [_item(each, "fine", _saved(each, price), saved(each) / most) for each in gains]
        yield _list("Could be saved", "replica-hours" if price is None else "replica-hours and money", items)
    yield "</div>\n"


def _saved(each: Assessment, price: float | None) -> str:
    hours = f"{words.hours_only(saved(each))} h"
    return hours if price is None else f'<span class="soft">{hours}</span> {words.money(saved(each), price)}'


def _list(title: str, unit: str, items: Sequence[str]) -> str:
    more = f'<p class="soft">{len(items) - _MOST} more in the table below</p>' if len(items) > _MOST else ""
    return (
        f'<section class="card"><h2>{title} <small>{escaped(unit)}</small></h2>'
        f'<ol class="rank">{"".join(items[:_MOST])}</ol>{more}</section>'
    )


def _item(each: Assessment, kind: str, number: str, part: float) -> str:
    bar = f'<svg class="bar" aria-hidden="true"><rect width="{part * 100:.3g}%" height="100%"/></svg>'
    return f'<li class="{kind}">{link(each)}<b>{number}</b>{bar}<p class="soft">{prose(each.verdict)}</p></li>'


def _skipped(skipped: Mapping[str, str]) -> Iterator[str]:
    if not skipped:
        return
    yield f'<section class="card"><h2>Not assessed <small>{_counted(len(skipped), "HPA")}</small></h2>'
    yield '<dl class="skipped">'
    yield "".join(f"<div><dt>{escaped(key)}</dt><dd>{escaped(reason)}</dd></div>" for key, reason in skipped.items())
    yield "</dl></section>\n"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%a %Y-%m-%d %H:%M}"

"""The page of `hpad advise --report`: the fleet, then each HPA; one HTML file without anything from elsewhere."""

import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from hpad.engine.words import percent
from hpad.simulation.advice import page_of_hpa, summary, words
from hpad.simulation.advice.assessment import Assessment, Severity
from hpad.simulation.advice.page_of_hpa import FINE, anchor, mark, name
from hpad.simulation.advice.summary import FleetAdvice, FleetSummary
from hpad.simulation.document import document, escaped, prose

_FILES: Final = ("advice.css", "advice.js", "pointer.js")
_HEADS: Final = ("HPA", "severity", "fault", "saves", "trust", "verdict")
_MOST: Final = 7
"""HPAs in each of the lists above the table."""


def page(advice: FleetAdvice) -> Iterator[str]:
    """Yields the parts of the page, to be written one after the other."""
    yield from document("Advice on HPAs", _body(advice), _FILES)


def _body(advice: FleetAdvice) -> Iterator[str]:
    assessments, price = summary.ranked(advice.assessments), advice.price
    found = summary.summed(assessments)
    yield from _header(found, advice)
    yield "<main>\n"
    yield from _tiles(found, price)
    yield from _lists(assessments, price)
    yield from _table(assessments, price)
    yield from _skipped({str(each.key): each.problem for each in advice.unread})
    if assessments:
        yield '<section class="hpas" aria-labelledby="each"><div><h2 id="each">Each HPA</h2></div>\n'
        for each in assessments:
            yield from page_of_hpa.block(each, price)
        yield "</section>\n"
    yield "</main>\n"
    yield (
        "<footer><p>All times are in UTC. <b>Above goal</b>: a metric is above its own goal beyond the tolerance. "
        "<b>Overloaded</b>: it is above a level that is the same before and after the advice. <b>Flap</b>: a rescale "
        "within five minutes after one in the other direction. <b>Trust</b>: how well the model, with the settings of "
        "now, gives the replica curve that was recorded.</p></footer>\n"
    )


def _header(found: FleetSummary, advice: FleetAdvice) -> Iterator[str]:
    times = f"{_moment(advice.begin)} to {_moment(advice.end)} UTC"
    yield f'<header><h1>Advice on HPAs</h1><p class="soft">{times}, from {escaped(advice.source)}</p>'
    yield f'<p class="lead">{prose(sentence(found, advice.price))}</p>'
    yield "".join(f'<p class="warning severity">{prose(note)}</p>' for note in advice.notes)
    yield "</header>\n"


def sentence(found: FleetSummary, price: float | None) -> str:
    """Returns the fleet in one sentence."""
    if not found.hpas:
        return "There is no HPA to give advice on."
    return f"{summary.counts_of(found)}: {'; '.join(summary.sums_of(found, price))}."


def _tiles(found: FleetSummary, price: float | None) -> Iterator[str]:
    errors = found.severities.get(Severity.ERROR, 0)
    others = found.faulty - errors
    yield '<section class="tiles" aria-label="The fleet">'
    yield _tile(
        f"{found.hpas:,}", "HPAs" if found.hpas != 1 else "HPA", f"{found.hpas - found.faulty:,} without a fault"
    )
    yield _tile(
        f"{errors:,}", "at risk: with an error", f"{others:,} more with other faults", "error" if errors else ""
    )
    yield _tile(words.hours_only(found.replica_seconds), "replica-hours", _cost(found.replica_seconds, price))
    share = words.share(found.saved, found.replica_seconds)
    number, below = words.hours_only(found.saved), f"{share} of all{_for(found.saved, price)}"
    if found.hpas and not found.judged:
        number, below = "?", f"not known: {summary.unknown_savings(found)}"
    yield _tile(number, "replica-hours could be saved", below, "fine" if found.saved else "")
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
    risks, gains = summary.at_risk(assessments), summary.savings(assessments)
    if not risks and not gains:
        return
    yield '<div class="pair">'
    if risks:
        most = summary.risk(risks[0]) or 1.0
        items = [_item(each, "error", percent(summary.risk(each)), summary.risk(each) / most) for each in risks]
        yield _list("At risk", "HPAs with an error; share of the time above goal or without metrics", items)
    if gains:
        most = summary.saved(gains[0])
        items = [_item(each, "fine", _saved(each, price), summary.saved(each) / most) for each in gains]
        yield _list("Could be saved", "replica-hours" if price is None else "replica-hours and money", items)
    yield "</div>\n"


def _saved(each: Assessment, price: float | None) -> str:
    hours = f"{words.hours_only(summary.saved(each))} h"
    return hours if price is None else f'<span class="soft">{hours}</span> {words.money(summary.saved(each), price)}'


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
    yield f'<section class="card"><h2>Not assessed <small>{summary.counted_hpas(len(skipped))}</small></h2>'
    yield '<dl class="skipped">'
    yield "".join(f"<div><dt>{escaped(key)}</dt><dd>{escaped(reason)}</dd></div>" for key, reason in skipped.items())
    yield "</dl></section>\n"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%a %Y-%m-%d %H:%M}"


def link(each: Assessment) -> str:
    """Returns a link to the part on an HPA."""
    return f'<a href="#{urllib.parse.quote(anchor(each.key))}">{name(each.key)}</a>'


def _table(assessments: Sequence[Assessment], price: float | None) -> Iterator[str]:
    """Yields the filter and the table."""
    if not assessments:
        return
    yield '<section class="card" aria-labelledby="all"><h2 id="all">All HPAs</h2>\n'
    yield _filter(assessments)
    heads = "".join(f'<th role="columnheader" scope="col">{head}</th>' for head in _HEADS)
    yield '<table class="fleet" role="table" aria-labelledby="all"><thead role="rowgroup"><tr role="row">'
    yield f'{heads}</tr></thead><tbody role="rowgroup">\n'
    for each in assessments:
        yield _row(each, price)
    yield "</tbody></table></section>\n"


def _row(each: Assessment, price: float | None) -> str:
    kind = summary.severity(each)
    faults = " ".join(found.fault for found in each.findings)
    badges = " ".join(f'<span class="badge {found.severity}">{found.fault}</span>' for found in each.findings)
    cells = (
        f'<td role="cell">{_severity(kind)}</td>',
        f'<td role="cell">{badges}</td>',
        f'<td role="cell">{_saving(each, price)}</td>',
        f'<td role="cell">{each.trust.level}</td>',
        f'<td role="cell"><p>{prose(each.verdict)}</p></td>',
    )
    data = f'data-faults="{faults}" data-saved="{summary.saved(each):.0f}"{" data-advice" if each.advice else ""}'
    head = f'<th role="rowheader" scope="row">{link(each)}</th>'
    return f'<tr role="row" class="{kind or FINE}" {data}>{head}{"".join(cells)}</tr>\n'


def _severity(kind: Severity | None) -> str:
    if kind is None:
        return '<span class="soft">no fault</span>'
    return f'<span class="severity">{mark(kind)}{kind}</span>'


def _saving(each: Assessment, price: float | None) -> str:
    if each.advice is None:
        return ""
    amount = summary.saved(each)
    text = f"{words.hours_only(amount)} h" if price is None else words.money(amount, price)
    share = percent(each.advice.saved)
    return f'<b{" class=good" if amount > 0 else ""}>{text}</b> <span class="soft">{share}</span>'


def _filter(assessments: Sequence[Assessment]) -> str:
    """Returns the filter; it is hidden until the script runs."""
    faults = Counter(found.fault for each in assessments for found in each.findings)
    severities = Counter(summary.severity(each) for each in assessments)
    kinds = [(each.value, f"{each} ({severities[each]})") for each in Severity if severities[each]]
    kinds += [(FINE, f"no fault ({severities[None]})")] if severities[None] else []
    advised = sum(each.advice is not None for each in assessments)
    return (
        '<form class="filter" id="filter" role="search" aria-label="HPAs" hidden>'
        '<label class="text"><span>Text</span><input type="search" name="q" placeholder="name or verdict"'
        ' autocomplete="off" spellcheck="false"></label>'
        f"{_select('fault', 'Fault', [(fault.value, f'{fault} ({count})') for fault, count in faults.most_common()])}"
        f"{_select('severity', 'Severity', kinds)}"
        f"{_select('order', 'Order', [('saved', 'saving'), ('name', 'name')], first='severity')}"
        f'<label class="check"><input type="checkbox" name="advice" value="yes"> has advice ({advised})</label>'
        '<p role="status" class="soft"></p></form>\n'
    )


def _select(field: str, label: str, options: Sequence[tuple[str, str]], first: str = "any") -> str:
    items = "".join(f'<option value="{value}">{text}</option>' for value, text in options)
    choice = f'<select name="{field}"><option value="">{first}</option>{items}</select>'
    return f"<label><span>{label}</span>{choice}</label>"

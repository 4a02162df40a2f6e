"""The table of the HPAs on the page, and its filter."""

import urllib.parse
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from hpad.api.metadata import Key
from hpad.engine.words import percent
from hpad.simulation.advice import words
from hpad.simulation.advice.assessment import Assessment
from hpad.simulation.advice.faults import Severity
from hpad.simulation.advice.summary import saved, severity
from hpad.simulation.document import escaped, prose

_HEADS: Final = ("HPA", "severity", "fault", "saves", "trust", "verdict")
FINE: Final = "fine"
"""The class of an HPA without a fault."""


def anchor(key: Key) -> str:
    """Returns the id of the part on an HPA; no other id has a slash."""
    return urllib.parse.quote(str(key))


def name(key: Key) -> str:
    """Returns the name of an HPA as HTML, the namespace less prominent."""
    return f'<span class="soft">{escaped(key.namespace)}/</span><wbr>{escaped(key.local)}'


def link(each: Assessment) -> str:
    """Returns a link to the part on an HPA."""
    return f'<a href="#{urllib.parse.quote(anchor(each.key))}">{name(each.key)}</a>'


def mark(kind: Severity) -> str:
    """Returns the sign of a severity; words go with it."""
    return f'<i class="sign {kind}"></i>'


def table(assessments: Sequence[Assessment], price: float | None) -> Iterator[str]:
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
    kind = severity(each)
    faults = " ".join(found.fault for found in each.findings)
    badges = " ".join(f'<span class="badge {found.severity}">{found.fault}</span>' for found in each.findings)
    cells = (
        f'<td role="cell">{_severity(kind)}</td>',
        f'<td role="cell">{badges}</td>',
        f'<td role="cell">{_saving(each, price)}</td>',
        f'<td role="cell">{each.trust.level}</td>',
        f'<td role="cell"><p>{prose(each.verdict)}</p></td>',
    )
    data = f'data-faults="{faults}" data-saved="{saved(each):.0f}"{" data-advice" if each.advice else ""}'
    head = f'<th role="rowheader" scope="row">{link(each)}</th>'
    return f'<tr role="row" class="{kind or FINE}" {data}>{head}{"".join(cells)}</tr>\n'


def _severity(kind: Severity | None) -> str:
    if kind is None:
        return '<span class="soft">no fault</span>'
    return f'<span class="severity">{mark(kind)}{kind}</span>'


def _saving(each: Assessment, price: float | None) -> str:
    if each.advice is None:
        return ""
    amount = saved(each)
    text = f"{words.hours_only(amount)} h" if price is None else words.money(amount, price)
    share = percent(each.advice.saved)
    return f'<b{" class=good" if amount > 0 else ""}>{text}</b> <span class="soft">{share}</span>'


def _filter(assessments: Sequence[Assessment]) -> str:
    """Returns the filter; it is hidden until the script runs."""
    faults = Counter(found.fault for each in assessments for found in each.findings)
    severities = Counter(severity(each) for each in assessments)
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

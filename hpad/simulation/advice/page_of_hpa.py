"""The part of the page on one HPA: verdict, charts, faults, advice, trust, and what it rests on."""

import urllib.parse
from collections.abc import Iterator
from typing import Final

from hpad.api.metadata import Key
from hpad.simulation import charts
from hpad.simulation.advice import words
from hpad.simulation.advice.assessment import (
    Advice,
    Assessment,
    Chart,
    Facts,
    HpaFault,
    Level,
    ModelTrust,
    Sawtooth,
    SettingChange,
    Severity,
)
from hpad.simulation.advice.past import MetricReading
from hpad.simulation.advice.summary import severity
from hpad.simulation.charts import ADVISED, MODELLED, RECORDED, ReplicaCurve
from hpad.simulation.document import escaped, escaped_code, prose

FINE: Final = "fine"
"""The class of an HPA without a fault."""


def anchor(key: Key) -> str:
    """Returns the id of the part on an HPA; no other id has a slash."""
    return urllib.parse.quote(str(key))


def name(key: Key) -> str:
    """Returns the name of an HPA as HTML, the namespace less prominent."""
    return f'<span class="soft">{escaped(key.namespace)}/</span><wbr>{escaped(key.local)}'


def mark(kind: Severity) -> str:
    """Returns the sign of a severity; words go with it."""
    return f'<i class="sign {kind}"></i>'


_TRUST = {Level.GOOD: FINE, Level.FAIR: "warning", Level.POOR: "error", Level.UNKNOWN: "note"}


def block(each: Assessment, price: float | None) -> Iterator[str]:
    """Yields the part; it is open if there is a fault or an advice."""
    kind = severity(each) or FINE
    is_open = " open" if each.findings or each.advice else ""
    badges = " ".join(f'<span class="badge {found.severity}">{found.fault}</span>' for found in each.findings)
    yield f'<details class="card hpa {kind}" id="{anchor(each.key)}"{is_open}><summary><h3>{name(each.key)}</h3>'
    yield f'<span class="badges">{badges}</span><p class="verdict">{prose(each.verdict)}</p></summary>'
    yield f'<div class="body"><div class="charts">{_charts(each.chart)}</div><div class="said">'
    yield from _faults(each)
    if each.advice is not None:
        yield from _advice(each.advice, each.verdict, price)
    elif each.unadvised:
        yield f"<section><h4>Advice</h4><p>none: {prose(each.unadvised)}</p></section>"
    yield _trust(each.trust)
    yield '</div><div class="did"><section><h4>What it did</h4>'
    yield f'<dl class="facts">{_facts(each, price)}</dl></section>{_sources(each)}</div></div></details>\n'


def _charts(chart: Chart | None) -> str:
    if chart is None:
        return '<p class="soft">There are no values to draw.</p>'
    span = chart.begin, chart.end
    drawn = (
        ReplicaCurve(RECORDED, "recorded", chart.recorded),
        ReplicaCurve(MODELLED, "model, settings of now", chart.modelled),
        ReplicaCurve(ADVISED, "model, advised settings", chart.advised),
    )
    metrics = "".join(charts.metric_chart(metric, *span) for metric in chart.metrics)
    return metrics + charts.replica_chart(drawn, *span, chart.minimum, chart.maximum)


def _faults(each: Assessment) -> Iterator[str]:
    if not each.findings:
        return
    items = "".join(
        f'<li class="{found.severity}">{mark(found.severity)}<p>'
        f'<b class="severity">{found.severity} {found.fault}</b>: {prose(found.text)}</p></li>'
        for found in each.findings
    )
    yield f'<section><h4>Faults</h4><ul class="faults">{items}</ul></section>'


def _advice(advice: Advice, verdict: str, price: float | None) -> Iterator[str]:
    text = "" if advice.text == verdict else f"<p>{prose(advice.text)}</p>"
    yield f'<section class="advice"><h4>Advice</h4>{text}<ul class="changes">'
    yield "".join(map(_change, advice.changes))
    yield f"</ul>{_figures(advice, price)}</section>"


def _change(change: SettingChange) -> str:
    before, after = escaped(words.written(change.before)), escaped(words.written(change.after))
    return f"<li><code>{escaped(change.path)}</code> <s>{before}</s> &rarr; <b>{after}</b></li>"


def _figures(advice: Advice, price: float | None) -> str:
    columns, titles = [advice.before, advice.after], [f"chosen on the first {words.days(advice.before.seconds)}"]
    if advice.is_checked:
        columns += [advice.checked_before, advice.checked_after]
        titles.append(f"checked on the last {words.days(advice.checked_before.seconds)}")
    rows = "".join(
        f'<tr><th scope="row">{label}</th>{"".join(f"<td>{text(each)}</td>" for each in columns)}</tr>'
        for label, text in words.figures(price)
    )
    groups = "".join(f'<th scope="colgroup" colspan="2">{title}</th>' for title in titles)
    heads = '<th scope="col">now</th><th scope="col">advised</th>' * len(titles)
    spans = '<colgroup span="2"></colgroup>' * len(titles)
    return (
        f'<table class="figures compared"><colgroup><col></colgroup>{spans}'
        f"<thead><tr><td></td>{groups}</tr><tr><td></td>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _facts(each: Assessment, price: float | None) -> str:
    return "".join(f"<div><dt>{label}</dt><dd>{prose(text)}</dd></div>" for label, text in _known(each, price))


def _known(each: Assessment, price: float | None) -> Iterator[tuple[str, str]]:
    """Yields what the past shows, with labels. Of equal bounds the time at either says nothing."""
    facts = each.facts
    if not facts.seconds:
        yield "replicas", "the count is not known at any time"
        return
    counts = f"{facts.lowest:,}" if facts.lowest == facts.highest else f"{facts.lowest:,} to {facts.highest:,}"
    yield "replicas", f"{counts} in {words.days(facts.seconds)}, {words.hours(facts.replica_seconds, price)}"
    yield "rescales", _rescales(facts)
    if all(found.fault is not HpaFault.MINIMUM_IS_MAXIMUM for found in each.findings):
        yield "at the maximum", _at_maximum(facts)
        yield "at the minimum", _time(facts.at_minimum, facts.seconds)
    yield "above goal", "not known" if facts.above_goal is None else _time(facts.above_goal, facts.seconds)
    if facts.held_back:
        yield "held back", f"fewer than its metrics asked for {_time(facts.held_back, facts.seconds)}"
    if facts.peak is not None:
        yield "asked for", f"{facts.peak:,} at most by its metrics"
    if facts.idle:
        share = words.share(facts.idle, facts.replica_seconds)
        yield "idle", f"{words.hours(facts.idle, price)} ({share}) above what the load needed"
    elif facts.hides_load:
        yield "idle", words.UNKNOWN_LOAD
    if facts.sawtooth is not None:
        yield "sawtooth", _sawtooth(facts.sawtooth)
    for reason, seconds in facts.failing.items():
        if seconds:
            yield "not readable", f"{_time(seconds, facts.seconds)}; {words.reason_of(reason)}"


def _rescales(facts: Facts) -> str:
    if not facts.rescales:
        return "none"
    often = words.often(facts.rescales, "rescale", facts.seconds)
    text = f"{often}; {facts.flaps:,} flap{'' if facts.flaps == 1 else 's'}"
    if not facts.regretted:
        return text
    return f"{text}; {facts.regretted:,} scale-down{'' if facts.regretted == 1 else 's'} taken back within ten minutes"


def _at_maximum(facts: Facts) -> str:
    text = _time(facts.at_maximum, facts.seconds)
    if facts.longest_at_maximum:
        text += f", longest {words.rounded(facts.longest_at_maximum)}"
    return f"{text}; above goal for {words.rounded(facts.starved)} of it" if facts.starved else text


def _time(seconds: float, of: float) -> str:
    """Returns a time with its share: "3h20m, 2 %"; "never"."""
    return f"{words.rounded(seconds)}, {words.share(seconds, of)}" if seconds else "never"


def _sawtooth(found: Sawtooth) -> str:
    return (
        f"{found.rescales} rescales in turn up and down between {found.lowest:,} and {found.highest:,}, "
        f"{found.begin:%a %Y-%m-%d %H:%M} to {found.end:%a %H:%M}"
    )


def _trust(trust: ModelTrust) -> str:
    kind = _TRUST[trust.level]
    return (
        f'<section><h4>Trust</h4><p class="{kind}"><b class="severity">{trust.level}</b>'
        f'<span class="plain">: {prose(trust.text)}</span></p></section>'
    )


def _sources(each: Assessment) -> str:
    notes = "".join(f"<li>{prose(note)}</li>" for note in each.notes)
    assumed = f'<h4>Model</h4><ul class="notes">{notes}</ul>' if notes else ""
    readings = "".join(_reading(address, reading) for address, reading in each.readings.items())
    return (
        '<details class="sources"><summary>Sources of the values, and the model</summary>'
        f'<dl class="readings">{readings}</dl>{assumed}</details>'
    )


def _reading(address: str, reading: MetricReading) -> str:
    problem = f'<p class="warning severity">{escaped(reading.problem)}</p>' if reading.problem else ""
    code = f"<pre>{escaped_code(reading.expression)}</pre>" if reading.expression else ""
    return f"<dt>{escaped(address)}</dt><dd>{escaped(reading.source)}{problem}{code}</dd>"

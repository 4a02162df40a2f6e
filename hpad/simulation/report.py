"""The report of a backtest: one HTML page with charts, without scripts and without anything from elsewhere."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from hpad.simulation import charts, outcome
from hpad.simulation.backtest import Result
from hpad.simulation.charts import ADVISED, MODELLED, RECORDED, ReplicaCurve
from hpad.simulation.document import document, escaped, prose
from hpad.simulation.history import REPLICAS, LoadHistory
from hpad.simulation.thinning import MetricChart, Steps, steps, thinned

_MOST_RESCALES: Final = 500
_RECORDED_NAME: Final = "recorded"
_SEPARATOR: Final = re.compile(r"[./]")


class BacktestReport(NamedTuple):
    """What a page shows. `metrics` are the recorded metrics; `notes` the assumptions."""

    hpa: str
    parameters: Mapping[str, str]
    results: Sequence[Result]
    metrics: Sequence[MetricChart]
    notes: Sequence[str] = ()
    price: float | None = None


def page(report: BacktestReport) -> Iterator[str]:
    """Yields the parts of the page."""
    yield from document(f"Backtest of {report.hpa}", _body(report))


def _body(report: BacktestReport) -> Iterator[str]:
    outcomes = [(result.name, result.outcome) for result in report.results]
    first, last = span_of(report.results)
    times = f'<p class="soft">{_moment(first)} to {_moment(last)} UTC</p>'
    yield f"<header><h1>Backtest of {escaped(report.hpa)}</h1>{times}"
    yield f'<p class="lead">{prose(outcome.verdict(outcomes))}</p></header>\n<main>\n'
    yield '<section class="card charts"><h2 class="spoken">Curves</h2>'
    span = first.timestamp(), last.timestamp()
    yield from (charts.metric_chart(each, *span) for each in report.metrics)
    looks = zip(_looks(report.results), report.results, strict=True)
    drawn = [ReplicaCurve(look, result.name, thinned(_steps(result), *span)) for look, result in looks]
    yield charts.replica_chart(drawn, *span)
    yield '</section>\n<section class="card"><h2>Figures</h2>'
    yield _figures(report)
    yield '</section>\n<section class="card"><h2>Assumptions</h2><dl class="facts">'
    yield "".join(
        f"<div><dt>{escaped(name)}</dt><dd>{escaped(text)}</dd></div>" for name, text in report.parameters.items()
    )
    yield f'</dl><ul class="notes">{"".join(f"<li>{escaped(note)}</li>" for note in report.notes)}</ul></section>\n'
    for result in report.results:
        yield from _rescales(result)
    yield "</main>\n"


def span_of(results: Sequence[Result]) -> tuple[datetime, datetime]:
    """Returns the first and the last time of all curves."""
    known = [result.curve for result in results if result.curve]
    return min(curve[0][0] for curve in known), max(curve[-1][0] for curve in known)


def _looks(results: Sequence[Result]) -> list[str]:
    """Returns the look of each result: recorded, then the spec, then the one it is compared with."""
    recorded = [RECORDED] if results[0].name == _RECORDED_NAME else []
    return [*recorded, MODELLED, ADVISED][: len(results)]


def _steps(result: Result) -> Steps:
    """Returns the changes of the count; turns that are missing are a gap."""
    load = LoadHistory(
        [at.timestamp() for at, _ in result.curve], {REPLICAS: [float(count) for _, count in result.curve]}
    )
    return steps(load, load.columns[REPLICAS])


def _figures(report: BacktestReport) -> str:
    """Returns the table of the figures; with several results also the difference of the last two."""
    results = report.results
    outcomes = [result.outcome for result in results]
    heads = [
        f'<th scope="col">{charts.key(look)}{_breakable(result.name)}</th>'
        for look, result in zip(_looks(results), results, strict=True)
    ]
    compared = len(outcomes) > 1
    heads += ['<th scope="col">difference</th>'] if compared else []
    rows = []
    for row in outcome.rows(report.price):
        texts = [row.value(outcome) for outcome in outcomes]
        texts += [row.change(*outcomes[-2:])] if compared else []
        cells = "".join(f"<td>{text}</td>" for text in texts)
        rows.append(f'<tr><th scope="row">{row.label}</th>{cells}</tr>')
    return (
        f'<div class="wide" tabindex="0"><table class="figures"><thead><tr><td></td>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _breakable(name: str) -> str:
    """Returns the name of a file or a field as HTML that may be broken behind a dot or a slash."""
    return _SEPARATOR.sub(r"\g<0><wbr>", escaped(name))


def _rescales(result: Result) -> Iterator[str]:
    found = result.outcome.rescales
    if not found:
        return
    count = f"{len(found)} rescale{'' if len(found) == 1 else 's'}"
    yield f'<details class="card"><summary>{escaped(result.name)}: {count}</summary>'
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("time (UTC)", "replicas", "decision"))
    yield f'<div class="wide" tabindex="0"><table><thead><tr>{heads}</tr></thead><tbody>'
    for each in found[:_MOST_RESCALES]:
        cells = f'<td class="time">{_moment(each.at)}</td><td class="time">{each.before} &rarr; {each.after}</td>'
        yield f"<tr>{cells}<td>{escaped(each.why)}</td></tr>"
    yield "</tbody></table></div>"
    if len(found) > _MOST_RESCALES:
        yield f"<p>{len(found) - _MOST_RESCALES} more are not shown.</p>"
    yield "</details>\n"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"

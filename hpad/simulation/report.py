"""The report of a backtest: one HTML page with charts, without scripts and without anything from elsewhere."""

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Final, NamedTuple

from hpad.api import amounts
from hpad.simulation.backtest import Result
from hpad.simulation.outcome import SimulatedOutcome

_WIDTH: Final = 1000
_HEIGHT: Final = 220
_LEFT: Final = 56
_TOP: Final = 10
_BOTTOM: Final = 26
_MOST_RESCALES: Final = 500
_TICKS: Final = 8
_ROWS: Final = 5
"""Spaces between the lines of the grid, about."""
Values = tuple[Sequence[float], Sequence[float | None]]
"""Times in seconds since 1970, and a value at each; None is a gap."""


class BacktestReport(NamedTuple):
    """What a page shows. `values` are the recorded values of metrics by their names; `notes` the assumptions."""

    hpa: str
    parameters: Mapping[str, str]
    results: Sequence[Result]
    values: Mapping[str, Values]
    notes: Sequence[str] = ()
    price: float | None = None


def page(report: BacktestReport) -> str:
    """Returns the page."""
    title = f"Backtest of {report.hpa}"
    body = "\n".join(_body(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{_text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
<h1>{_text(title)}</h1>
{body}
</main>
</body>
</html>
"""


def _body(report: BacktestReport) -> Iterator[str]:
    first, last = span_of(report.results)
    times = f"{_moment(first)} to {_moment(last)}"
    shown = {"time": times, **report.parameters}
    yield '<dl class="facts">'
    yield "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in shown.items())
    yield "</dl>"
    if report.notes:
        yield f'<ul class="notes">{"".join(f"<li>{_text(note)}</li>" for note in report.notes)}</ul>'
    yield "<section><h2>Figures</h2>"
    yield _figures(report)
    yield "</section>"
    curves = [
        (result.name, [(at.timestamp(), float(count)) for at, count in result.curve]) for result in report.results
    ]
    yield "<section><h2>Replicas</h2>"
    yield _chart(curves, (first.timestamp(), last.timestamp()), steps=True)
    yield "</section>"
    for name, (moments, values) in report.values.items():
        yield f"<section><h2>{_text(name)}</h2>"
        yield _chart(
            [(name, list(zip(moments, values, strict=True)))], (first.timestamp(), last.timestamp()), steps=False
        )
        yield "</section>"
    for result in report.results:
        yield from _rescales(result)


def span_of(results: Sequence[Result]) -> tuple[datetime, datetime]:
    """Returns the first and the last time of all curves."""
    curves = [result.curve for result in results if result.curve]
    return min(curve[0][0] for curve in curves), max(curve[-1][0] for curve in curves)


def _rows(price: float | None) -> Iterator[tuple[str, Callable[[SimulatedOutcome], float], str, bool]]:
    """Yields label, value, format, and whether the value needs a wanted count."""
    yield "rescales", lambda each: len(each.rescales), ".0f", False
    yield "flaps", lambda each: each.flaps, ".0f", False
    yield "lowest count", lambda each: each.lowest, ".0f", False
    yield "highest count", lambda each: each.highest, ".0f", False
    yield "replica-hours", lambda each: each.replica_hours, ".2f", False
    if price is not None:
        yield "cost", lambda each: each.cost(price), ".2f", False
    yield "minutes at the maximum", lambda each: each.at_max / 60, ".1f", True
    yield "minutes above goal", lambda each: each.above_goal / 60, ".1f", True
    yield "replica-hours too few", lambda each: each.under / 3600, ".2f", True
    yield "replica-hours too many", lambda each: each.over / 3600, ".2f", True
    yield "minutes undecided", lambda each: each.undecided / 60, ".1f", True


def _figures(report: BacktestReport) -> str:
    """Returns the table of the figures; with two judged results also their difference."""
    outcomes = [result.outcome for result in report.results]
    heads = "".join(
        f'<th scope="col"><i class="key k{index}"></i>{_text(result.name)}</th>'
        for index, result in enumerate(report.results)
    )
    compared = len(outcomes) > 1
    rows = []
    for label, value, form, judged in _rows(report.price):
        cells = [
            f"<td>{value(outcome):{form}}</td>" if outcome.judged or not judged else "<td>-</td>"
            for outcome in outcomes
        ]
        if compared:
            known = all(outcome.judged or not judged for outcome in outcomes[-2:])
            cells.append(f"<td>{value(outcomes[-1]) - value(outcomes[-2]):+{form}}</td>" if known else "<td>-</td>")
        rows.append(f'<tr><th scope="row">{label}</th>{"".join(cells)}</tr>')
    difference = '<th scope="col">difference</th>' if compared else ""
    return (
        f'<div class="wide"><table class="figures"><tr><td></td>{heads}{difference}</tr>{"".join(rows)}</table></div>'
    )


Points = Sequence[tuple[float, float | None]]


def _chart(curves: Sequence[tuple[str, Points]], span: tuple[float, float], *, steps: bool) -> str:
    """Returns an SVG chart. Each column of pixels shows the lowest and the highest value of its time."""
    begin, end = span
    length = max(end - begin, 1.0)
    ticks = _ticks([value for _, points in curves for _, value in points if value is not None], whole=steps)
    low, high = ticks[0], ticks[-1]

    def x(time: float) -> float:
        return _LEFT + (time - begin) / length * (_WIDTH - _LEFT)

    def y(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for each in ticks:
        height = y(each)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{height + 4:.1f}" text-anchor="end">{_amount(each)}</text>')
    for tick in range(_TICKS):
        time = begin + length * (tick + 0.5) / _TICKS
        parts.append(f'<text x="{x(time):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{_label(time, length)}</text>')
    names = ", ".join(name for name, _ in curves)
    for index, (name, points) in enumerate(curves):
        path = _path([(x(time), None if value is None else y(value)) for time, value in points], steps=steps)
        parts.append(f'<path class="line k{index}" d="{path}"><title>{_text(name)}</title></path>')
    drawn = "".join(parts)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{_text(names)} over time">{drawn}</svg>'


def _ticks(values: Sequence[float], *, whole: bool) -> list[float]:
    """Returns round numbers at equal distances, from one at or below zero and all values to one at or above them."""
    low, high = min(0.0, *values, 0.0), max(0.0, *values, 0.0)
    size = (high - low) / _ROWS or 1.0
    power = 10.0 ** math.floor(math.log10(size))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= size)
    step = max(1.0, step) if whole else step
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return [number * step for number in range(first, last + 1)]


def _amount(number: float) -> str:
    return amounts.rounded(Fraction(number).limit_denominator(10**9) * 1000)


def _path(points: Sequence[tuple[float, float | None]], *, steps: bool) -> str:
    """Returns the path of a curve: of many points in one column only the first, extremes and last are drawn."""
    commands: list[str] = []
    column: list[tuple[float, float]] = []
    before: float | None = None

    def draw() -> None:
        nonlocal before
        if not column:
            return
        kept = sorted({0, len(column) - 1, *_extremes(column)})
        for index in kept:
            across, down = column[index]
            if before is None:
                commands.append(f"M{across:.1f} {down:.1f}")
            elif steps:
                commands.append(f"H{across:.1f}" + (f"V{down:.1f}" if down != before else ""))
            else:
                commands.append(f"L{across:.1f} {down:.1f}")
            before = down
        column.clear()

    for across, down in points:
        if down is None:
            draw()
            before = None
            continue
        if column and int(across) != int(column[0][0]):
            draw()
        column.append((across, down))
    draw()
    return "".join(commands)


def _extremes(column: Sequence[tuple[float, float]]) -> tuple[int, int]:
    downs = [down for _, down in column]
    return downs.index(min(downs)), downs.index(max(downs))


def _label(time: float, length: float) -> str:
    form = "%H:%M" if length <= 86_400 else "%a %d %H:%M"
    return datetime.fromtimestamp(time, UTC).strftime(form)


def _rescales(result: Result) -> Iterator[str]:
    found = result.outcome.rescales
    if not found:
        return
    yield f"<details><summary>{_text(result.name)}: {len(found)} rescales</summary>"
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("time (UTC)", "replicas", "decision"))
    yield f'<div class="wide"><table><tr>{heads}</tr>'
    for each in found[:_MOST_RESCALES]:
        cells = f'<td class="time">{_moment(each.at)}</td><td class="time">{each.before} &rarr; {each.after}</td>'
        yield f"<tr>{cells}<td>{_text(each.why)}</td></tr>"
    yield "</table></div>"
    if len(found) > _MOST_RESCALES:
        yield f"<p>{len(found) - _MOST_RESCALES} more are not shown.</p>"
    yield "</details>"


def _moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _text(text: str) -> str:
    return html.escape(text)


_STYLE: Final = """
:root { color-scheme: light dark; --back: light-dark(#f7f8fa, #0b0c0f); --card: light-dark(#fff, #131519);
  --line: light-dark(#e4e7ec, #24272e); --text: light-dark(#14171c, #eceef2); --soft: light-dark(#505866, #a6adb9);
  --k0: light-dark(#0078b3, #5cc0f0); --k1: light-dark(#c65000, #ff9d4d); --k2: light-dark(#00805f, #2fd0a2); }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--text); font: 400 14px/1.5 ui-sans-serif, system-ui, sans-serif;
  font-variant-numeric: tabular-nums; }
main { max-width: 1120px; margin: 0 auto; padding: clamp(14px, 2.4vw, 32px); display: grid; gap: 16px;
  grid-template-columns: minmax(0, 1fr); }
h1 { margin: 0; font-size: 22px; } h2 { margin: 0 0 8px; font-size: 13px; font-weight: 600; color: var(--soft); }
section, details { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px; }
summary { cursor: pointer; font-weight: 600; font-size: 13px; }
.facts { display: flex; flex-wrap: wrap; gap: 4px 24px; margin: 0; }
.facts div { display: flex; gap: 6px; } dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
.notes { margin: 0; padding-left: 18px; color: var(--soft); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { overflow-wrap: anywhere; }
th, td { text-align: left; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 500; color: var(--soft); } .figures td, .figures th[scope=col] { text-align: right; }
.figures th[scope=col] { max-width: 18em; } .time { white-space: nowrap; }
svg { display: block; width: 100%; height: auto; } svg text { font-size: 11px; fill: var(--soft); }
.grid { stroke: var(--line); } .line { fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.line.k0 { stroke: var(--k0); } .line.k1 { stroke: var(--k1); stroke-dasharray: 6 2; }
.line.k2 { stroke: var(--k2); stroke-dasharray: 2 2; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 6px; }
.key.k0 { background: var(--k0); } .key.k1 { background: var(--k1); } .key.k2 { background: var(--k2); }
"""

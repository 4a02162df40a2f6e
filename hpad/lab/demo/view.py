"""The frames of the demo, and their layout as lines; the table of HPAs has the columns of `kubectl get hpa`."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from hpad.api.autoscaler import targets
from hpad.api.hpa import HorizontalPodAutoscaler, MetricStatus, MetricValueStatus
from hpad.lab.cluster.columns import duration
from hpad.lab.demo import chart
from hpad.lab.demo.chart import Point
from hpad.lab.demo.style import Style

HEADINGS = ("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE")
UNKNOWN = "<unknown>"
GAP = "   "


def reading(hpa: HorizontalPodAutoscaler) -> float | None:
    """Returns the value of the first metric: percent, or the total of all replicas; None without a value.

    The total of an average is the average times status.currentReplicas.
    """
    statuses = hpa.status.current_metrics or ()
    current = _current(statuses[0]) if statuses else None
    if current is None:
        return None
    if current.average_utilization is None and current.value is None and current.average_value is not None:
        return float(round(float(current.average_value) * hpa.status.current_replicas))
    value = current.average_utilization, current.value
    return next((float(each) for each in value if each is not None), None)


def row(hpa: HorizontalPodAutoscaler, now: datetime) -> tuple[str, ...]:
    """Returns the cells of one HPA, in the order of HEADINGS."""
    ref, created = hpa.spec.scale_target_ref, hpa.metadata.creation_timestamp
    return (
        hpa.metadata.name,
        f"{ref.kind}/{ref.name}",
        targets(hpa),
        str(hpa.spec.min_replicas if hpa.spec.min_replicas is not None else 1),
        str(hpa.spec.max_replicas),
        str(hpa.status.current_replicas),
        duration((now - created).total_seconds()) if created else UNKNOWN,
    )


def render(rows: Sequence[Sequence[str]], style: Style, *, width: int | None = None) -> list[str]:
    """Returns the headings and one line per row, aligned; narrows gaps and cuts lines to fit into `width`."""
    widths = [max(len(line[column]) for line in (HEADINGS, *rows)) for column in range(len(HEADINGS))]
    available = (width - sum(widths)) // (len(HEADINGS) - 1) if width is not None else len(GAP)
    gap = GAP[: max(1, available)]
    lines = [gap.join(cell.ljust(size) for cell, size in zip(each, widths, strict=True)) for each in (HEADINGS, *rows)]
    cut = [line.rstrip()[:width] for line in lines]
    return [style.dim(cut[0]), *map(style.bold, cut[1:])]


def _current(status: MetricStatus | None) -> MetricValueStatus | None:
    return None if status is None or status.source is None else status.source.current


NOTES_SHOWN = 4
DECISION_LINES = 2
CHART_FOOT = 3
INDENT = "  "


@dataclass(frozen=True)
class Note:
    """An action or event, `at` seconds after the start of its half."""

    at: float
    text: str


@dataclass(frozen=True)
class Frame:
    """The content of the screen at one moment.

    - `rows`: the cells of the table.
    - `decision`: the sentence of the last decision.
    - `aside`: a line about the processes or the broker.
    - `label`: names the metric in the chart.
    - `span`: expected duration of the half in seconds.
    """

    title: str
    at: float
    rows: Sequence[Sequence[str]]
    decision: str
    aside: str
    notes: Sequence[Note]
    points: Sequence[Point]
    label: str
    span: float = 1.0


def clock_time(seconds: float) -> str:
    """Formats seconds as `0:07` or `1:42`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}"


def live(frame: Frame, width: int, height: int, style: Style) -> list[str]:
    """Returns the lines for a terminal: title, table, last decision, notes and chart.

    At most `height` - 1 lines (the cursor needs one) of at most `width` columns; the chart is cut first.
    """
    words = _words(frame, width, style)
    top = [*_title(frame, width, style), *render(frame.rows, style, width=width), *words]
    top += [""] * (DECISION_LINES + 2 - len(words))
    notes = [*_notes(frame, width, style), ""]
    rows = min(chart.MOST_ROWS, height - 1 - len(top) - len(notes) - CHART_FOOT)
    drawn = chart.chart(frame.points, width, style, label=frame.label, rows=rows, span=frame.span) if rows > 0 else []
    return [*top, *notes, *drawn][: max(1, height - 1)]


def change(frame: Frame, width: int, style: Style) -> list[str]:
    """Returns the block that reports a change outside of a terminal: time, table and decision."""
    shown = render(frame.rows, style, width=width)
    return [style.dim(f"[{clock_time(frame.at)}]"), *shown, *_words(frame, width, style)]


def note(each: Note, width: int, style: Style) -> str:
    """Returns the line of a note, with its time."""
    limit = max(1, width - 8)
    text = each.text if len(each.text) <= limit else f"{each.text[: limit - 1]}…"
    return f"{style.dim(clock_time(each.at).rjust(6))}  {text}"


def _title(frame: Frame, width: int, style: Style) -> list[str]:
    elapsed = clock_time(frame.at)
    text = frame.title[: max(0, width - len(elapsed) - 1)]
    return [style.bold(text) + elapsed.rjust(width - len(text)), style.dim("─" * width)]


def _words(frame: Frame, width: int, style: Style) -> list[str]:
    """Returns the decision, wrapped to at most two lines, and the aside in one line."""
    columns = max(20, width - len(INDENT))
    decision = textwrap.wrap(frame.decision, columns, max_lines=DECISION_LINES, placeholder=" …")
    aside = textwrap.wrap(frame.aside, columns, max_lines=1, placeholder=" …")
    return [*(INDENT + style.reading(line) for line in decision), *(INDENT + style.dim(line) for line in aside)]


def _notes(frame: Frame, width: int, style: Style) -> list[str]:
    """Returns the last notes, padded with empty lines so that the chart below stays in place."""
    shown = [note(each, width, style) for each in frame.notes[-NOTES_SHOWN:]]
    return [*shown, *[""] * (NOTES_SHOWN - len(shown))]

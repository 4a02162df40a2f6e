"""What is to be seen at one moment, and how it is laid out as lines."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from hpad.lab.demo import chart, table
from hpad.lab.demo.chart import Point
from hpad.lab.demo.style import Style

NOTES_SHOWN = 4
DECISION_LINES = 2
CHART_FOOT = 3
INDENT = "  "


@dataclass(frozen=True)
class Note:
    """Something that was done or happened, `at` seconds after the start of its half."""

    at: float
    text: str


@dataclass(frozen=True)
class Frame:
    """One moment of one half.

    `rows` are the cells of the table, `decision` the last decision as one sentence, `aside` what the machine itself
    says (the processes, the broker), `label` names the metric in the chart, `span` is how many seconds the half should
    take.
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
    """`0:07`, `1:42`."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes}:{rest:02}"


def live(frame: Frame, width: int, height: int, style: Style) -> list[str]:
    """The whole picture, for a terminal: title, table, last decision, what happened, and the chart so far.

    Never more than `height` - 1 lines (the cursor needs one) and never wider than `width`; the chart gives way first.
    """
    words = _words(frame, width, style)
    top = [*_title(frame, width, style), *_table(frame, width, style), *words]
    top += [""] * (DECISION_LINES + 2 - len(words))
    notes = [*_notes(frame, width, style), ""]
    rows = min(chart.MOST_ROWS, height - 1 - len(top) - len(notes) - CHART_FOOT)
    drawn = chart.chart(frame.points, width, style, label=frame.label, rows=rows, span=frame.span) if rows > 0 else []
    return [*top, *notes, *drawn][: max(1, height - 1)]


def change(frame: Frame, width: int, style: Style) -> list[str]:
    """The block that reports a change where there is no terminal: the table and the decision, with the time."""
    return [style.dim(f"[{clock_time(frame.at)}]"), *_table(frame, width, style), *_words(frame, width, style)]


def note(each: Note, width: int, style: Style) -> str:
    """One note as a line, with its time."""
    room = max(1, width - 8)
    text = each.text if len(each.text) <= room else f"{each.text[: room - 1]}…"
    return f"{style.dim(clock_time(each.at).rjust(6))}  {text}"


def _title(frame: Frame, width: int, style: Style) -> list[str]:
    elapsed = clock_time(frame.at)
    text = frame.title[: max(0, width - len(elapsed) - 1)]
    return [style.bold(text) + elapsed.rjust(width - len(text)), style.dim("─" * width)]


def _table(frame: Frame, width: int, style: Style) -> list[str]:
    return table.render(frame.rows, style, width=width)


def _words(frame: Frame, width: int, style: Style) -> list[str]:
    """The decision, wrapped to at most two lines, and the aside."""
    room = max(20, width - len(INDENT))
    decision = textwrap.wrap(frame.decision, room, max_lines=DECISION_LINES, placeholder=" …")
    aside = textwrap.wrap(frame.aside, room, max_lines=1, placeholder=" …")
    return [*(INDENT + style.reading(line) for line in decision), *(INDENT + style.dim(line) for line in aside)]


def _notes(frame: Frame, width: int, style: Style) -> list[str]:
    """The last few, padded so that the chart below does not jump."""
    shown = [note(each, width, style) for each in frame.notes[-NOTES_SHOWN:]]
    return [*shown, *[""] * (NOTES_SHOWN - len(shown))]

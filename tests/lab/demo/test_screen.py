"""Frames on a terminal and without one."""

import io
from dataclasses import replace

import pytest

from hpad.lab.demo import cpu, queue, screen, view
from hpad.lab.demo.chart import Point
from hpad.lab.demo.style import Style
from hpad.lab.demo.view import Frame, Note

ROW = ("web", "Deployment/web", "305%/50%", "1", "10", "1", "12s")
FRAME = Frame(
    title="a title",
    at=12.0,
    rows=[ROW],
    decision="web: 1 -> 7, as cpu is at 305 % of 50 %",
    aside="1 real process: pid 4711",
    notes=[Note(3.0, "applied"), Note(9.0, "load on")],
    points=[Point(at, 1, 305.0) for at in range(13)],
    label="CPU 305%",
)


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def size() -> tuple[int, int]:
    return 80, 24


@pytest.mark.parametrize("height", [5, 12, 16, 24, 60])
@pytest.mark.parametrize("width", [40, 80, 110])
def test_a_frame_fits_the_terminal(width: int, height: int):
    busy = replace(FRAME, decision="a long sentence " * 30, aside="pid 1234, " * 30, notes=[Note(1, "words " * 40)] * 9)
    lines = view.live(busy, width, height, Style())
    assert len(lines) < height
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("title", [cpu.TITLE, queue.TITLE])
def test_the_titles_of_the_halves_fit_80_columns_beside_the_time(title: str):
    first = view.live(replace(FRAME, title=title), 80, 24, Style())[0]
    assert title in first


def test_a_frame_shows_all_its_parts():
    text = "\n".join(view.live(FRAME, 80, 24, Style()))
    for part in ("a title", "0:12", "TARGETS", "305%/50%", FRAME.decision, "pid 4711", "applied", "0:09  load on", "┤"):
        assert part in text


def test_new_notes_do_not_change_the_height_of_a_frame():
    heights = {len(view.live(replace(FRAME, notes=FRAME.notes[:count]), 80, 24, Style())) for count in range(3)}
    assert len(heights) == 1


def test_a_terminal_is_redrawn_in_place_and_its_cursor_is_restored():
    out = Tty()
    on = screen.Terminal(out, Style(), size)
    on.show(FRAME)
    lines = out.getvalue().count("\n")
    on.show(replace(FRAME, notes=[]))
    assert f"\x1b[{lines}F" in out.getvalue()
    shown = out.getvalue()
    on.clear()
    assert out.getvalue() == shown + screen.SHOW_CURSOR + screen.up(lines) + "\x1b[K\n" * lines + screen.up(lines)


def test_clearing_an_unused_terminal_only_shows_the_cursor():
    out = Tty()
    screen.Terminal(out, Style(), size).clear()
    assert out.getvalue() == screen.SHOW_CURSOR


def test_without_a_terminal_unchanged_content_is_not_printed_again():
    out = io.StringIO()
    on = screen.Blocks(out, Style(), size)
    on.show(FRAME)
    once = out.getvalue()
    on.show(replace(FRAME, at=30.0, rows=[(*ROW[:-1], "30s")]))
    assert out.getvalue() == once
    assert "\x1b" not in once
    assert once.count("load on") == 1


def test_without_a_terminal_notes_are_printed_at_once_and_tables_every_three_seconds():
    out = io.StringIO()
    on = screen.Blocks(out, Style(), size)
    on.show(FRAME)
    changed = [(*ROW[:5], "7", "14s")]
    on.show(replace(FRAME, at=14.0, rows=changed, notes=[*FRAME.notes, Note(14.0, "news")]))
    assert "news" in out.getvalue()
    assert "[0:14]" not in out.getvalue()
    on.show(replace(FRAME, at=15.5, rows=changed))
    assert "[0:15]" in out.getvalue()


@pytest.mark.parametrize(
    ("stream", "environ", "allowed", "colour"),
    [
        (Tty(), {"TERM": "xterm"}, True, True),
        (Tty(), {"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        (Tty(), {"TERM": "xterm", "NO_COLOR": ""}, True, True),
        (Tty(), {"TERM": "dumb"}, True, False),
        (Tty(), {"TERM": "xterm"}, False, False),
        (io.StringIO(), {"TERM": "xterm"}, True, False),
    ],
)
def test_colour_needs_a_terminal_and_respects_the_environment(
    stream: io.StringIO, environ: dict[str, str], allowed: bool, colour: bool
):
    assert Style.of(stream, environ, enabled=allowed).colour is colour


def test_the_screen_depends_on_whether_the_stream_is_a_terminal():
    assert isinstance(screen.of(Tty(), Style()), screen.Terminal)
    assert isinstance(screen.of(io.StringIO(), Style()), screen.Blocks)

"""Lines with styles on a terminal: wrapping under their text, and colors."""

import io
import sys
from typing import Any

import pytest

from hpad.cli import output
from hpad.engine.styled import BAD, GOOD, QUIET, STRONG, Line, Span, labelled, line


def rows(found: Any, columns: int | None) -> list[str]:
    return ["".join(span.text for span in row) for row in output.wrapped(found, columns)]


def test_a_line_is_wrapped_under_its_text() -> None:
    made = labelled("Decision", "scale web from one to five replicas", width=11)
    assert rows(made, 31) == ["Decision:  scale web from one", "           to five replicas"]
    assert rows(made, None) == ["Decision:  scale web from one to five replicas"]
    assert all(len(row) <= 31 for row in rows(made, 31))


def test_a_word_longer_than_a_row_stays_whole() -> None:
    assert rows(line("  - kubectl ", "x" * 50, " end", hang=4), 30) == ["  - kubectl", f"    {'x' * 50}", "    end"]


def test_a_deep_indent_leaves_room_for_text() -> None:
    made = line(" " * 30, "one two three four", hang=30)
    assert rows(made, 40) == [f"{' ' * 30}one two", "    three four"]


def test_styles_survive_wrapping() -> None:
    made = line("a ", Span("bad thing", BAD), " and ", Span("good", GOOD), hang=2)
    found = [[(span.text, span.style) for span in row] for row in output.wrapped(made, 10)]
    # The hanging indent leaves eight columns: "and good" takes all of them.
    assert found == [
        [("a ", ""), ("bad", BAD)],
        [("  ", ""), ("thing", BAD)],
        [("  ", ""), ("and ", ""), ("good", GOOD)],
    ]


def test_control_characters_are_escaped_and_counted() -> None:
    assert rows(line("ab\x1b[2J\ncd ef"), 20) == ["ab\\u001b[2J\\ncd ef"]
    assert rows(line("ab\x1b[2J\ncd ef"), 15) == ["ab\\u001b[2J\\ncd", "ef"]


def test_an_empty_line_is_one_row() -> None:
    assert rows(line(), 20) == [""]


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def screened(monkeypatch: pytest.MonkeyPatch, found: Line, choice: str) -> str:
    """Returns what is written to a terminal of 200 columns."""
    made = Screen()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(output, "width", lambda: 200)
    output.show_lines([found], choice)
    return made.getvalue()


LINE = line(Span("Next:", STRONG), " ", Span("later", QUIET))
COLORED = "\x1b[1mNext:\x1b[0m \x1b[2mlater\x1b[0m\n"


@pytest.mark.parametrize(
    ("choice", "environment", "expected"),
    [
        ("auto", {}, COLORED),
        ("auto", {"NO_COLOR": "1"}, "Next: later\n"),
        ("auto", {"TERM": "dumb"}, "Next: later\n"),
        ("never", {}, "Next: later\n"),
        ("always", {"NO_COLOR": "1"}, COLORED),
    ],
)
def test_colors_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, choice: str, environment: dict[str, str], expected: str
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert screened(monkeypatch, LINE, choice) == expected


def test_a_wide_terminal_has_rows_of_at_most_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [len(row) for row in screened(monkeypatch, line("word " * 60), "never").splitlines()] == [99, 99, 99]

"""Prints lines whose parts have a style: in colors where wanted, and on a terminal wrapped under their texts."""

import argparse
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from hpad.api.text import harmless
from hpad.cli import output
from hpad.engine.render.text import BAD, GOOD, PLAIN, QUIET, STRONG, WARN, Line, Span, table
from hpad.lab.demo.style import Style

MOST_COLUMNS: Final = 100
"""Longer lines are hard to read, however wide the terminal is."""
_LEAST_COLUMNS: Final = 20
"""Columns that a hanging indent leaves for text."""
_WORD: Final = re.compile(r"\S+")


def add_color(parser: argparse.ArgumentParser) -> None:
    """Adds --color."""
    text = "colors: on a terminal (auto, default; NO_COLOR turns them off), always or never"
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help=text)


def show_lines(lines: Iterable[Line], color: str = "never", most: int | None = MOST_COLUMNS) -> None:
    """Prints the lines, on a terminal in at most `most` columns (None: in all). `color` is the value of --color."""
    stream, columns = output.raw(sys.stdout), output.width()
    style = Style(color == "always") if color != "auto" else Style.of(stream)
    tones = {STRONG: style.bold, QUIET: style.dim, GOOD: style.good, WARN: style.reading, BAD: style.bad}
    for line in lines:
        for row in wrapped(line, columns if columns is None or most is None else min(columns, most)):
            stream.write("".join(tones.get(span.style, str)(span.text) for span in row) + "\n")
    stream.flush()


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Prints a table as wide as the terminal, without colors."""
    show_lines(table(rows, 0), most=None)


def wrapped(line: Line, columns: int | None) -> Iterator[list[Span]]:
    """Yields the rows of a line, of at most that many columns (None: one row). Words longer than a row stay whole.

    Control characters are escaped.
    """
    spans = [Span(harmless(span.text), span.style) for span in line.spans]
    text = "".join(span.text for span in spans).rstrip()
    styles = [span.style for span in spans for _ in span.text]
    hang = line.hang if columns is None or columns - line.hang >= _LEAST_COLUMNS else min(4, line.hang)
    for index, (begin, end) in enumerate(_rows(text, columns, hang)):
        indent = [Span(" " * hang)] if index else []
        yield [*indent, *_spans(text[begin:end], styles[begin:end])]


def _rows(text: str, columns: int | None, hang: int) -> Iterator[tuple[int, int]]:
    """Yields begin and end of each row."""
    begin = last = 0
    limit = len(text) if columns is None else columns
    for word in _WORD.finditer(text):
        if word.end() - begin > limit and last > begin:
            yield begin, last
            begin, limit = word.start(), limit if limit == len(text) else (columns or limit) - hang
        last = word.end()
    yield begin, last


def _spans(text: str, styles: list[str]) -> Iterator[Span]:
    position = 0
    for style, group in itertools.groupby(styles or [PLAIN]):
        length = len(list(group))
        yield Span(text[position : position + length], style)
        position += length

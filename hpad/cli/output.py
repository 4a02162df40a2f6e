"""How commands print: values as JSON or YAML, and lines of text, all without control characters of foreign texts.

Texts of metric sources, API servers and files pass through `hpad.api.text.harmless_lines`.
"""

import argparse
import io
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO, cast

from hpad.api.text import harmless, harmless_lines
from hpad.engine.styled import BAD, GOOD, PLAIN, QUIET, STRONG, WARN, Line, Span, table
from hpad.lab.demo.style import Style


class Failure(Exception):
    """An expected failure of a command: its message is printed as one line, and the exit status is 1."""


class WrongUse(Failure):
    """The command line is wrong in itself, whatever files and servers have; the exit status is 2."""


_LEAST_COLUMNS: Final = 40


def width() -> int | None:
    """Returns the columns of the terminal; None if standard output is no terminal."""
    return max(_LEAST_COLUMNS, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def counted(count: int, noun: str) -> str:
    """Returns a number of things, such as "1 document" or "2 documents"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def age(seconds: float) -> str:
    """Returns a span of time as kubectl prints it: 8s, 119s, 12m, 30h, 4d."""
    whole = max(0, int(seconds))
    for unit, length, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if whole < most * length:
            return f"{whole // length}{unit}"
    return f"{whole // 86400}d"


class EscapingStream:
    """A text stream that escapes control characters and writes to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Writes the escaped text; returns the length of `text`."""
        self.stream.write(harmless_lines(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Writes each line, escaped."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def printing() -> Iterator[None]:
    """Escapes control characters in standard output and error within the block; the standard streams are UTF-8.

    A locale with another encoding has no characters for graphs, and programs read JSON and manifests as UTF-8. A stream
    that the caller closed is empty, or takes any text.
    """
    before = sys.stdin, sys.stdout, sys.stderr
    with open(os.devnull, "r+", encoding="utf-8") as nothing:
        sys.stdin = _as_utf8(before[0] or nothing)
        sys.stdout, sys.stderr = (cast(TextIO, EscapingStream(_as_utf8(stream or nothing))) for stream in before[1:])
        try:
            yield
        finally:
            sys.stdin, sys.stdout, sys.stderr = before


def _as_utf8(stream: TextIO) -> TextIO:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return stream


def raw(stream: TextIO) -> TextIO:
    """Returns the underlying stream, for a command that moves the cursor itself."""
    return stream.stream if isinstance(stream, EscapingStream) else stream


def add_format(parser: argparse.ArgumentParser, *forms: str, default: str = "") -> None:
    """Adds -o with these forms, text and json if none is given. The default is the first one."""
    forms = forms or ("text", "json")
    first, *others = forms
    text = f"{first} (default) or {' or '.join(others)}"
    parser.add_argument("-o", "--output", choices=forms, default=default or first, help=text)


def print_value(value: Any, form: str) -> None:
    """Prints JSON-like builtins as `json` or `yaml`, a YAML document of its own. Raises Failure if nested too deep."""
    try:
        print(_rendered(value, form), end="")
    except RecursionError:
        raise Failure(f"the answer is nested too deep to be printed as {form}") from None


def _rendered(value: Any, form: str) -> str:
    if form == "json":
        return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"
    import yaml  # late, since it takes long, and few commands need it

    from hpad.api.yaml_reader import Dumper

    return str(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True))


def write_report(path: Path, parts: Iterable[str]) -> None:
    """Writes the page of --report, part by part. Raises Failure."""
    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(parts)
    except OSError as error:
        raise Failure(f"--report {path}: cannot be written: {error.strerror or error}") from None


def print_document(text: str) -> None:
    """Prints a manifest: escaped on a terminal, unchanged into a file or pipe."""
    stream = sys.stdout if sys.stdout.isatty() else raw(sys.stdout)
    stream.write(text)


# Lines whose parts have a style: in colors where wanted, and on a terminal wrapped under their texts.

MOST_COLUMNS: Final = 100
"""Longer lines are hard to read, however wide the terminal is."""
_LEAST_TEXT: Final = 20
"""Columns that a hanging indent leaves for text."""
_WORD: Final = re.compile(r"\S+")


def add_color(parser: argparse.ArgumentParser) -> None:
    """Adds --color."""
    text = "colors: on a terminal (auto, default; NO_COLOR turns them off), always or never"
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help=text)


def show_lines(lines: Iterable[Line], color: str = "never", most: int | None = MOST_COLUMNS) -> None:
    """Prints the lines, on a terminal in at most `most` columns (None: in all). `color` is the value of --color."""
    stream, columns = raw(sys.stdout), width()
    style = Style(color == "always") if color != "auto" else Style.of(stream)
    tones = {STRONG: style.bold, QUIET: style.dim, GOOD: style.good, WARN: style.reading, BAD: style.bad}
    for line in lines:
        for row in wrapped(line, columns if columns is None or most is None else min(columns, most)):
            stream.write("".join(tones.get(span.style, str)(span.text) for span in row) + "\n")
    stream.flush()


def show(args: argparse.Namespace, value: Any, lines: Iterable[Line], most: int | None = MOST_COLUMNS) -> None:
    """Prints the value as -o says, or the lines, in which --color applies."""
    if args.output == "text":
        show_lines(lines, args.color, most)
    else:
        print_value(value, args.output)


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
    hang = line.hang if columns is None or columns - line.hang >= _LEAST_TEXT else min(4, line.hang)
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

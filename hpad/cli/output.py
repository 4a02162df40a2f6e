"""How commands print: without control characters of foreign texts, and with graphs.

Texts of metric sources, API servers and files pass through `hpad.api.text.harmless_lines`; `hpad.cli.paint` wraps.
"""

import argparse
import io
import json
import math
import os
import shutil
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, TextIO, cast

from hpad.api import amounts
from hpad.api.text import harmless_lines
from hpad.lab.demo.chart import EIGHTHS


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
    """Prints JSON-like builtins as `json` or `yaml`, a YAML document of its own."""
    if form == "json":
        print(json.dumps(value, indent=2, ensure_ascii=False))
        return
    import yaml  # late, since it takes long, and few commands need it

    from hpad.api.yaml_reader import Dumper

    print(yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True), end="")


def print_document(text: str) -> None:
    """Prints a manifest: escaped on a terminal, unchanged into a file or pipe."""
    stream = sys.stdout if sys.stdout.isatty() else raw(sys.stdout)
    stream.write(text)


ROWS: Final = 8
MARGIN: Final = 10
GAP: Final = "·"
_TICK: Final = 16
"""Columns from one time on the axis to the next, at least."""
_ONE_DAY: Final = timedelta(days=1)


def tops_of(values: Iterable[int]) -> list[int]:
    """Returns the values, in thousandths, at the top of each row of a graph from zero to the highest value."""
    most = max(values, default=0) or 1000
    return [most * (row + 1) // ROWS for row in range(ROWS)]


def tops_of_counts(counts: Iterable[int]) -> list[int]:
    """Returns the same for replica counts, with whole numbers."""
    most = max(1, *counts)
    a_row = math.ceil(most / ROWS)
    return [1000 * a_row * (row + 1) for row in range(math.ceil(most / a_row))]


def graph(
    curve: Sequence[tuple[datetime, int]], begin: datetime, end: datetime, width: int, tops: Sequence[int]
) -> list[str]:
    """Returns a graph of block characters, at most `width` columns wide; empty for an empty curve.

    The values of the curve, in thousandths, hold until the next time. A column shows the highest one of its slice of
    time, a dot if there is none: missing is not zero. `tops` are the values at the top of each row, ascending.
    """
    if not curve:
        return []
    columns = _at_equal_intervals(curve, begin, end, max(_TICK, width - MARGIN - 1))
    lines = []
    for row in reversed(range(len(tops))):
        cells = "".join(_cell(value, tops[-1] / len(tops), row) for value in columns)
        lines.append(f"{amounts.rounded(tops[row]):>{MARGIN - 2}} ┤{cells.rstrip()}")
    return [*lines, *_axis(len(columns), begin, end)]


def _at_equal_intervals(
    curve: Sequence[tuple[datetime, int]], begin: datetime, end: datetime, count: int
) -> list[int | None]:
    """Returns the highest value in each of `count` slices of time.

    The last value holds for an average interval, and a single one to the end. None before that and after it.
    """
    found: list[int | None] = []
    slices = [begin + (end - begin) * number / count for number in range(count + 1)]
    ends = curve[-1][0] + (curve[-1][0] - curve[0][0]) / (len(curve) - 1) if len(curve) > 1 else end
    place = 0
    for start, until in pairwise(slices):
        after = bisect_left(curve, until, place, key=itemgetter(0)) if until < end else len(curve)
        within = curve[max(0, place - 1) : after] if start < ends else ()
        found.append(max((each for _, each in within), default=None))
        place = after
    return found


def _cell(value: int | None, a_row: float, row: int) -> str:
    """Returns one cell of a column; zero is a line in the bottom row, a missing value a dot there."""
    if value is None:
        return GAP if row == 0 else " "
    eighths = round(value * 8 / a_row) - row * 8
    return EIGHTHS[min(8, max(1 if row == 0 else 0, eighths))]


def _axis(columns: int, begin: datetime, end: datetime) -> list[str]:
    """Returns the time axis, from the first time to the last."""
    form = "%H:%M" if end - begin < _ONE_DAY else "%m-%d %H:%M"
    ticks = max(1, columns // _TICK)
    line, numbers = ["─"] * columns, [" "] * columns
    for tick in range(ticks):
        column = tick * columns // ticks
        line[column] = "┴"
        text = (begin + (end - begin) * column / columns).strftime(form)
        numbers[column : column + len(text)] = text
    last = end.strftime(form)
    if columns - (ticks - 1) * columns // ticks >= 2 * len(last) + 1:
        numbers[columns - len(last) :] = last
    pad = " " * (MARGIN - 1)
    return [f"{pad}└{''.join(line)}", f"{pad} {''.join(numbers).rstrip()}"]

"""Fitting output to the terminal: lines are wrapped or cut on a terminal only, never in a pipe or a file."""

import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

NARROWEST: Final = 40


def width() -> int | None:
    """The columns of the terminal that standard output is; None where it is none."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def wrapped(text: str, indent: int) -> str:
    """One line, or on a terminal several, whose later ones begin under column `indent` (4 where that leaves too
    little). Words longer than a line stay whole."""
    columns = width()
    if columns is None or len(text) <= columns:
        return text
    indent = indent if columns - indent >= NARROWEST // 2 else 4
    lines = textwrap.wrap(text, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def show(lines: Iterable[str]) -> None:
    """Print lines of the form "label:     text", wrapped under the text; a query stays whole, to be copied."""
    for line in lines:
        print(line if line.startswith("query:") else wrapped(line, 12))


def age(seconds: float) -> str:
    """A span in its largest units, as kubectl shortens it: 8s, 119s, 12m, 30h, 4d."""
    whole = max(0, int(seconds))
    for unit, length, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if whole < most * length:
            return f"{whole // length}{unit}"
    return f"{whole // 86400}d"

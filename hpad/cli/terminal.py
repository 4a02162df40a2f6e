"""Fitting output to the terminal: lines are wrapped or cut on a terminal only, never in a pipe or a file."""

import shutil
import sys
import textwrap
from typing import Final

NARROWEST: Final = 40


def width() -> int | None:
    """The columns of the terminal that standard output is; None where it is none."""
    return max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def wrapped(text: str, indent: int) -> str:
    """One line, or on a terminal several, whose later ones begin under column `indent`. Words longer than a line stay
    whole."""
    columns = width()
    if columns is None or len(text) <= columns:
        return text
    lines = textwrap.wrap(text, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def cut(text: str) -> str:
    """The text, on a terminal cut to one line of it."""
    columns = width()
    return text if columns is None or len(text) <= columns else f"{text[: columns - 1]}…"


def age(seconds: float) -> str:
    """A span in its largest units, as kubectl shortens it: 8s, 119s, 12m, 30h, 4d."""
    whole = max(0, int(seconds))
    for unit, length, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if whole < most * length:
            return f"{whole // length}{unit}"
    return f"{whole // 86400}d"

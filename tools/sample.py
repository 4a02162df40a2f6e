"""Writes the comments of `config/hpad.yaml`: each setting with its meaning, from the table in hpad/settings/model.py.

Headings, values and examples are written by hand; tests compare the values with the defaults. A setting that the file
lacks is added below the one before it.
"""

import re
import textwrap
from pathlib import Path

import yaml

from hpad.settings import TABLE
from hpad.settings.rows import SettingRow

FILE = Path(__file__).resolve().parent.parent / "config" / "hpad.yaml"
_WIDTH = 120
_COLUMN = 37


def current(text: str) -> str:
    """Returns the sample with the meanings of the settings as they are now."""
    end = 0
    for row in TABLE.values():
        text, end = _with_meaning(text, row, end)
    return text


def _with_meaning(text: str, row: SettingRow, end: int) -> tuple[str, int]:
    """Renews the lines of a setting, and returns where they end. `end`: the end of those of the setting before."""
    lines = re.compile(rf"^(?P<head>(# )?{row.name}: .*?) *(  # .*)?\n( {{{_COLUMN}}}# .*\n)*", re.MULTILINE)
    found = lines.search(text)
    start, rest = found.span() if found else (end, end)
    before = text[:start] + _commented(found["head"] if found else _head(row), row.setting.meaning)
    return before + text[rest:], len(before)


def _head(row: SettingRow) -> str:
    """Returns the line of a setting without its comment: its default, or a line to be filled in."""
    if row.written is None:
        return f"# {row.name}: {row.metavar}"
    return yaml.safe_dump({row.name: row.written}).strip()


def _commented(head: str, meaning: str) -> str:
    lines = textwrap.wrap(
        meaning,
        _WIDTH,
        initial_indent=head.ljust(_COLUMN - 2) + "  # ",
        subsequent_indent=" " * _COLUMN + "# ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"

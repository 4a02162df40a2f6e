"""Errors with the problems of settings, and the names that a misspelt one may mean."""

import difflib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hpad.api.problem import Invalid, problems_of
from hpad.api.text import shown

_T = TypeVar("_T")


class SettingsError(Invalid):
    """One or more invalid settings. The paths of the problems are those in the file."""


def each(parts: Iterable[tuple[str | int, Callable[[], _T]]]) -> list[_T]:
    """Returns the results of all parsers. Raises Invalid with the problems of all that fail."""
    read, found = [], []
    for step, parse in parts:
        try:
            read.append(parse())
        except ValueError as error:
            found += [problem.inside(step) for problem in problems_of(error)]
    if found:
        raise Invalid(*found)
    return read


def hint(name: Any, known: tuple[str, ...]) -> str:
    """Returns a suggestion for a misspelt name, else the list of known names."""
    return near(name, known) or f"; there are {', '.join(known)}"


def near(name: Any, known: tuple[str, ...]) -> str:
    """Returns a suggestion for a misspelt name, or ""."""
    close = meant(name, known)
    return f"; did you mean {shown(close)}?" if close else ""


def meant(name: Any, known: tuple[str, ...]) -> str | None:
    """Returns the known name most similar to `name`, None if none is similar."""
    return next(iter(difflib.get_close_matches(str(name), known, n=1)), None)

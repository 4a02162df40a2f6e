"""Errors with the problems of settings, and the names that a misspelt one may mean."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from hpad.api.problem import Place, Problem
from hpad.api.text import shown

_T = TypeVar("_T")


class InvalidValue(ValueError):
    """One or more problems of a setting. The message has one line per problem."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class SettingsError(ValueError):
    """One or more invalid settings. The message has one line per problem.

    `places`: the keys and list positions of each problem in the configuration; empty if it has no place there.
    """

    def __init__(self, *problems: str, places: Sequence[Place] = ()) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
        self.places = tuple(places) or ((),) * len(problems)


def problems_of(error: ValueError) -> tuple[Problem, ...]:
    """Returns the problems of a parser's error."""
    return error.problems if isinstance(error, InvalidValue) else (Problem((), str(error)),)


def each(parts: Iterable[tuple[str | int, Callable[[], _T]]]) -> list[_T]:
    """Returns the results of all parsers. Raises InvalidValue with the problems of all that fail."""
    read, found = [], []
    for step, parse in parts:
        try:
            read.append(parse())
        except ValueError as error:
            found += [problem.inside(step) for problem in problems_of(error)]
    if found:
        raise InvalidValue(*found)
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

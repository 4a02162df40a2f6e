"""What is wrong with a value of the settings, at which place, and the names that it may mean."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from hpad.api.text import shown

_T = TypeVar("_T")
FieldProblem = tuple[str, str]
"""A field, and what is wrong with it."""


class Problem(NamedTuple):
    """A problem at a place of the configuration: keys and list positions, starting with the setting.

    `key` names an unknown field at that place, if that is the problem.
    """

    path: tuple[str | int, ...]
    text: str
    key: str | None = None

    def __str__(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else step for step in self.path)
        return ": ".join((*steps, self.text))

    @property
    def place(self) -> tuple[str | int, ...]:
        """The path of the problem in the file."""
        return self.path if self.key is None else (*self.path, self.key)

    def inside(self, step: str | int) -> "Problem":
        """Returns the problem with its path from one level above."""
        return self._replace(path=(step, *self.path))


class InvalidValue(ValueError):
    """One or more problems of a setting. The message has one line per problem."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class SettingsError(ValueError):
    """One or more invalid settings. The message has one line per problem.

    `places`: the keys and list positions of each problem in the configuration; empty if it has no place there.
    """

    def __init__(self, *problems: str, places: Sequence[tuple[str | int, ...]] = ()) -> None:
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

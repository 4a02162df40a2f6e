"""What is wrong at a place of a file, an object or a query, in one form for all of them.

Errors of API objects have the types and texts of the Kubernetes API server. Source: Kubernetes 1.36, apimachinery,
pkg/util/validation/field/errors.go.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.quantity import Quantity
from hpad.api.text import begin, harmless, quoted

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
FORBIDDEN: Final = "FieldValueForbidden"
NOT_SUPPORTED: Final = "FieldValueNotSupported"
TYPE_INVALID: Final = "FieldValueTypeInvalid"
DUPLICATE: Final = "FieldValueDuplicate"
UNKNOWN: Final = "FieldValueNotFound"

Place = tuple[str | int, ...]
"""Keys and list positions from the top to a value."""
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(.*?)\](?=[.\[]|\Z)", re.DOTALL)
"""A plain step, or one in brackets, which may hold brackets itself."""
_LONGEST: Final = 1000
"""Characters of a path or a value in a message."""


class Problem(NamedTuple):
    """What is wrong at one place.

    `path` is written as Kubernetes does: `spec.metrics[0].resource.name`, `sources[my.source].timeout`; "" is the whole
    file, object or value. `text` is the message, and names the field where that helps. `line` counts from 1; 0 means
    that it is not known. `reason` is the API server's type of error, or the reason of a condition.
    """

    path: str
    text: str
    line: int = 0
    reason: str = INVALID

    def __str__(self) -> str:
        return self.text

    def inside(self, step: str | int) -> "Problem":
        """Returns the problem as seen from one level above, whose message begins with the step."""
        named = f"[{step}]" if isinstance(step, int) else step
        return self._replace(path=below(step, self.path), text=f"{named}: {self.text}")

    def at(self, file: str) -> str:
        """Returns the message, on one line, after FILE:LINE, or FILE if the line is not known."""
        return harmless(f"{file}:{self.line}: {self.text}" if self.line else f"{file}: {self.text}")


class Invalid(ValueError):
    """One or more problems. The message has one line per problem."""

    def __init__(self, *problems: Problem | str) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(Problem("", each) if isinstance(each, str) else each for each in problems)


def problems_of(error: ValueError) -> tuple[Problem, ...]:
    """Returns the problems of a parser's error."""
    return error.problems if isinstance(error, Invalid) else (Problem("", str(error)),)


def path_of(place: Place) -> str:
    """Returns a place as Kubernetes writes it, such as spec.metrics[0].type."""
    path = ""
    for step in place:
        is_plain = isinstance(step, str) and step and not set(step) & set("./[]")
        path += f".{step}" if is_plain else f"[{step}]"
    return path.removeprefix(".")


def below(step: str | int, path: str) -> str:
    """Returns the path from one level above."""
    return path_of((step,)) + (f".{path}" if path and not path.startswith("[") else path)


def steps(path: str) -> tuple[str, ...]:
    """Returns the keys and positions of a path, each as text."""
    return tuple(name or index for name, index in _STEP.findall(path))


def required(path: str, detail: str = "") -> Problem:
    """Returns the error for a missing field."""
    return Problem(path, f"{path}: Required value{': ' if detail else ''}{detail}", reason=REQUIRED)


def invalid(path: str, value: Any, detail: str) -> Problem:
    """Returns the error for a value of the right type that breaks a rule."""
    return Problem(path, f"{path}: Invalid value: {shown(value)}: {detail}")


def type_invalid(path: str, value: Any, detail: str) -> Problem:
    """Returns the error for a value of the wrong type, which the API server cannot decode."""
    text = f"{f'{path}: ' if path else ''}Invalid value: {_outline(value)}: {detail}"
    return Problem(path, text, reason=TYPE_INVALID)


def forbidden(path: str, detail: str) -> Problem:
    """Returns the error for a field that is not allowed in this place."""
    return Problem(path, f"{path}: Forbidden: {detail}", reason=FORBIDDEN)


def not_supported(path: str, value: Any, supported: Iterable[str]) -> Problem:
    """Returns the error for a value outside the allowed ones."""
    choices = ", ".join(map(quoted, supported))
    text = f"{path}: Unsupported value: {shown(value)}: supported values: {choices}"
    return Problem(path, text, reason=NOT_SUPPORTED)


def unknown(path: str, hint: str = "") -> Problem:
    """Returns the error for a field that does not exist, with the text of `fieldValidation=Strict`."""
    named = begin(path, _LONGEST)
    detail = f"strict decoding error: unknown field {quoted(named)}"
    return Problem(path, f"{named}: {detail}{': ' if hint else ''}{hint}", reason=UNKNOWN)


def duplicate(path: str) -> Problem:
    """Returns the error for a field that occurs twice, with the text of `fieldValidation=Strict`."""
    named = begin(path, _LONGEST)
    return Problem(path, f"{named}: strict decoding error: duplicate field {quoted(named)}", reason=DUPLICATE)


def shown(value: Any) -> str:
    """Returns a value as the API server prints it: numbers bare, text and quantities quoted, the rest as JSON."""
    if isinstance(value, str):
        return quoted(begin(value, _LONGEST))
    if isinstance(value, Quantity):
        return quoted(str(value))
    return msgspec.json.encode(value, enc_hook=str).decode()


def _outline(value: Any) -> str:
    """Returns a value of the wrong type; an object or a list, which may be large, only as {…} or […]."""
    if isinstance(value, dict):
        return "{…}" if value else "{}"
    if isinstance(value, list):
        return "[…]" if value else "[]"
    return shown(value)

"""Parsers of single values, and of mappings and lists of them.

A parser takes a value from YAML, an environment variable or a flag, and raises ValueError with the value and the
expected form.
"""

import difflib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hpad.api import duration as durations
from hpad.api import selector as selectors
from hpad.api.metadata import label_faults, subdomain_faults
from hpad.api.quantity import Quantity, QuantityError
from hpad.api.text import shown
from hpad.engine.view import Gates

_T = TypeVar("_T")
_MIN_BYTES = 1 << 20
_MAX_COUNT = 2**31 - 1  # flags of kube-controller-manager have 32 bits
_OFF = ("off", False, "0", 0)
"""YAML reads `off` as False."""
_RETIRED_GATES = {"HPAContainerMetrics": "is always on since Kubernetes 1.30, and was removed with 1.32"}


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


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not text")
    return value


def optional_text(value: Any) -> str | None:
    return None if value is None else text(value) or None


def path(value: Any) -> Path | None:
    parsed = optional_text(value)
    return None if parsed is None else Path(parsed).expanduser()


def disk(value: Any) -> int:
    """Returns bytes from a Kubernetes quantity; "none" is 0."""
    if value == "none":
        return 0
    try:
        parsed = 0 if isinstance(value, bool) else Quantity.parse(value).value()
    except (QuantityError, TypeError):
        parsed = 0
    if not _MIN_BYTES <= parsed < 1 << 63:
        raise ValueError(f'{shown(value)} is not an amount of disk of 1Mi or more such as "1Gi", or "none"')
    return parsed


def budget(value: Any) -> int:
    """Returns bytes from a Kubernetes quantity; "off" and 0 are 0."""
    if value in _OFF:
        return 0
    try:
        parsed = -1 if isinstance(value, bool) else Quantity.parse(value).value()
    except (QuantityError, TypeError):
        parsed = -1
    if not _MIN_BYTES <= parsed < 1 << 63:
        raise ValueError(f'{shown(value)} is not an amount of 1Mi or more such as "16Mi", or "off"')
    return parsed


def span(value: Any) -> timedelta:
    """Returns a duration; "off" and 0 are none."""
    return timedelta(0) if value in _OFF else duration(value)


def names(value: Any) -> tuple[str, ...]:
    """Accepts a list of names, or names separated by commas."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{shown(value)} is not a list of names")
    return tuple(value)


def duration(value: Any) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{shown(value)} has no unit: write "{value}s" for seconds')
    parsed = durations.parse(text(value))
    if parsed < timedelta(0):
        raise ValueError(f"{shown(value)} is negative: a duration of zero or more is needed")
    return parsed


def positive_duration(value: Any) -> timedelta:
    parsed = duration(value)
    if not parsed:
        raise ValueError(f"{shown(value)} is zero: a duration above zero is needed")
    return parsed


def _at_least(minimum: timedelta, value: Any) -> timedelta:
    parsed = positive_duration(value)
    if parsed < minimum:
        raise ValueError(f"{shown(value)} is less than {durations.write(minimum)}, the minimum")
    return parsed


# No reconcile ends within a shorter sync period, and every watch would count as stale after a shorter silence.
period = functools.partial(_at_least, timedelta(milliseconds=100))
staleness = functools.partial(_at_least, timedelta(seconds=1))


def count(value: Any) -> int:
    digits = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(digits, str) or not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError(f"{shown(value)} is not a whole number of 1 or more")
    if int(digits) > _MAX_COUNT:
        raise ValueError(f"{shown(value)} is more than {_MAX_COUNT}, the maximum")
    return int(digits)


def qps(value: Any) -> float | None:
    """Requests per second. None, zero or less means no limit, as with kube-controller-manager's flag."""
    if value in ("", "none", None):
        return None
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(f"{shown(value)} is not a number of requests per second")
    return number if number > 0 else None


def whole(value: Any) -> int:
    """Parses a whole number of 0 or more."""
    return 0 if value in (0, "0") and not isinstance(value, bool) else count(value)


def rate(value: Any) -> float:
    """Parses a number of calls per second."""
    number = math.nan if isinstance(value, str) else _number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{shown(value)} is not a number above 0 (calls per second)")
    return number


def fraction(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{shown(value)} is not a number from 0 to 1 (0.1 is ten percent)")
    return number


def _number(value: Any) -> float:
    """Returns the value as a float; NaN if it is not a number, or too large for a float."""
    try:
        return float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def flag(value: Any) -> bool:
    known: dict[Any, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
    if not isinstance(value, bool | str) or value not in known:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return known[value]


def one_of(*choices: str) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{shown(value)} is not one of {', '.join(choices)}")
        return str(value)

    return parse


def address(value: Any) -> tuple[str, int] | None:
    if value in ("", "none", None):
        return None
    host, colon, port = text(value).rpartition(":")
    # "::1" is an IPv6 address without a port, not port 1 of the host ":".
    if not colon or host.endswith(":") or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'{shown(value)} is not of the form host:port, such as "127.0.0.1:8473", or "none"')
    return host.strip("[]") or "0.0.0.0", int(port)


def object_name(value: Any) -> str:
    for fault in subdomain_faults(text(value)):
        raise ValueError(f"{shown(value)} is not a name: {fault}")
    return str(value)


def namespace(value: Any) -> str:
    for fault in label_faults(text(value)):
        raise ValueError(f"{shown(value)} is not a namespace: {fault}")
    return str(value)


def namespaces(value: Any) -> tuple[str, ...]:
    """Parses a list of namespaces, and removes duplicates."""
    return tuple(dict.fromkeys(map(namespace, names(value))))


def gates(value: Any) -> dict[str, bool]:
    """Accepts `{Name: true}` or, as kube-controller-manager's flag, "A=true,B=false"."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        for name, equals, _ in parts:
            if not equals:
                raise ValueError(f"{shown(name.strip())} has no value: write {name.strip()}=true or =false")
        value = {name.strip(): setting.strip().lower() for name, _, setting in parts}
    if not isinstance(value, dict):
        raise ValueError(f'{shown(value)} is not of the form "Name=true,Other=false"')
    known = Gates.__struct_fields__
    for name in value:
        if name in _RETIRED_GATES:
            raise ValueError(f"{name} {_RETIRED_GATES[name]}: leave it out")
        if name not in known:
            raise ValueError(f"there is no feature gate {shown(name)}{hint(name, known)}")
    return {name: flag(setting) for name, setting in value.items()}


def selector(value: Any) -> str:
    """Checks a label selector in the syntax of `kubectl -l`, and returns its text."""
    parsed = text(value)
    try:
        selectors.parse(parsed)
    except selectors.SelectorError as error:
        raise ValueError(f'{shown(value)} is not a label selector such as "autoscaler=hpad": {error}') from None
    return parsed


def labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(word, str) for pair in value.items() for word in pair):
        raise ValueError(f"{shown(value)} is not a mapping of labels to values such as {{queue: orders}}")
    return value


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


def fields(value: Any, parsers: Mapping[str, Callable[[Any], Any]], required: bool = False) -> dict[str, Any]:
    """Parses a mapping field by field. Raises InvalidValue for all unknown, invalid and missing fields."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a mapping of {', '.join(parsers)}")
    found = [Problem((), f"{name} is missing") for name in parsers if required and name not in value]
    unknown = [name for name in value if name not in parsers]
    found += [Problem((), f"unknown field {shown(name)}{hint(name, tuple(parsers))}", str(name)) for name in unknown]
    known = {name: entry for name, entry in value.items() if name in parsers}
    try:
        read = each((name, functools.partial(parsers[name], entry)) for name, entry in known.items())
    except InvalidValue as error:
        raise InvalidValue(*found, *error.problems) from None
    if found:
        raise InvalidValue(*found)
    return dict(zip(known, read, strict=True))

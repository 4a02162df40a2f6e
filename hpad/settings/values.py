"""How single values are read: every parser takes what YAML, a variable or a flag gives, and raises ValueError with
what would be right."""

import difflib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hpad.api import duration as durations
from hpad.api import selector as selectors
from hpad.api.names import label_faults, subdomain_faults
from hpad.api.quantity import Quantity, QuantityError
from hpad.api.text import shown
from hpad.engine.view import Gates
from hpad.settings.shape import LEASES

_T = TypeVar("_T")
_LEAST_BYTES = 1 << 20
_LEAST_PERIOD = timedelta(milliseconds=100)
_LEAST_STALENESS = timedelta(seconds=1)
_MOST = 2**31 - 1  # the original's flags are of 32 bits
_RETIRED_GATES = {"HPAContainerMetrics": "is always on since Kubernetes 1.30, and was removed with 1.32"}
_RETIRED_LOCKS = {"endpoints": "1.24", "configmaps": "1.24", "endpointsleases": "1.28", "configmapsleases": "1.28"}
"""Kinds of locks that client-go had (resourcelock/interface.go), and the version that was the first without them."""


class Flaw(NamedTuple):
    """What is wrong at a place of the configuration: keys, and positions in lists, from the setting on.

    `key`: the field within that place that should not be there, where that is what is wrong.
    """

    path: tuple[str | int, ...]
    text: str
    key: str | None = None

    def __str__(self) -> str:
        steps = (f"[{step}]" if isinstance(step, int) else step for step in self.path)
        return ": ".join((*steps, self.text))

    @property
    def place(self) -> tuple[str | int, ...]:
        """Where it stands in the file."""
        return self.path if self.key is None else (*self.path, self.key)

    def inside(self, step: str | int) -> "Flaw":
        """The same, seen from one level above."""
        return self._replace(path=(step, *self.path))


class FlawedError(ValueError):
    """One or more flaws of a setting; the message has a line for each."""

    def __init__(self, *flaws: Flaw) -> None:
        super().__init__("\n".join(map(str, flaws)))
        self.flaws = flaws


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not text")
    return value


def optional_text(value: Any) -> str | None:
    return None if value is None else text(value) or None


def path(value: Any) -> Path | None:
    given = optional_text(value)
    return None if given is None else Path(given).expanduser()


def disk(value: Any) -> int:
    """Returns bytes from a Kubernetes quantity; "none" is 0."""
    if value == "none":
        return 0
    try:
        parsed = 0 if isinstance(value, bool) else Quantity.parse(value).value()
    except (QuantityError, TypeError):
        parsed = 0
    if not _LEAST_BYTES <= parsed < 1 << 63:
        raise ValueError(f'{shown(value)} is not an amount of disk of 1Mi or more such as "1Gi", or "none"')
    return parsed


def names(value: Any) -> tuple[str, ...]:
    """A list of names; a text is taken as names with commas between."""
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
        raise ValueError(f"{shown(value)} is no time at all: a duration above zero is needed")
    return parsed


def period(value: Any) -> timedelta:
    """How often HPAs are reconciled: below a tenth of a second nothing comes to its end within its turn."""
    return _at_least(_LEAST_PERIOD, value)


def staleness(value: Any) -> timedelta:
    """How long a watch may be silent: below a second every one is, always."""
    return _at_least(_LEAST_STALENESS, value)


def _at_least(least: timedelta, value: Any) -> timedelta:
    parsed = positive_duration(value)
    if parsed < least:
        raise ValueError(f"{shown(value)} is less than {durations.write(least)}, the least that works")
    return parsed


def count(value: Any) -> int:
    digits = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(digits, str) or not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError(f"{shown(value)} is not a whole number of 1 or more")
    if int(digits) > _MOST:
        raise ValueError(f"{shown(value)} is more than {_MOST}, the most there can be")
    return int(digits)


def qps(value: Any) -> float | None:
    """Requests a second; nothing, zero or less: no limit, as with the original's flag."""
    if value in ("", "none", None):
        return None
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(f"{shown(value)} is not a number of requests a second")
    return number if number > 0 else None


def whole(value: Any) -> int:
    """A number of 0 or more."""
    return 0 if value in (0, "0") and not isinstance(value, bool) else count(value)


def pace(value: Any) -> float:
    """Calls a second."""
    number = math.nan if isinstance(value, str) else _number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{shown(value)} is not a number above 0 (calls a second)")
    return number


def fraction(value: Any) -> float:
    number = _number(value)
    if not 0 <= number <= 1:
        raise ValueError(f"{shown(value)} is not a number from 0 to 1 (0.1 is ten percent)")
    return number


def _number(value: Any) -> float:
    """The value as a float; NaN where it is no number, or a whole one that no float reaches."""
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
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'{shown(value)} is not of the form host:port, such as "127.0.0.1:8473", or "none"')
    return host.strip("[]") or "0.0.0.0", int(port)


def object_name(value: Any) -> str:
    for fault in subdomain_faults(text(value)):
        raise ValueError(f"{shown(value)} is no name: {fault}")
    return str(value)


def namespace(value: Any) -> str:
    for fault in label_faults(text(value)):
        raise ValueError(f"{shown(value)} is no namespace: {fault}")
    return str(value)


def namespaces(value: Any) -> tuple[str, ...]:
    """A list of namespaces, each of them once."""
    return tuple(dict.fromkeys(map(namespace, names(value))))


def gates(value: Any) -> dict[str, bool]:
    """`{Name: true}` or, as with the original's flag, "A=true,B=false"."""
    if isinstance(value, str):
        parts = [part.partition("=") for part in value.split(",") if part.strip()]
        for name, equals, _ in parts:
            if not equals:
                raise ValueError(f"{shown(name.strip())} is given no value: write {name.strip()}=true or =false")
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


def lock(value: Any) -> str:
    """The kind of object that a leader is elected by: `leases`, the one that is left of five."""
    if isinstance(value, str) and value in _RETIRED_LOCKS:
        raise ValueError(f"{shown(value)} was removed with Kubernetes {_RETIRED_LOCKS[value]}: write {LEASES}")
    return one_of(LEASES)(value)


def selector(value: Any) -> str:
    """A label selector as `kubectl -l` takes it."""
    given = text(value)
    try:
        selectors.parse(given)
    except selectors.SelectorError as error:
        raise ValueError(f'{shown(given)} is not a label selector such as "autoscaler=hpad": {error}') from None
    return given


def labels(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(word, str) for pair in value.items() for word in pair):
        raise ValueError(f"{shown(value)} is not a mapping of labels to values such as {{queue: orders}}")
    return value


def flaws(error: ValueError) -> tuple[Flaw, ...]:
    """What a parser's error says, by place."""
    return error.flaws if isinstance(error, FlawedError) else (Flaw((), str(error)),)


def each(parts: Iterable[tuple[str | int, Callable[[], _T]]]) -> list[_T]:
    """What the parsers return; raises FlawedError with the flaws of all of them, each at its place."""
    read, found = [], []
    for step, parse in parts:
        try:
            read.append(parse())
        except ValueError as error:
            found += [flaw.inside(step) for flaw in flaws(error)]
    if found:
        raise FlawedError(*found)
    return read


def hint(name: Any, known: tuple[str, ...]) -> str:
    """What was probably meant, else all that is known."""
    return near(name, known) or f"; there are {', '.join(known)}"


def near(name: Any, known: tuple[str, ...]) -> str:
    """What was probably meant; empty where nothing comes near."""
    close = meant(name, known)
    return f"; did you mean {shown(close)}?" if close else ""


def meant(name: Any, known: tuple[str, ...]) -> str | None:
    """The known name that comes nearest, None where none comes near."""
    return next(iter(difflib.get_close_matches(str(name), known, n=1)), None)


def fields(value: Any, parsers: Mapping[str, Callable[[Any], Any]], required: bool = False) -> dict[str, Any]:
    """Read a mapping field by field; raises FlawedError for the fields that are unknown, wrong or missing."""
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a mapping of {', '.join(parsers)}")
    found = [Flaw((), f"{name} is missing") for name in parsers if required and name not in value]
    unknown = [name for name in value if name not in parsers]
    found += [Flaw((), f"unknown field {shown(name)}{hint(name, tuple(parsers))}", str(name)) for name in unknown]
    known = {name: entry for name, entry in value.items() if name in parsers}
    try:
        read = each((name, functools.partial(parsers[name], entry)) for name, entry in known.items())
    except FlawedError as error:
        raise FlawedError(*found, *error.flaws) from None
    if found:
        raise FlawedError(*found)
    return dict(zip(known, read, strict=True))

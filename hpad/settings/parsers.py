"""Parsers of single values, each with the JSON schema of what it takes.

A parser takes a value from YAML, an environment variable or a flag, and raises ValueError with the value and the
expected form.
"""

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from hpad.api import duration as durations
from hpad.api import selector as selectors
from hpad.api.metadata import label_faults, subdomain_faults
from hpad.api.problem import Invalid, problems_of
from hpad.api.quantity import Quantity, QuantityError
from hpad.api.text import hint, shown
from hpad.engine.view import REMOVED_GATES, Gates

Json = dict[str, Any]
_T = TypeVar("_T")
_MIN_BYTES = 1 << 20
_GIBIBYTE = 1 << 30
_MAX_COUNT = 2**31 - 1  # flags of kube-controller-manager have 32 bits
_OFF = ("off", False, "0", 0)
"""YAML reads `off` as False."""
ZERO = "HPAScaleToZero"
_RETIRED_GATES = {
    "HPAContainerMetrics": "is always on since Kubernetes 1.30, and was removed with 1.32",
    **REMOVED_GATES,
}
_DURATION: Final = r"^\+?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$|^0$"
_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
_TEXT: Final[Json] = {"type": "string"}
_FLAG: Final[Json] = {"type": "boolean"}
_SPAN: Final[Json] = {"type": "string", "pattern": _DURATION}
_SPAN_OR_OFF: Final[Json] = {"type": "string", "pattern": f"{_DURATION}|^off$"}
_SWITCHED_OFF: Final[Json] = {"enum": [False, 0], "description": "off"}
_NAMES: Final = "names with commas between"


def _as_it_is(value: Any) -> Any:
    return value


class Parser(msgspec.Struct, Generic[_T], frozen=True):
    """Parses a value from YAML, an environment variable or a flag.

    `parse` raises ValueError with the value and the expected form. `form`: the JSON schema of such values in a file.
    `metavar` stands for the value in the help of flags. `write` returns a parsed value as a file would hold it.
    `repeatable`: texts with commas between them have the meaning of all of them.
    """

    parse: Callable[[Any], _T]
    form: Json
    metavar: str = ""
    write: Callable[[_T], Any] = _as_it_is
    repeatable: bool = False

    def __call__(self, value: Any) -> _T:
        return self.parse(value)


def takes(form: Json, metavar: str = "", **options: Any) -> Callable[[Callable[[Any], _T]], Parser[_T]]:
    """Makes a function a parser with this form; `options` are further fields of Parser."""
    return lambda parse: Parser(parse, form, metavar, **options)


def closed(properties: Json) -> Json:
    """Returns the schema of an object that may have these fields and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def list_of(items: Json) -> Json:
    return {"type": "array", "items": items}


def or_text(form: Json, text: str) -> Json:
    return {"anyOf": [form, {"type": "string", "description": text}]}


def _amount(size: int) -> str:
    """Returns a number of bytes as a quantity of whole mebibytes or gibibytes."""
    return f"{size // _MIN_BYTES}Mi" if size % _GIBIBYTE else f"{size // _GIBIBYTE}Gi"


@takes(_TEXT, "NAME")
def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not text")
    return value


@takes({"type": ["string", "null"]}, "NAME")
def optional_text(value: Any) -> str | None:
    return None if value is None else text(value) or None


@takes({"type": ["string", "null"]}, "FILE")
def path(value: Any) -> Path | None:
    parsed = optional_text(value)
    return None if parsed is None else Path(parsed).expanduser()


@takes({"type": ["string", "integer"]}, "SIZE", write=_amount)
def disk(value: Any) -> int:
    """Returns bytes from a Kubernetes quantity; "none" is 0."""
    return 0 if value == "none" else _bytes(value, 'of disk of 1Mi or more such as "1Gi", or "none"')


@takes({"anyOf": [{"type": ["string", "integer"]}, _SWITCHED_OFF]}, "SIZE", write=_amount)
def budget(value: Any) -> int:
    """Returns bytes from a Kubernetes quantity; "off" and 0 are 0."""
    return 0 if value in _OFF else _bytes(value, 'of 1Mi or more such as "16Mi", or "off"')


def _bytes(value: Any, expected: str) -> int:
    try:
        parsed = 0 if isinstance(value, bool) else Quantity.parse(value).value()
    except (QuantityError, TypeError):
        parsed = 0
    if not _MIN_BYTES <= parsed < 1 << 63:
        raise ValueError(f"{shown(value)} is not an amount {expected}")
    return parsed


@takes({"anyOf": [_SPAN_OR_OFF, _SWITCHED_OFF]}, "DURATION", write=durations.write)
def span(value: Any) -> timedelta:
    """Returns a duration; "off" and 0 are none."""
    return timedelta(0) if value in _OFF else duration(value)


@takes(or_text(list_of(_TEXT), _NAMES), "NAME", write=list, repeatable=True)
def names(value: Any) -> tuple[str, ...]:
    """Accepts a list of names, or names separated by commas."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f"{shown(value)} is not a list of names")
    return tuple(value)


@takes(names.form, "NAME", write=list, repeatable=True)
def patterns(value: Any) -> tuple[str, ...]:
    """Accepts names or shell-style patterns, as `names` does. A `[` that is not closed would match itself alone."""
    found = names(value)
    for pattern in found:
        _require_closed(pattern)
    return found


def _require_closed(pattern: str) -> None:
    if "[" in re.sub(r"\[!?+.[^\]]*\]", "", pattern):
        raise ValueError(f"{shown(pattern)} is no pattern: its [ is not closed")


def matches_any(given: Sequence[str], name: str) -> bool:
    """Whether a name is one of these names, or matches one of these patterns; without any, each name does."""
    return not given or any(fnmatch.fnmatchcase(name, pattern) for pattern in given)


@takes(_SPAN, "DURATION", write=durations.write)
def duration(value: Any) -> timedelta:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError(f'{shown(value)} has no unit: write "{value}s" for seconds')
    parsed = durations.parse(text(value))
    if parsed < timedelta(0):
        raise ValueError(f"{shown(value)} is negative: a duration of zero or more is needed")
    return parsed


@takes(_SPAN, "DURATION", write=durations.write)
def positive_duration(value: Any) -> timedelta:
    parsed = duration(value)
    if not parsed:
        raise ValueError(f"{shown(value)} is zero: a duration above zero is needed")
    return parsed


def _at_least(minimum: timedelta) -> Parser[timedelta]:
    @takes(_SPAN, "DURATION", write=durations.write)
    def parse(value: Any) -> timedelta:
        parsed = positive_duration(value)
        if parsed < minimum:
            raise ValueError(f"{shown(value)} is less than {durations.write(minimum)}, the minimum")
        return parsed

    return parse


# No reconcile ends within a shorter sync period, and every watch would count as stale after a shorter silence.
period = _at_least(timedelta(milliseconds=100))
staleness = _at_least(timedelta(seconds=1))


@takes({"type": "integer", "minimum": 1}, "N")
def count(value: Any) -> int:
    digits = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(digits, str) or not digits.isascii() or not digits.isdigit() or int(digits) < 1:
        raise ValueError(f"{shown(value)} is not a whole number of 1 or more")
    if int(digits) > _MAX_COUNT:
        raise ValueError(f"{shown(value)} is more than {_MAX_COUNT}, the maximum")
    return int(digits)


@takes({"type": ["number", "null"]}, "N")
def qps(value: Any) -> float | None:
    """Requests per second. None, zero or less means no limit, as with kube-controller-manager's flag."""
    if value in ("", "none", None):
        return None
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(f"{shown(value)} is not a number of requests per second")
    return number if number > 0 else None


@takes({"type": "integer", "minimum": 0}, "N")
def whole(value: Any) -> int:
    """Parses a whole number of 0 or more."""
    return 0 if value in (0, "0") and not isinstance(value, bool) else count(value)


@takes({"type": "number", "exclusiveMinimum": 0}, "N")
def rate(value: Any) -> float:
    """Parses a number of calls per second."""
    number = math.nan if isinstance(value, str) else _number(value)
    if not 0 < number < math.inf:
        raise ValueError(f"{shown(value)} is not a number above 0 (calls per second)")
    return number


@takes({"type": "number", "minimum": 0, "maximum": 1}, "FRACTION")
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


@takes(_FLAG, "BOOL")
def flag(value: Any) -> bool:
    known: dict[Any, bool] = {True: True, False: False, "true": True, "false": False, "1": True, "0": False}
    if not isinstance(value, bool | str) or value not in known:
        raise ValueError(f"{shown(value)} is neither true nor false")
    return known[value]


def one_of(*choices: str) -> Parser[str]:
    @takes({"enum": list(choices)})
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{shown(value)} is not one of {', '.join(choices)}")
        return str(value)

    return parse


def _host_and_port(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


@takes({"type": ["string", "null"], "pattern": r"^$|^none$|:[0-9]{1,5}$"}, "HOST:PORT", write=_host_and_port)
def address(value: Any) -> tuple[str, int] | None:
    if value in ("", "none", None):
        return None
    host, colon, port = text(value).rpartition(":")
    # "::1" is an IPv6 address without a port, not port 1 of the host ":".
    if not colon or host.endswith(":") or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f'{shown(value)} is not of the form host:port, such as "127.0.0.1:8473", or "none"')
    return host.strip("[]") or "0.0.0.0", int(port)


@takes({"type": "string", "pattern": _NAME}, "NAME")
def object_name(value: Any) -> str:
    for fault in subdomain_faults(text(value)):
        raise ValueError(f"{shown(value)} is not a name: {fault}")
    return str(value)


@takes({"type": "string", "pattern": _LABEL}, "NAME")
def namespace(value: Any) -> str:
    for fault in label_faults(text(value)):
        raise ValueError(f"{shown(value)} is not a namespace: {fault}")
    return str(value)


@takes(or_text(list_of({"type": "string", "pattern": _LABEL}), _NAMES), "NAME", write=list, repeatable=True)
def namespaces(value: Any) -> tuple[str, ...]:
    """Parses a list of namespaces, and removes duplicates."""
    return tuple(dict.fromkeys(map(namespace, names(value))))


def _gates_by_name(gates: Gates) -> dict[str, bool]:
    """Returns the gates without the one whose default depends on the version of the API server."""
    return {name: on for name, on in msgspec.structs.asdict(gates).items() if name != ZERO}


@takes(
    or_text(closed(dict.fromkeys(Gates.__struct_fields__, _FLAG)), "Name=true,Other=false"),
    "A=BOOL,…",
    write=_gates_by_name,
    repeatable=True,
)
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


@takes(_TEXT, "LABELS")
def selector(value: Any) -> str:
    """Checks a label selector in the syntax of `kubectl -l`, and returns its text."""
    parsed = text(value)
    try:
        selectors.parse(parsed)
    except selectors.SelectorError as error:
        raise ValueError(f'{shown(value)} is not a label selector such as "autoscaler=hpad": {error}') from None
    return parsed


@takes({"type": "object", "additionalProperties": _TEXT})
def labels(value: Any) -> dict[str, str]:
    """Accepts labels with values or shell-style patterns of them."""
    if not isinstance(value, dict) or not all(isinstance(word, str) for pair in value.items() for word in pair):
        raise ValueError(f"{shown(value)} is not a mapping of labels to values such as {{queue: orders}}")
    for pattern in value.values():
        _require_closed(pattern)
    return value


_Read = TypeVar("_Read")


class SettingsError(Invalid):
    """One or more invalid settings. The paths of the problems are those in the file."""


def each(parts: Iterable[tuple[str | int, Callable[[], _Read]]]) -> list[_Read]:
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

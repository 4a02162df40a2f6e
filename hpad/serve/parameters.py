"""Query parameters of the JSON API: each is read, checked and described in one place."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec
from multidict import MultiMapping

from hpad.api import selector
from hpad.api.hpa import KIND, KINDS
from hpad.api.metadata import Key
from hpad.api.problem import Invalid, Problem
from hpad.api.text import meant, shown
from hpad.serve.api_types import STATES
from hpad.serve.listing import POSITION, SORTS, position_of

DEFAULT_LIMIT: Final = 500
MOST: Final = 5000


class Parameter(NamedTuple):
    """One query parameter: its description, JSON Schema, and how its text is parsed.

    `parse` raises ValueError with what would be right. A parameter that `repeats` gives a tuple.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    parse: Callable[[str], Any]
    default: Any = None
    repeats: bool = False


def read(query: MultiMapping[str], parameters: Sequence[Parameter]) -> dict[str, Any]:
    """Returns the value of each parameter by name. Raises Invalid."""
    names = [parameter.name for parameter in parameters]
    for name in query:
        if name not in names:
            takes = f"this path takes {', '.join(names)}" if names else "this path takes none"
            raise Invalid(Problem(name, f"unknown query parameter {shown(name)}{meant(name, names)}: {takes}"))
    return {parameter.name: _value(query.getall(parameter.name, []), parameter) for parameter in parameters}


def _value(given: Sequence[str], parameter: Parameter) -> Any:
    if not parameter.repeats and len(given) > 1:
        raise Invalid(f"{parameter.name} is given {len(given)} times; it may be given once")
    try:
        values = tuple(map(parameter.parse, given))
    except ValueError as error:
        raise Invalid(f"{parameter.name}: {error}") from None
    if parameter.repeats:
        return values
    return values[0] if values else parameter.default


_ENTRY: Final = "[0-9]{1,18}"


def _entry(text: str) -> int:
    """Reads the number of the last entry of a page."""
    if not re.fullmatch(_ENTRY, text):
        raise ValueError(f"{shown(text)} is not the `continue` of a previous page")
    return int(text)


def _count(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= most:
            raise ValueError(f"{shown(text)} is not a whole number from 1 to {most}")
        return int(text)

    return parse


def _one_of(values: Collection[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError(f"{shown(text)} is not one of {', '.join(values)}{meant(text, values)}")
        return text

    return parse


def _sort(text: str) -> str:
    if text.removeprefix("-") not in SORTS:
        known = f"{', '.join(SORTS)}, each with a minus sign for the reverse"
        raise ValueError(f"{shown(text)} is not one of {known}{meant(text, SORTS)}")
    return text


def _key(text: str) -> Key:
    try:
        return Key.parse(text)
    except ValueError:
        forms = "namespace/name of an HPA, such as shop/web, or of an Autoscaler, such as shop/autoscaler/web"
        raise ValueError(f"{shown(text)} is not {forms}") from None


_MOMENT: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def _moment(text: str) -> datetime:
    try:
        return msgspec.convert(text, datetime).astimezone(UTC) if _MOMENT.fullmatch(text) else _no_moment(text)
    except (msgspec.ValidationError, OverflowError):
        return _no_moment(text)


def _no_moment(text: str) -> datetime:
    hint = "; in a query, + is written %2B" if re.search(" [0-9]{2}:[0-9]{2}$", text) else ""
    raise ValueError(f"{shown(text)} is not a time such as 2026-01-31T12:00:00Z{hint}")


def _limit(most: int, default: int) -> Parameter:
    return Parameter(
        name="limit",
        description="The largest number of items of a page.",
        schema={"type": "integer", "minimum": 1, "maximum": most, "default": default},
        parse=_count(most),
        default=default,
    )


def _time(name: str, description: str) -> Parameter:
    return Parameter(name, description, {"type": "string", "format": "date-time"}, _moment)


_NAME: Final = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL: Final = f"(?:[a-z0-9](?:[-a-z0-9]{{0,61}}[a-z0-9])?/)?{_NAME}"
_TERM: Final = (
    f"(?:!?{_LABEL}|{_LABEL} *(?:=|==|!=) *(?:{_NAME})?|{_LABEL} *[<>] *[0-9]{{1,9}}"
    f"|{_LABEL} +(?:in|notin) +\\({_NAME}(?:, *{_NAME})*\\))"
)
"""One requirement of a selector of labels, for the OpenAPI document; `selector.parse` judges."""
_FILTERS: Final = (
    Parameter("namespace", "Only HPAs of this namespace.", {"type": "string"}, str, ""),
    Parameter("kind", "Only objects of this kind.", {"type": "string", "enum": list(KINDS)}, _one_of(KINDS), ""),
    Parameter(
        "search",
        "Only HPAs with this text in namespace/name or in the name of the target, in upper or lower case.",
        {"type": "string"},
        str,
        "",
    ),
)
HPAS: Final[tuple[Parameter, ...]] = (
    Parameter(
        "hpa",
        "Only this HPA, as namespace/name; an Autoscaler as namespace/autoscaler/name. May be repeated: only these."
        " Cheaper than the other filters.",
        {"type": "string", "pattern": "^[^/]+(?:/autoscaler)?/[^/]+$"},
        _key,
        repeats=True,
    ),
    *_FILTERS,
    Parameter(
        "selector",
        "Only HPAs whose labels this selector matches, as kubectl takes it.",
        {"type": "string", "pattern": f"^ *(?:{_TERM}(?: *, *{_TERM})*)? *$"},
        selector.parse,
        selector.EVERYTHING,
    ),
    Parameter(
        "state",
        "Only HPAs in this state. May be repeated: HPAs in any of these states.",
        {"type": "string", "enum": list(STATES)},
        _one_of(STATES),
        repeats=True,
    ),
    Parameter(
        "sort",
        "The order, descending after a minus sign. `name` is namespace, name and kind, which also decide between"
        " equals."
        " `failing` is HPAs that fail first, those with the same group of causes together.",
        {"type": "string", "enum": [*SORTS, *(f"-{name}" for name in SORTS)], "default": "name"},
        _sort,
        "name",
    ),
    _limit(MOST, DEFAULT_LIMIT),
    Parameter(
        "continue",
        "The `continue` of the previous page. It contains the order, so `sort` has no effect with it.",
        {"type": "string", "pattern": f"^{POSITION}$"},
        position_of,
    ),
)
ONE: Final[tuple[Parameter, ...]] = (
    Parameter(
        "kind",
        "The kind of the object.",
        {"type": "string", "enum": list(KINDS), "default": KIND},
        _one_of(KINDS),
        KIND,
    ),
)
HISTORY: Final[tuple[Parameter, ...]] = (
    *ONE,
    _time("since", "Only decisions that were in force at this time or later."),
    _time("until", "Only decisions that were made at this time or earlier."),
    _limit(1000, 100),
    Parameter(
        "traces",
        "Whether entries have their traces.",
        {"type": "boolean", "default": False},
        lambda text: _one_of(("true", "false"))(text) == "true",
        False,
    ),
    Parameter(
        "continue",
        "The `continue` of the previous page.",
        {"type": "string", "pattern": f"^{_ENTRY}$"},
        _entry,
    ),
)
DECISION: Final[tuple[Parameter, ...]] = (
    *ONE,
    _time("at", "The time whose decision is asked for; by default the present, so the last decision."),
)
STREAM: Final[tuple[Parameter, ...]] = (
    *_FILTERS,
    Parameter("name", "Only HPAs of this name.", {"type": "string"}, str, ""),
)

"""Reads JSON-like values into structs with strict decoding, and reports every error at once with advice.

Each error has its field path: unknown fields (with the nearest known one) and values of the wrong type. As in Go, null
equals a missing field. Beyond the API server, a label selector may be text, and a whole number may be written `3.0`.
"""

import difflib
import functools
import re
import types
import typing
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api import selector
from hpad.api.fields import FieldError, forbidden, type_invalid, unknown
from hpad.api.metadata import ObjectMeta
from hpad.api.quantity import Quantity, QuantityError
from hpad.api.selector import LabelSelector
from hpad.api.selector_syntax import Operator

Hint = Callable[[str, str, Any], str | None]
"""Maps (struct, field, value) to why the field is not allowed there and what to write instead, if known."""

_INT32: Final = 2**31
_INT64: Final = 2**63
_INT64_FIELDS: Final = frozenset({"generation", "observedGeneration"})
_METADATA_NOT_READ: Final = frozenset({"selfLink", "deletionGracePeriodSeconds", "finalizers", "managedFields"})
_UNITS: Final = ("n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_IN_FULL: Final = {
    **dict.fromkeys(("milli", "millicore", "millicores", "millicpu", "millicpus"), "m"),
    **{
        f"{name}{suffix}": unit
        for name, unit in (("kilo", "k"), ("mega", "M"), ("giga", "G"), ("tera", "T"))
        for suffix in ("", "byte", "bytes")
    },
    **{
        f"{name}{suffix}": unit
        for name, unit in (("kibi", "Ki"), ("mebi", "Mi"), ("gibi", "Gi"), ("tebi", "Ti"))
        for suffix in ("", "byte", "bytes")
    },
}
_OF_TIME: Final = ("sec", "min", "hour", "day", "week", "month", "year", "milliseconds", "microseconds")
_NUMBER_AND_UNIT: Final = re.compile(r"\s*+([+-]?[0-9.]++)\s*+([A-Za-z%]*+)\s*+")


@functools.cache
def fields_of(struct: type) -> dict[str, Any]:
    """Returns the wire names of a struct's fields, each with its type."""
    hints = typing.get_type_hints(struct)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}


def folded(value: Any, kind: Any) -> Any:
    """The value with the names of its fields in the case the struct spells them, and nulls left out.

    That is how Go's encoding/json reads: an exact name is preferred, else the case is not looked at; and it fails, with
    msgspec.ValidationError here, where a whole number is none of 32 bits.
    """
    kind = _required(kind)
    if _is_struct(kind) and isinstance(value, dict):
        known = fields_of(kind)
        spelled = {name.lower(): name for name in known}
        found: dict[str, Any] = {}
        for key, entry in value.items():
            name = key if key in known else spelled.get(key.lower())
            if name is not None and entry is not None and (name == key or name not in value):
                found[name] = folded(entry, known[name])
        return found
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        inner = typing.get_args(kind)[0]
        return [folded({} if entry is None and _is_struct(inner) else entry, inner) for entry in value]
    if kind is int and isinstance(value, int) and not -_INT32 <= value < _INT32:
        raise msgspec.ValidationError(f"must be a whole number from {-_INT32} to {_INT32 - 1}")
    return value


class Reader:
    """Reads values into what a struct wants; what is wrong gathers in `errors`.

    `sound` turns False once a value had the wrong type: what was read then lacks it and is not worth judging further.
    """

    def __init__(self, hint: Hint) -> None:
        self.errors: list[FieldError] = []
        self.sound = True
        self._hint = hint

    def read(self, value: Any, kind: Any, path: str = "") -> Any:
        """Returns the value without anything `kind` has no field for, ready for `msgspec.convert`."""
        kind = _required(kind)
        if kind is LabelSelector and isinstance(value, str):
            return self._selector(value, path)
        if _is_struct(kind):
            return self._struct(value, kind, path)
        if typing.get_origin(kind) is tuple:
            return self._list(value, typing.get_args(kind)[0], path)
        if typing.get_origin(kind) is dict:
            return self._map(value, path)
        return self._scalar(value, kind, path)

    def _struct(self, value: Any, kind: type, path: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, value, f"must be an object with the fields {', '.join(fields_of(kind))}")
        known = fields_of(kind)
        found = {}
        for name, entry in value.items():
            here = f"{path}.{name}" if path else str(name)
            advice = self._hint(kind.__name__, name, entry)
            if advice is not None:
                self.errors.append(forbidden(here, advice))
            elif name in known:
                if entry is not None and (read := self.read(entry, known[name], here)) is not None:
                    found[name] = read
            elif kind is not ObjectMeta or name not in _METADATA_NOT_READ:
                self.errors.append(unknown(here, _nearest(str(name), known)))
        return found

    def _list(self, value: Any, kind: Any, path: str) -> Any:
        if not isinstance(value, list | tuple):
            return self._wrong(path, value, "must be a list")
        entries = (self.read({} if entry is None else entry, kind, f"{path}[{i}]") for i, entry in enumerate(value))
        return [entry for entry in entries if entry is not None]

    def _map(self, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, value, "must be a map of texts")
        for name, entry in value.items():
            if not isinstance(name, str):
                self._wrong(f"{path}[{name}]", name, f'the key must be text: write "{name}" in quotes')
            elif not isinstance(entry, str):
                self._wrong(f"{path}[{name}]", entry, _text_advice(entry))
        return value

    def _scalar(self, value: Any, kind: Any, path: str) -> Any:
        try:
            return _SCALARS[kind](value, path)
        except _WrongType as error:
            return self._wrong(path, value, str(error))

    def _selector(self, text: str, path: str) -> Any:
        try:
            return selector_object(text)
        except ValueError as error:
            return self._wrong(path, text, f'{error}; a selector reads like "queue=worker_tasks"')

    def _wrong(self, path: str, value: Any, advice: str) -> None:
        self.sound = False
        self.errors.append(type_invalid(path, value, advice))


class _WrongType(ValueError):
    """The value has the wrong type; the message says what would be right."""


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _WrongType(_text_advice(value))
    return value


def _text_advice(value: Any) -> str:
    """Returns what to write instead; only the type of a value that is not a number, which may be large."""
    if not isinstance(value, int | float):
        return "must be text"
    return f'must be text: write "{str(value).lower() if isinstance(value, bool) else value}" in quotes'


def _integer(value: Any, path: str) -> int:
    if isinstance(value, str) and re.fullmatch("[+-]?[0-9]+", value):
        raise _WrongType(f"must be a whole number: write {value} without quotes")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _WrongType("must be a whole number, such as 10")
    limit = _INT64 if path.rpartition(".")[2] in _INT64_FIELDS else _INT32
    if not -limit <= value < limit:
        raise _WrongType(f"must be a whole number from {-limit} to {limit - 1}")
    return value


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise _WrongType("must be true or false")
    return value


def _quantity(value: Any, path: str) -> str:
    try:
        return str(Quantity.parse(value))
    except QuantityError as error:
        raise _WrongType(f"{error}: {_quantity_advice(value)}") from None


def _quantity_advice(value: Any) -> str:
    advice = "a quantity is a number with a unit or none, such as 10, 200m, 1500m or 15Mi"
    match = _NUMBER_AND_UNIT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return advice
    meant = _meant(*match.groups())
    return f'{advice}; did you mean "{meant}"?' if _is_quantity(meant) else advice


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except QuantityError:
        return False
    return True


def _meant(number: str, unit: str) -> str:
    """The quantity that a number with a wrong unit stands for; "" where that would be a guess.

    Another case (1K, 15mi), a letter twice (200mm), a unit of bytes (15MB, 15MiB) and a unit in full (500 millicores)
    are plain. Any other word is what is counted (30 messages), unless it is one of time: no quantity is a time.
    """
    word = unit.lower()
    if word in _IN_FULL:
        return f"{number}{_IN_FULL[word]}"
    of_bytes = len(word) > 1 and word.endswith("b")
    plain = word.removesuffix("b")
    short = plain[:1] if len(set(plain)) == 1 else plain
    for each in _UNITS:
        if each.lower() == short and not (of_bytes and each in ("n", "u", "m")):
            return f"{number}{each}"
    is_counted = len(word) > 3 and "%" not in word and not word.startswith(_OF_TIME)
    return number if is_counted else ""


def _time(value: Any, path: str) -> Any:
    if isinstance(value, datetime):
        return value
    try:
        moment = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise _WrongType('must be a time of RFC 3339, such as "2026-01-02T03:04:05Z"')
    return value


_SCALARS: Final[dict[Any, Callable[[Any, str], Any]]] = {
    str: _text,
    int: _integer,
    bool: _boolean,
    Quantity: _quantity,
    datetime: _time,
}

_EQUAL: Final = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS})
_OBJECT_OPERATORS: Final = {
    Operator.IN: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",
    Operator.EQUALS: "In",
    Operator.DOUBLE_EQUALS: "In",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
}


def selector_object(text: str) -> dict[str, Any]:
    """The API object of a selector's text: `queue=worker_tasks` is `{"matchLabels": {"queue": "worker_tasks"}}`.

    Raises ValueError where the text is no selector, or has `>` or `<`, for which the object has no operator.
    """
    labels: dict[str, str] = {}
    expressions = []
    for term in selector.parse(text).requirements:
        operator = _OBJECT_OPERATORS.get(term.operator)
        if operator is None:
            raise ValueError(f"{term} has no object form")
        if term.operator in _EQUAL and term.key not in labels:
            labels[term.key] = term.values[0]
        else:
            values = {"values": list(term.values)} if term.values else {}
            expressions.append({"key": term.key, "operator": operator, **values})
    return {name: part for name, part in (("matchLabels", labels), ("matchExpressions", expressions)) if part}


def _required(kind: Any) -> Any:
    """Returns the type without its `| None`."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _nearest(name: str, known: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    if not close:
        close = [each for each in known if each.lower() == name.lower()]
    return f'did you mean "{close[0]}"?' if close else f"known here: {', '.join(known)}"

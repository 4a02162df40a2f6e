"""Reads JSON-like values into structs with strict decoding, and reports every error at once with advice.

The errors are unknown fields, with the most similar known one, and values of the wrong type, each with its path. As in
Go, null equals a missing field, and in a list or map an empty object or text. Beyond the API server, a label selector
may be text, and an integer may be `3.0`.
"""

import functools
import re
import types
import typing
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api import selector
from hpad.api.metadata import ObjectMeta
from hpad.api.problem import Problem, forbidden, type_invalid, unknown
from hpad.api.quantity import Quantity, QuantityError
from hpad.api.selector import LabelSelector, SelectorError
from hpad.api.text import closest

Hint = Callable[[str, str, Any], str | None]
"""Maps (struct, field, value) to advice on a field that is not allowed there; None if the field has no advice."""

_INT32: Final = 2**31
_INT64: Final = 2**63
_INT64_FIELDS: Final = frozenset({"generation", "observedGeneration", "failureDurationSeconds"})
_METADATA_NOT_READ: Final = frozenset({"selfLink", "deletionGracePeriodSeconds", "finalizers", "managedFields"})
_OF_FIELDS: Final = frozenset({"spec.options"})
"""Maps whose keys are fields to their users, so that a dot stands before a key and not brackets around it."""
_UNITS: Final = ("n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_NUMBER_AND_UNIT: Final = re.compile(r"\s*+([+-]?[0-9.]++)\s*+([A-Za-z%]*+)\s*+")


@functools.cache
def fields_of(struct: type) -> dict[str, Any]:
    """Returns the wire names of a struct's fields of the API, each with its type; a name of hpad has a slash."""
    hints = typing.get_type_hints(struct)
    known = msgspec.structs.fields(struct)
    return {field.encode_name: hints[field.name] for field in known if "/" not in field.encode_name}


def folded(value: Any, kind: Any) -> Any:
    """Returns the value as Go's encoding/json reads it: with the struct's field names, and without nulls.

    A name in the exact case is preferred to one in another case. Raises msgspec.ValidationError for a whole number that
    does not fit 32 bits.
    """
    kind = required_type(kind)
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


class StrictReader:
    """Reads values for structs and collects the errors in `errors`.

    `sound` is False once a value had the wrong type: the result then lacks it, so that validation would mislead.
    """

    def __init__(self, hint: Hint) -> None:
        self.errors: list[Problem] = []
        self.sound = True
        self._hint = hint

    def read(self, value: Any, kind: Any, path: str = "") -> Any:
        """Returns the value without unknown fields and nulls, ready for `msgspec.convert` to `kind`."""
        kind = required_type(kind)
        if kind is LabelSelector and isinstance(value, str):
            return self._selector(value, path)
        if _is_struct(kind):
            return self._struct(value, kind, path)
        if typing.get_origin(kind) is tuple:
            return self._list(value, typing.get_args(kind)[0], path)
        if typing.get_origin(kind) is dict:
            return self._map(value, path) if typing.get_args(kind)[1] is str else self._object(value, path)
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
        zero: Any = "" if kind is str else {}
        entries = (self.read(zero if entry is None else entry, kind, f"{path}[{i}]") for i, entry in enumerate(value))
        return [entry for entry in entries if entry is not None]

    def _map(self, value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            return self._wrong(path, value, "must be a map of texts")
        for name, entry in value.items():
            here = f"{path}.{name}" if path in _OF_FIELDS else f"{path}[{name}]"
            if not isinstance(name, str):
                self._wrong(here, name, "the key must be text: write it in quotes")
            elif not isinstance(entry, str | None):
                self._wrong(here, entry, _text_advice(entry))
        return {name: "" if entry is None else entry for name, entry in value.items()}

    def _object(self, value: Any, path: str) -> Any:
        return value if isinstance(value, dict) else self._wrong(path, value, "must be an object")

    def _scalar(self, value: Any, kind: Any, path: str) -> Any:
        try:
            return _SCALARS[kind](value, path)
        except _WrongType as error:
            return self._wrong(path, value, str(error))

    def _selector(self, text: str, path: str) -> Any:
        try:
            return msgspec.to_builtins(selector.expressed(selector.parse(text)))
        except SelectorError as error:
            return self._wrong(path, text, f'{error}; a selector has the form "queue=worker_tasks"')

    def _wrong(self, path: str, value: Any, advice: str) -> None:
        self.sound = False
        self.errors.append(type_invalid(path, value, advice))


class _WrongType(ValueError):
    """The value has the wrong type; the message says what to write."""


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _WrongType(_text_advice(value))
    return value


def _text_advice(value: Any) -> str:
    """Returns what to write instead. The value itself is not repeated: in YAML, no, 010 and 1_0 are false, 8 and 10."""
    return "must be text: write it in quotes" if isinstance(value, int | float) else "must be text"


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
    try:
        Quantity.parse(meant)
    except QuantityError:
        return advice
    return f'{advice}; did you mean "{meant}"?'


def _meant(number: str, unit: str) -> str:
    """Returns the quantity that a number with a wrong unit probably means; "" without a good guess.

    Understood are another case (1K, 15mi), a repeated letter (200mm) and a unit of bytes (15MB, 15MiB).
    """
    word = unit.lower()
    of_bytes = len(word) > 1 and word.endswith("b")
    plain = word.removesuffix("b")
    short = plain[:1] if len(set(plain)) == 1 else plain
    guesses = (each for each in _UNITS if each.lower() == short and not (of_bytes and each in ("n", "u", "m")))
    return next((f"{number}{each}" for each in guesses), "")


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


def required_type(kind: Any) -> Any:
    """Returns the type without its `| None`."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return next(each for each in typing.get_args(kind) if each is not type(None))
    return kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _nearest(name: str, known: dict[str, Any]) -> str:
    close = closest(name, tuple(known)) or next((each for each in known if each.lower() == name.lower()), None)
    return f'did you mean "{close}"?' if close else f"known here: {', '.join(known)}"

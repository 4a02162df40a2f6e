"""Validates custom objects by their OpenAPI v3 schema, with the error messages of the API server.

Supports `type`, `minimum`, `maximum`, `enum`, `required`, `properties` and `items`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.lab.cluster import errors

_OF_TYPE: Final = "FieldValueTypeInvalid"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def causes(schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[errors.Cause]:
    """Yields what violates the schema, in its order; kind, apiVersion and metadata of an object are not checked."""
    expected = schema.get("type")
    if expected and not _has_type(expected, value):
        kind = _type_of(value)
        message = f'Invalid value: "{kind}": {path} in body must be of type {expected}: "{kind}"'
        yield errors.Cause(path, _OF_TYPE, message)
        return
    yield from _bounds(schema, value, path)
    if isinstance(value, Mapping):
        for name in schema.get("required") or ():
            if name not in value:
                yield errors.required(_below(path, name))
        for name, each in (schema.get("properties") or {}).items():
            if value.get(name) is not None and (path or name not in ("apiVersion", "kind", "metadata")):
                yield from causes(each, value[name], _below(path, name))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from causes(schema.get("items") or {}, each, f"{path}[{number}]")


def _bounds(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[errors.Cause]:
    least, most, choices = schema.get("minimum"), schema.get("maximum"), schema.get("enum")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and least is not None and value < least:
        yield errors.wrong(path, value, f"{path} in body should be greater than or equal to {least}")
    if is_number and most is not None and value > most:
        yield errors.wrong(path, value, f"{path} in body should be less than or equal to {most}")
    if choices is not None and value not in choices:
        yield errors.unsupported(path, value, choices)


def _has_type(name: str, value: Any) -> bool:
    # a bool is an int in Python, but not in JSON
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

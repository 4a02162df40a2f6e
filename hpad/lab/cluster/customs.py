"""Prunes and validates custom objects by their structural OpenAPI v3 schema, with the messages of the API server.

Defaults, rules in CEL, `oneOf` and formats are ignored.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from hpad.lab.cluster import errors

_OF_TYPE: Final = "FieldValueTypeInvalid"
_TOO_LONG: Final = "FieldValueTooLong"
_TOO_MANY: Final = "FieldValueTooMany"
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_HEAD: Final = ("apiVersion", "kind", "metadata")
_ANY: Final = "x-kubernetes-preserve-unknown-fields"
Schema = Mapping[str, Any]
_UNTYPED: Final[Schema] = {_ANY: True, "nullable": True}
"""The schema of a field that is kept although the schema does not name it."""


def pruned(schema: Schema, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the object as the server stores it: without unknown fields, and without nulls that have no meaning."""
    return dict(_kept(schema, obj, "", lambda path: None))


def unknown(schema: Schema, obj: Mapping[str, Any]) -> list[str]:
    """Returns the paths of the fields that the schema does not have."""
    found: list[str] = []
    _kept(schema, obj, "", found.append)
    return found


def causes(schema: Schema, value: Any, path: str = "") -> Iterator[errors.Cause]:
    """Yields what violates the schema, in its order; kind, apiVersion and metadata of an object are not checked."""
    expected = _expected(schema)
    if expected and not any(_has_type(each, value) for each in expected):
        kind = _type_of(value)
        message = f'Invalid value: "{kind}": {path} in body must be of type {",".join(expected)}: "{kind}"'
        yield errors.Cause(path, _OF_TYPE, message)
        return
    yield from _bounds(schema, value, path)
    if isinstance(value, Mapping):
        yield from _in_object(schema, value, path)
    elif isinstance(value, list):
        yield from _sizes("Items", "items", schema, value, path)
        for number, each in enumerate(value):
            yield from causes(schema.get("items") or {}, each, f"{path}[{number}]")
        yield from _duplicates(schema, value, path)


def _kept(schema: Schema, value: Any, path: str, dropped: Callable[[str], None]) -> Any:
    """Returns the value without what the schema does not have; tells `dropped` the paths."""
    if isinstance(value, list):
        inner = schema.get("items") or _UNTYPED
        return [_kept(inner, each, f"{path}[{number}]", dropped) for number, each in enumerate(value)]
    if not isinstance(value, Mapping):
        return value
    found = {}
    for name, each in value.items():
        where = _below(path, name)
        inner = _inner(schema, name)
        if not path and name in _HEAD:
            found[name] = each
        elif inner is None:
            dropped(where)
        elif each is not None or inner.get("nullable"):
            found[name] = _kept(inner, each, where, dropped)
    return found


def _inner(schema: Schema, name: str) -> Schema | None:
    """Returns the schema of a field; None for one that is pruned."""
    known: Schema | None = (schema.get("properties") or {}).get(name)
    if known is not None:
        return known
    other = schema.get("additionalProperties")
    if isinstance(other, Mapping):
        return other
    return _UNTYPED if other or schema.get(_ANY) else None


def _in_object(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[errors.Cause]:
    yield from _sizes("Properties", "properties", schema, value, path)
    for name in schema.get("required") or ():
        if name not in value:
            yield errors.required(_below(path, name))
    known = schema.get("properties") or {}
    for name, each in known.items():
        if value.get(name) is not None and (path or name not in _HEAD):
            yield from causes(each, value[name], _below(path, name))
    other = schema.get("additionalProperties")
    if isinstance(other, Mapping):
        for name, each in value.items():
            if name not in known and each is not None:
                yield from causes(other, each, _below(path, name))


def _bounds(schema: Schema, value: Any, path: str) -> Iterator[errors.Cause]:
    least, most, choices = schema.get("minimum"), schema.get("maximum"), schema.get("enum")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and least is not None and value < least:
        yield errors.wrong(path, value, f"{path} in body should be greater than or equal to {least}")
    if is_number and most is not None and value > most:
        yield errors.wrong(path, value, f"{path} in body should be less than or equal to {most}")
    if choices is not None and value not in choices:
        yield errors.unsupported(path, value, choices)
    if isinstance(value, str):
        yield from _in_text(schema, value, path)


def _in_text(schema: Schema, value: str, path: str) -> Iterator[errors.Cause]:
    least, most, pattern = schema.get("minLength"), schema.get("maxLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        yield errors.Cause(path, _TOO_LONG, f"Too long: may not be more than {most} bytes")
    if least is not None and len(value) < least:
        yield errors.wrong(path, value, f"{path} in body should be at least {least} chars long")
    # unlike in Go, `$` also matches before a line break at the end
    if pattern is not None and not re.search(re.sub(r"\$$", r"\\Z", pattern), value):
        yield errors.wrong(path, value, f"{path} in body should match '{pattern}'")


def _sizes(suffix: str, unit: str, schema: Schema, value: Any, path: str) -> Iterator[errors.Cause]:
    least, most, size = schema.get(f"min{suffix}"), schema.get(f"max{suffix}"), len(value)
    if most is not None and size > most:
        yield errors.Cause(path, _TOO_MANY, f"Too many: {size}: must have at most {most} items")
    if least is not None and size < least:
        yield errors.wrong(path, size, f"{path} in body should have at least {least} {unit}")


def _duplicates(schema: Schema, values: Sequence[Any], path: str) -> Iterator[errors.Cause]:
    """Yields the elements of a set, or of a list that is a map, that are there already."""
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    seen = set()
    for number, each in enumerate(values if kind in ("set", "map") else ()):
        is_keyed = kind == "map" and isinstance(each, Mapping)
        compared = {key: each[key] for key in keys if key in each} if is_keyed else each
        identity = json.dumps(compared, separators=(",", ":"))
        if identity in seen:
            yield errors.Cause(f"{path}[{number}]", "FieldValueDuplicate", f"Duplicate value: {identity}")
        seen.add(identity)


def _expected(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer", "string"
    return (schema["type"],) if schema.get("type") else ()


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

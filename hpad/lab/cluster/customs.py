"""What the schema of a custom kind refuses: types, bounds, choices and required fields, in the API server's words.

As much of OpenAPI v3 as CustomResourceDefinitions use for a replica count and what stands beside it.
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
    """What does not fit, in the order of the schema; kind, apiVersion and metadata are not its business."""
    wanted = schema.get("type")
    if wanted and not _is_of(wanted, value):
        kind = _named(value)
        message = f'Invalid value: "{kind}": {path} in body must be of type {wanted}: "{kind}"'
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


def _is_of(wanted: str, value: Any) -> bool:
    return isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))


def _named(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    names = {dict: "object", list: "array", str: "string", int: "integer", float: "number"}
    return names.get(type(value), "null")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

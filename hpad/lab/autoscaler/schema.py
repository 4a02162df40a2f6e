"""The structural OpenAPI v3 schema of an Autoscaler, from the types of `hpad.api`.

Descriptions come from descriptions.txt and options.py, bounds and rules from bounds.py. It sets no defaults: hpad
applies those of autoscaling/v2 when it reads.
"""

import types
import typing
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

import msgspec

from hpad.api import limits, strict
from hpad.api.autoscaler import PREFIX, AutoscalerSpec, AutoscalerStatus
from hpad.api.quantity import Quantity
from hpad.engine import annotations
from hpad.lab.autoscaler import options
from hpad.lab.autoscaler.bounds import BOUNDS, Schema

_LONGEST_QUANTITY: Final = 64
_QUANTITY: Final[Schema] = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
_INTEGER: Final[Schema] = {"type": "integer", "format": "int32"}
_ANYTHING: Final[Schema] = {"x-kubernetes-preserve-unknown-fields": True}
_REQUIRED: Final = frozenset(
    {"LabelSelectorRequirement.key", "LabelSelectorRequirement.operator", "OwnQuery.parameters"}
)
"""Fields that the API requires, although their Go types have `omitempty` or a default here."""


def schema() -> Schema:
    """Returns the schema of a whole object."""
    properties = {name: {"type": "string"} for name in ("apiVersion", "kind")}
    parts = {
        "spec": _struct(AutoscalerSpec, is_bounded=True),
        "status": _struct(AutoscalerStatus, is_bounded=False),
    }
    made = _described("Autoscaler", {"type": "object", "required": ["spec"], "properties": {**properties, **parts}})
    made["properties"]["metadata"] = {"type": "object"}  # an API server takes no description of it
    return {"description": DESCRIPTIONS["Autoscaler"], **made}


def _options() -> Schema:
    found: Schema = {}
    for name, longest in annotations.ANNOTATIONS.items():
        option = {"type": "string", "maxLength": longest, "description": options.plain(name)}
        if name in options.CHOICES:
            option = {"type": "string", "enum": list(options.CHOICES[name]), "description": options.plain(name)}
        found[name.removeprefix(PREFIX)] = option
    return {"type": "object", "properties": found}


def _struct(kind: type, *, is_bounded: bool) -> Schema:
    """Returns the schema of a struct. With `is_bounded` every text and quantity has a largest size."""
    name, fields = kind.__name__, strict.fields_of(kind)
    needed = [field for field in fields if _is_required(kind, field) or f"{name}.{field}" in _REQUIRED]
    properties = {field: _value(form, is_bounded=is_bounded) for field, form in fields.items()}
    if "options" in properties:
        properties["options"] = _options()
    # no field of the status is required, so that hpad of another version can write it
    required = {"required": needed} if needed and kind is not AutoscalerStatus else {}
    return _described(name, {"type": "object", **required, "properties": properties})


def _is_required(kind: type, name: str) -> bool:
    """Whether Go has the field without `omitempty`: it is a struct, or a scalar that is always written."""
    form = strict.fields_of(kind)[name]
    [field] = [each for each in msgspec.structs.fields(kind) if each.encode_name == name]
    if not isinstance(form, type):
        return False
    return issubclass(form, msgspec.Struct) or field.default_factory is not msgspec.NODEFAULT


def _value(form: Any, *, is_bounded: bool) -> Schema:
    """Returns the schema of a field of this type."""
    if _is_optional(form):
        [form] = [each for each in typing.get_args(form) if each is not types.NoneType]
    inner = typing.get_args(form)
    if typing.get_origin(form) is tuple:
        return {"type": "array", "items": _value(inner[0], is_bounded=is_bounded)}
    if typing.get_origin(form) is dict:
        return {"type": "object", "additionalProperties": _value(inner[1], is_bounded=is_bounded)}
    if form is str:
        return {"type": "string", **({"maxLength": limits.NAME} if is_bounded else {})}
    if form is Quantity:
        return {**_QUANTITY, **({"maxLength": _LONGEST_QUANTITY} if is_bounded else {})}
    if form is Any:
        return dict(_ANYTHING)
    if form is datetime:
        return {"type": "string", "format": "date-time"}
    return dict(_INTEGER) if form is int else _struct(form, is_bounded=is_bounded)


def _is_optional(form: Any) -> bool:
    return isinstance(form, types.UnionType) or typing.get_origin(form) is typing.Union


def _described(name: str, made: Schema) -> Schema:
    """Adds the description and the bounds of each field, and the rules of the type. Raises KeyError without one."""
    properties = {}
    for field, each in made["properties"].items():
        path = f"{name}.{field}"
        properties[field] = {"description": DESCRIPTIONS[path], **each, **BOUNDS.get(path, {})}
        if "enum" in properties[field]:
            properties[field].pop("maxLength", None)
    return {**made, "properties": properties, **BOUNDS.get(name, {})}


def _read() -> Mapping[str, str]:
    found: dict[str, str] = {}
    name = ""
    for line in (files("hpad.lab.autoscaler") / "descriptions.txt").read_text("utf-8").splitlines():
        if line.startswith("  "):
            found[name] += f" {line.strip()}"
        elif line and not line.startswith("#"):
            name, _, text = line.partition(": ")
            found[name] = text
    return found


DESCRIPTIONS: Final = _read()
"""The description of each field, by TYPE.FIELD, and that of the kind."""

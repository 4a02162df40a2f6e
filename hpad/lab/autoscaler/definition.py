"""The CustomResourceDefinition of the kind Autoscaler, with a structural schema from the types of `hpad.api`.

Descriptions come from descriptions.txt and options.py, bounds and rules from bounds.py. The schema sets no defaults:
hpad applies those of autoscaling/v2 when it reads.
"""

import typing
from collections.abc import Mapping
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

import msgspec

from hpad.api import limits, strict
from hpad.api.autoscaler import PREFIX, AutoscalerSpec, AutoscalerStatus
from hpad.api.hpa import AUTOSCALER, AUTOSCALER_VERSION
from hpad.api.metadata import AUTOSCALER_KEY
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
    form = strict.required_type(form)
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


GROUP: Final = AUTOSCALER_VERSION.partition("/")[0]
_COLUMNS: Final = (
    ("Reference", "string", ".spec.scaleTargetRef.name", 0, "Name of the workload that is scaled."),
    ("Targets", "string", ".status.targets", 0, "Value and target of each metric."),
    ("MinPods", "integer", ".spec.minReplicas", 0, "Smallest number of replicas; none: 1."),
    ("MaxPods", "integer", ".spec.maxReplicas", 0, "Largest number of replicas."),
    ("Replicas", "integer", ".status.currentReplicas", 0, "Number of replicas that hpad found."),
    ("Age", "date", ".metadata.creationTimestamp", 0, ""),
    ("Kind", "string", ".spec.scaleTargetRef.kind", 1, "Kind of the workload that is scaled."),
    ("Decision", "string", ".status.decision", 1, "Last decision in one sentence."),
)
"""Name, type, path, priority (1: with `-o wide` only) and description of each column.

A column has only one path, so kind and name of the target are two columns.
"""


def definition() -> dict[str, Any]:
    """Returns the CustomResourceDefinition as plain JSON."""
    names = {
        "plural": "autoscalers",
        "singular": AUTOSCALER_KEY,
        "kind": AUTOSCALER,
        "listKind": "AutoscalerList",
        "shortNames": ["asr"],
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*each) for each in _COLUMNS],
        "schema": {"openAPIV3Schema": schema()},
    }
    spec = {"group": GROUP, "scope": "Namespaced", "names": names, "preserveUnknownFields": False}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{GROUP}"},
        "spec": {**spec, "versions": [version]},
    }


def _column(name: str, kind: str, path: str, priority: int, description: str) -> dict[str, Any]:
    column: dict[str, Any] = {"name": name, "type": kind, "jsonPath": path}
    if description:
        column["description"] = description
    return {**column, "priority": priority} if priority else column

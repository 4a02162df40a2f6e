"""Checks objects against the Go types of their kinds, with the error messages of the API server."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from hpad.api import quantity
from hpad.lab.cluster import gojson, schemas
from hpad.lab.cluster.schemas import Schema, Type

_TIMES: Final = ("meta.v1.Time", "meta.v1.MicroTime")
_QUANTITY: Final = "pkg.api.resource.Quantity"
_BAD_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_RANGES: Final = {
    "int32": (quantity.MIN_INT32, quantity.MAX_INT32),
    "int64": (-(2**63), 2**63 - 1),
}
_GO: Final = {"boolean": "bool", "double": "float64", "bytes": "[]uint8"}
_NAMED: Final = {
    "autoscaling.v2.HPAScalingPolicy.type": "v2.HPAScalingPolicyType",
    "autoscaling.v2.HPAScalingRules.selectPolicy": "v2.ScalingPolicySelect",
    "autoscaling.v2.HorizontalPodAutoscalerCondition.status": "v1.ConditionStatus",
    "autoscaling.v2.HorizontalPodAutoscalerCondition.type": "v2.HorizontalPodAutoscalerConditionType",
    "autoscaling.v2.MetricSpec.type": "v2.MetricSourceType",
    "autoscaling.v2.MetricStatus.type": "v2.MetricSourceType",
    "autoscaling.v2.MetricTarget.type": "v2.MetricTargetType",
    "autoscaling.v2.ResourceMetricSource.name": "v1.ResourceName",
    "autoscaling.v2.ResourceMetricStatus.name": "v1.ResourceName",
    "autoscaling.v2.ContainerResourceMetricSource.name": "v1.ResourceName",
    "autoscaling.v2.ContainerResourceMetricStatus.name": "v1.ResourceName",
    "meta.v1.LabelSelectorRequirement.operator": "v1.LabelSelectorOperator",
}
"""String fields of an HPA with a named Go type, which error messages contain."""


_Check = Callable[[Any], bool]
"""Tells whether a value, which is not null, has a type and no unknown fields."""
_SCALARS: Final = {"string": str, "bytes": str, "boolean": bool, "object": dict}


def is_sound(schema: Schema, value: Any) -> bool:
    """Returns whether all fields are known and have their types. Quick, since it makes no paths of fields."""
    return _has_sound_fields(schema.name, value)


def _has_sound_fields(schema: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    checks = _checks(schema)
    if not checks.keys() >= value.keys():
        return False
    return all(each is None or checks[name](each) for name, each in value.items())


@functools.cache
def _checks(schema: str) -> Mapping[str, _Check]:
    """Returns the check of each field; made when first needed, since a type may contain itself."""
    return {name: _check(each.type) for name, each in schemas.EVERYTHING[schema].fields.items()}


def _check(kind: Type) -> _Check:
    if kind.around:
        return functools.partial(_has_sound_elements, kind, _check(kind.element))
    if kind.name in _TIMES or kind.name == _QUANTITY:
        return lambda value: next(_special(kind.name, value, ""), None) is None
    schema = schemas.of_type(kind)
    if schema is None:
        return functools.partial(_is_scalar, kind.name)
    return functools.partial(_has_sound_fields, schema.name) if schema.form is None else lambda _: True


def _has_sound_elements(kind: Type, check: _Check, value: Any) -> bool:
    elements = _elements(kind, value)
    if elements is None:
        return False
    if len(kind.around) == len("[]") and kind.name in _SCALARS:
        return {*map(type, elements)} <= {_SCALARS[kind.name], type(None)}
    return all(each is None or check(each) for each in elements)


def fault(schema: Schema, value: Mapping[str, Any]) -> str | None:
    """Returns the error of the first field with a wrong type, in the order of the document; None if all fit."""
    return None if is_sound(schema, value) else next(_faults(schema, value, ""), None)


def unknown(schema: Schema, value: Any) -> list[str]:
    """Returns the paths of unknown fields in an object, as strict decoding reports them."""
    return [] if is_sound(schema, value) else schemas.unknown(schema, value)


def known(schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an object without its unknown fields and without nulls."""
    return dict(value if is_sound(schema, value) and not _has_null(value) else schemas.pruned(schema, value))


def _has_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(each is None or _has_null(each) for each in inner)


def _faults(schema: Schema, value: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, each in value.items():
        known = schema.fields.get(name)
        if known is not None and each is not None:
            where = f"{path}.{name}" if path else name
            named = _NAMED.get(f"{schema.name}.{name}")
            yield from _in_field(known.type, each, f"{_short(schema.name)}.{where}", where, named)


def _in_field(kind: Type, value: Any, field: str, path: str, named: str | None = None) -> Iterator[str]:
    """Yields errors of one value. `field` is Go's name of the field (`Struct.path`), `path` its path in the object."""
    if kind.around:
        elements = _elements(kind, value)
        if elements is None:
            yield _cannot(value, field, _go_type(kind))
        element = kind.element
        for each in elements or ():
            if each is not None:
                yield from _in_field(element, each, field, path)
    elif kind.name in _TIMES or kind.name == _QUANTITY:
        yield from _special(kind.name, value, field)
    elif (schema := schemas.of_type(kind)) is None:
        if not _is_scalar(kind.name, value):
            yield _cannot(value, field, named or _go_type(kind))
    elif schema.form is None:
        found = _faults(schema, value, path) if isinstance(value, Mapping) else [_cannot(value, field, _go_type(kind))]
        yield from found


def _elements(kind: Type, value: Any) -> list[Any] | None:
    """Returns the elements of a list or map; None for a value that is not of this kind."""
    if kind.around.startswith("[]"):
        return value if isinstance(value, list) else None
    return list(value.values()) if isinstance(value, Mapping) else None


def _is_scalar(kind: str, value: Any) -> bool:
    if kind in _RANGES:
        least, most = _RANGES[kind]
        return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
    if kind == "double":
        return isinstance(value, int | float) and not isinstance(value, bool)
    expected = _SCALARS.get(kind)
    return expected is None or isinstance(value, expected)


def _special(kind: str, value: Any, field: str) -> Iterator[str]:
    """Yields errors of times and quantities, whose Go types implement UnmarshalJSON."""
    if kind == _QUANTITY:
        text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            yield _BAD_QUANTITY
            return
        try:
            quantity.parsed(text)
        except quantity.QuantityError as problem:
            yield str(problem)
    elif not isinstance(value, str):
        yield _cannot(value, field, "string")
    elif not _is_time(value):
        yield f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", text) is not None


def _cannot(value: Any, field: str, kind: str) -> str:
    shown = gojson.kind_of(value)
    if shown == "number" and kind in _RANGES:
        least, most = _RANGES[kind]
        if isinstance(value, float) or not least <= value <= most:
            shown += f" {value}"
    return f"json: cannot unmarshal {shown} into Go struct field {field} of type {kind}"


def _go_type(kind: Type) -> str:
    around = kind.around.replace("{}", "map[string]")
    if "." not in kind.name:
        return around + _GO.get(kind.name, kind.name)
    return around + ".".join(kind.name.split(".")[-2:])


def _short(name: str) -> str:
    return name.rpartition(".")[2]

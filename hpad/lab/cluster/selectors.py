"""Label selectors and field selectors of queries and objects."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hpad.api import selector
from hpad.lab.cluster import errors
from hpad.lab.cluster.resources import EVENTS, PODS, Object, Resource

Predicate = Callable[[Object], bool]

_FIELDS = {
    "pods": ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"),
    "events": ("metadata.name", "metadata.namespace", "reason", "type"),
}


def labels(text: str) -> Predicate:
    """Returns the predicate of a `labelSelector`; raises ApiError 400 for an invalid one."""
    try:
        parsed = selector.parse(text)
    except selector.SelectorError as problem:
        raise errors.bad_request(str(problem)) from problem
    return lambda obj: parsed.matches(obj["metadata"].get("labels") or {})


def fields(resource: Resource, text: str) -> Predicate:
    """Returns the predicate of a `fieldSelector`; raises ApiError 400 for a field that the kind does not support."""
    predicates: list[Predicate] = []
    for part in filter(None, text.split(",")):
        key, equal, value = re.split(r"(!=|==|=)", part, maxsplit=1) if "=" in part else (part, "", "")
        if not equal:
            raise errors.bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        if resource == EVENTS:
            key = key.replace("regarding.", "involvedObject.")
        _check_field(resource, key)
        predicates.append(_field_term(key, equal != "!=", value))
    return lambda obj: all(term(obj) for term in predicates)


def _field_term(key: str, is_equal: bool, value: str) -> Predicate:
    return lambda obj: (str(read_path(obj, key) or "") == value) is is_equal


def _check_field(resource: Resource, key: str) -> None:
    known = _FIELDS.get(resource.plural, ("metadata.name", "metadata.namespace"))
    if key in known or (resource.plural == "events" and key.startswith("involvedObject.")):
        return
    listed = ", ".join(f'"{name}"' for name in ("metadata.name", "metadata.namespace"))
    hint = (
        f"field label not supported: {key}"
        if resource == PODS
        else (f'"{key}" is not a known field selector: only {listed}')
    )
    raise errors.bad_request(hint)


def read_path(obj: Any, path: str) -> Any:
    """Returns the value at a dotted path such as `.spec.replicas`, None if it is absent."""
    for part in path.strip(".").split("."):
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(part)
    return obj


def of_object(value: Any) -> selector.Selector:
    """Returns the selector of a string, a map of labels or a LabelSelector; raises ApiError 400."""
    try:
        if isinstance(value, str):
            return selector.parse(value)
        if value and not ({"matchLabels", "matchExpressions"} & value.keys()):
            value = {"matchLabels": value}
        return selector.from_object(msgspec.convert(value or {}, selector.LabelSelector))
    except (selector.SelectorError, msgspec.ValidationError) as problem:
        raise errors.bad_request(str(problem)) from problem


def written(value: Any) -> str:
    """Returns a selector in the string form of `/scale`; a string of a custom resource stays as it is."""
    return value if isinstance(value, str) else str(of_object(value))

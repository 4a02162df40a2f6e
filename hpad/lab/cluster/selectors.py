"""Label and field selectors as they come in query strings and in objects."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpad.lab.cluster import errors
from hpad.lab.cluster.resources import PODS, Object, Resource

Predicate = Callable[[Object], bool]

_SET = re.compile(r"^(?P<key>[^\s!=(),]+)\s+(?P<op>in|notin)\s*\((?P<values>[^()]*)\)$")
_EQUALS = re.compile(r"^(?P<key>[^\s!=(),]+)\s*(?P<op>==|!=|=)\s*(?P<values>[^\s!=(),]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s!=(),]+)$")
_COMMA = re.compile(r",(?![^()]*\))")
_FIELDS = {
    "pods": ("metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"),
    "events": ("metadata.name", "metadata.namespace", "reason", "type"),
}
_OPERATORS = {"In": "in", "NotIn": "notin"}


def labels(text: str) -> Predicate:
    """The predicate of a `labelSelector`; raises ApiError 400 for what cannot be read."""
    terms = [_term(part.strip()) for part in _COMMA.split(text)] if text.strip() else []
    return lambda obj: all(term(obj["metadata"].get("labels") or {}) for term in terms)


def _term(text: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _EXISTS.match(text):
        key, wanted = match["key"], not match["not"]
        return lambda held: (key in held) is wanted
    match = _SET.match(text) or _EQUALS.match(text)
    if match is None:
        raise errors.bad_request(f"found '{text}', expected: !, identifier, or 'end of string'")
    key, values = match["key"], {value.strip() for value in match["values"].split(",")}
    if match["op"] in ("notin", "!="):
        return lambda held: held.get(key) not in values
    return lambda held: held.get(key) in values


def fields(resource: Resource, text: str) -> Predicate:
    """The predicate of a `fieldSelector`; raises ApiError 400 for a field the kind does not index."""
    terms: list[Predicate] = []
    for part in filter(None, text.split(",")):
        key, equal, value = re.split(r"(!=|==|=)", part, maxsplit=1) if "=" in part else (part, "", "")
        if not equal:
            raise errors.bad_request(f"invalid selector: '{part}'; can't understand '{part}'")
        _check_field(resource, key)
        terms.append(_field_term(key, equal != "!=", value))
    return lambda obj: all(term(obj) for term in terms)


def _field_term(key: str, wanted: bool, value: str) -> Predicate:
    return lambda obj: (str(read_path(obj, key) or "") == value) is wanted


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
    """The value at a dotted path such as `.spec.replicas`, or None."""
    for part in path.strip(".").split("."):
        if not isinstance(obj, Mapping):
            return None
        obj = obj.get(part)
    return obj


def written(selector: Any) -> str:
    """A selector in the string form of `/scale`: from a string, a map or a LabelSelector object."""
    if isinstance(selector, str):
        return selector
    if not selector:
        return ""
    is_object = "matchLabels" in selector or "matchExpressions" in selector
    equal: Mapping[str, str] = (selector.get("matchLabels") or {}) if is_object else selector
    terms = [(key, f"{key}={value}") for key, value in equal.items()]
    for expression in (selector.get("matchExpressions") or []) if is_object else []:
        terms.append((expression["key"], _expression(expression)))
    return ",".join(text for _, text in sorted(terms))


def _expression(expression: Mapping[str, Any]) -> str:
    key, operator = expression["key"], expression["operator"]
    if operator == "Exists":
        return str(key)
    if operator == "DoesNotExist":
        return f"!{key}"
    values: Sequence[str] = sorted(expression.get("values") or [])
    return f"{key} {_OPERATORS[operator]} ({','.join(values)})"

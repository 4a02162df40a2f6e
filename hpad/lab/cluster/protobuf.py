"""Reads the protobuf bodies that kubectl's typed clients send (`kubectl autoscale`, `kubectl create`).

Field numbers are those of generated.proto in k8s.io/api/{autoscaling,apps,core} and of the apimachinery's metav1. What
a command line cannot say (status, owner references, managed fields) is left out.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from hpad.lab.cluster import errors
from hpad.lab.cluster.resources import Object

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"

_Schema = Mapping[int, tuple[str, Any]]
"""Field number to JSON name and type: a schema, "text", "int", "nonzero", "quantity", "map",
"int-or-text", or a list of one of these."""

_QUANTITY: _Schema = {1: ("string", "text")}
_EITHER: _Schema = {1: ("isText", "int"), 2: ("int", "int"), 3: ("text", "text")}
_ENTRY: _Schema = {1: ("key", "text"), 2: ("value", "text")}
_METADATA: _Schema = {
    1: ("name", "text"),
    2: ("generateName", "text"),
    3: ("namespace", "text"),
    5: ("uid", "text"),
    6: ("resourceVersion", "text"),
    11: ("labels", "map"),
    12: ("annotations", "map"),
}
_REFERENCE: _Schema = {1: ("kind", "text"), 2: ("name", "text"), 3: ("apiVersion", "text")}
_EXPRESSION: _Schema = {1: ("key", "text"), 2: ("operator", "text"), 3: ("values", ["text"])}
_SELECTOR: _Schema = {1: ("matchLabels", "map"), 2: ("matchExpressions", [_EXPRESSION])}
_IDENTIFIER: _Schema = {1: ("name", "text"), 2: ("selector", _SELECTOR)}
_TARGET: _Schema = {
    1: ("type", "text"),
    2: ("value", "quantity"),
    3: ("averageValue", "quantity"),
    4: ("averageUtilization", "int"),
}
_OBJECT: _Schema = {1: ("describedObject", _REFERENCE), 2: ("target", _TARGET), 3: ("metric", _IDENTIFIER)}
_NAMED: _Schema = {1: ("metric", _IDENTIFIER), 2: ("target", _TARGET)}
_RESOURCE: _Schema = {1: ("name", "text"), 2: ("target", _TARGET)}
_CONTAINER: _Schema = {**_RESOURCE, 3: ("container", "text")}
_METRIC: _Schema = {
    1: ("type", "text"),
    2: ("object", _OBJECT),
    3: ("pods", _NAMED),
    4: ("resource", _RESOURCE),
    5: ("external", _NAMED),
    7: ("containerResource", _CONTAINER),
}
_POLICY: _Schema = {1: ("type", "text"), 2: ("value", "int"), 3: ("periodSeconds", "int")}
_RULES: _Schema = {
    1: ("selectPolicy", "text"),
    2: ("policies", [_POLICY]),
    3: ("stabilizationWindowSeconds", "int"),
    4: ("tolerance", "quantity"),
}
_BEHAVIOR: _Schema = {1: ("scaleUp", _RULES), 2: ("scaleDown", _RULES)}
_SPEC: _Schema = {1: ("scaleTargetRef", _REFERENCE), 2: ("minReplicas", "int"), 3: ("maxReplicas", "int")}
_V2: _Schema = {**_SPEC, 4: ("metrics", [_METRIC]), 5: ("behavior", _BEHAVIOR)}
_V1: _Schema = {**_SPEC, 4: ("targetCPUUtilizationPercentage", "int")}
_PORT: _Schema = {1: ("name", "text"), 2: ("hostPort", "nonzero"), 3: ("containerPort", "int"), 4: ("protocol", "text")}
_VARIABLE: _Schema = {1: ("name", "text"), 2: ("value", "text")}
_CONTAINER_SPEC: _Schema = {
    1: ("name", "text"),
    2: ("image", "text"),
    3: ("command", ["text"]),
    4: ("args", ["text"]),
    6: ("ports", [_PORT]),
    7: ("env", [_VARIABLE]),
}
_TEMPLATE: _Schema = {1: ("metadata", _METADATA), 2: ("spec", {2: ("containers", [_CONTAINER_SPEC])})}
_DEPLOYMENT: _Schema = {1: ("replicas", "int"), 2: ("selector", _SELECTOR), 3: ("template", _TEMPLATE)}
_SERVICE_PORT: _Schema = {
    1: ("name", "text"),
    2: ("protocol", "text"),
    3: ("port", "int"),
    4: ("targetPort", "int-or-text"),
    5: ("nodePort", "nonzero"),
}
_SERVICE: _Schema = {
    1: ("ports", [_SERVICE_PORT]),
    2: ("selector", "map"),
    3: ("clusterIP", "text"),
    4: ("type", "text"),
    10: ("externalName", "text"),
}
_KNOWN: Mapping[tuple[str, str], _Schema] = {
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {1: ("metadata", _METADATA), 2: ("spec", _V1)},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {1: ("metadata", _METADATA), 2: ("spec", _V2)},
    ("apps/v1", "Deployment"): {1: ("metadata", _METADATA), 2: ("spec", _DEPLOYMENT)},
    ("v1", "ConfigMap"): {1: ("metadata", _METADATA), 2: ("data", "map")},
    ("v1", "Namespace"): {1: ("metadata", _METADATA)},
    ("v1", "Service"): {1: ("metadata", _METADATA), 2: ("spec", _SERVICE)},
}
_TYPE_META: _Schema = {1: ("apiVersion", "text"), 2: ("kind", "text")}


def decode(raw: bytes) -> Object:
    """The object of a body; raises ApiError 415 for a kind not known here, 400 for what is no such body."""
    if not raw.startswith(_MAGIC):
        raise errors.bad_request("the body is not in the Kubernetes protobuf format")
    try:
        envelope = dict(_fields(raw[len(_MAGIC) :]))
        header = _message(_TYPE_META, envelope[1])
        schema = _KNOWN.get((header.get("apiVersion", ""), header.get("kind", "")))
        if schema is None:
            raise errors.unsupported_media_type(("application/json", "application/yaml"))
        return {**header, **_message(schema, envelope[2])}
    except (KeyError, IndexError, TypeError, UnicodeDecodeError) as problem:
        raise errors.bad_request(f"the protobuf body cannot be read: {problem}") from problem


def _message(schema: _Schema, raw: bytes) -> Object:
    found: Object = {}
    for number, value in _fields(raw):
        name, kind = schema.get(number, ("", None))
        if kind is None:
            continue
        if isinstance(kind, list):
            found.setdefault(name, []).append(_value(kind[0], value))
        elif kind == "map":
            entry = _message(_ENTRY, value)
            found.setdefault(name, {})[entry.get("key", "")] = entry.get("value", "")
        elif (read := _value(kind, value)) != "" and (kind, read) != ("nonzero", 0):  # Go writes what JSON omits
            found[name] = read
    return found


def _value(kind: Any, value: Any) -> Any:
    if kind in ("int", "nonzero"):
        return value - (1 << 64) if value >= 1 << 63 else value
    if kind == "text":
        return value.decode()
    if kind == "quantity":
        return _message(_QUANTITY, value).get("string", "0")
    if kind == "int-or-text":
        either = _message(_EITHER, value)
        return either.get("text", "") if either.get("isText") else either.get("int", 0)
    return _message(kind, value)


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Field numbers with their raw values: numbers for varints, bytes for what has a length."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        if tag & 7 == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            length, at = _varint(raw, at)
            if at + length > len(raw):
                raise IndexError("it ends too early")
            yield tag >> 3, raw[at : at + length]
            at += length
        else:
            raise TypeError(f"wire type {tag & 7}")


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7

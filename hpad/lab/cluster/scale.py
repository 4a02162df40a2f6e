"""The scale subresource: converts between objects with `ScalePaths` and autoscaling/v1 Scale."""

from typing import Any, Final

from hpad.api import quantity
from hpad.api.text import shown
from hpad.lab.cluster import errors, selectors, strategy
from hpad.lab.cluster.resources import Object, Resource, ScalePaths

_SHOWN = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def read(resource: Resource, obj: Object) -> Object:
    """Returns the Scale of an object; raises ApiError 404 for a kind without the subresource."""
    paths = _paths(resource, obj)
    metadata = {name: obj["metadata"][name] for name in _SHOWN if name in obj["metadata"]}
    replicas = _value(resource, obj, paths.spec, int)
    if replicas is None and resource.is_custom:
        raise errors.internal(f'the spec replicas field "{paths.spec}" does not exist')
    status: Object = {"replicas": _value(resource, obj, paths.status, int) or 0}
    selector = selectors.written(_value(resource, obj, paths.selector, str)) if paths.selector else ""
    if selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def applied(resource: Resource, old: Object, body: Object) -> Object:
    """Returns the object with the replica count of a Scale; raises ApiError 400, 404, 409 or 422.

    It also gets the resourceVersion of the Scale, if any, for the store to compare.
    """
    paths = _paths(resource, old)
    metadata = body.get("metadata") or {}
    strategy.check_identity(resource, metadata, old)
    replicas = (body.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.bad_request(
            f'Scale in version "v1" cannot be handled as a Scale: spec.replicas: {shown(replicas)}'
        )
    _check_range(resource, old["metadata"]["name"], replicas)
    changed = dict(old["metadata"])
    changed["resourceVersion"] = metadata.get("resourceVersion") or changed["resourceVersion"]
    if resource.has_generation and selectors.read_path(old, paths.spec) != replicas:
        changed["generation"] = changed.get("generation", 1) + 1
    return {**_with_value(old, paths.spec.strip(".").split("."), replicas), "metadata": changed}


def placed(resource: Resource, body: Object) -> Object:
    """Returns an object with only the fields that a Scale sets."""
    paths, replicas = _paths(resource, {"metadata": {"name": ""}}), (body.get("spec") or {}).get("replicas")
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return head if replicas is None else _with_value(head, paths.spec.strip(".").split("."), replicas)


def _check_range(resource: Resource, name: str, replicas: int) -> None:
    if replicas > quantity.MAX_INT32:
        what = f"json: cannot unmarshal number {replicas} into Go struct field ScaleSpec.spec.replicas of type int32"
        raise errors.bad_request(f'Scale in version "v1" cannot be handled as a Scale: {what}')
    if replicas < 0 and resource.is_custom:
        cause = errors.wrong(".spec.replicas", replicas, "should be a non-negative integer")
        raise errors.invalid(resource.kind, resource.group, name, [cause])
    if replicas < 0:
        cause = errors.wrong("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid("Scale", "autoscaling", name, [cause])


def _paths(resource: Resource, obj: Object) -> ScalePaths:
    if resource.scale is None and resource.is_custom:
        # the API server reports the object, not the subresource, as not found
        raise errors.not_found(resource, obj["metadata"]["name"])
    if resource.scale is None:
        raise errors.unknown_resource()
    return resource.scale


_IN_GO: Final[dict[type, str]] = {
    str: "string",
    int: "int64",
    float: "float64",
    bool: "bool",
    dict: "map[string]interface {}",
    list: "[]interface {}",
}


def _value(resource: Resource, obj: Object, path: str, kind: type) -> Any:
    """Returns the value at a path, None if it is absent; raises ApiError 500 for one of another type.

    Source: apiextensions-apiserver, customresource/etcd.go: scaleFromCustomResource.
    """
    value = selectors.read_path(obj, path)
    if resource.is_custom and value is not None and type(value) is not kind:
        is_of = f"{shown(value)} is of the type {_IN_GO[type(value)]}"
        raise errors.internal(f"{path} accessor error: {is_of}, expected {_IN_GO[kind]}")
    return value


def _with_value(obj: Object, path: list[str], value: Any) -> Object:
    head, *rest = path
    return {**obj, head: _with_value(obj.get(head) or {}, rest, value) if rest else value}

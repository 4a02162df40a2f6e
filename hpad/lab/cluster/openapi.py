"""As much OpenAPI as lets kubectl find out that the server checks fields itself; no schemas."""

from hpad.lab.cluster.resources import Object, Registry, Resource


def answer(registry: Registry, parts: list[str]) -> Object | None:
    """The body for `/openapi/v3` and what lies under it; None for what is not there."""
    if parts == []:
        return {"paths": {path: {"serverRelativeURL": f"/openapi/v3/{path}"} for path in _roots(registry)}}
    match parts:
        case ["api", version]:
            return _document(registry, "", version)
        case ["apis", group, version]:
            return _document(registry, group, version)
        case _:
            return None


def _roots(registry: Registry) -> list[str]:
    return [
        f"apis/{group}/{version}" if group else f"api/{version}"
        for group, versions in registry.groups().items()
        for version in versions
    ]


def patches(registry: Registry) -> list[tuple[str, dict[str, str]]]:
    """Every path that takes PATCH, with group, version and kind of what lies there."""
    found = []
    for group, versions in registry.groups().items():
        for version in versions:
            found += [_path(resource, version) for resource in registry.in_version(group, version)]
    return found


def _document(registry: Registry, group: str, version: str) -> Object | None:
    paths = {path: _operation(kind) for path, kind in (_path(r, version) for r in registry.in_version(group, version))}
    info = {"title": "Kubernetes", "version": "v1.36.2"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}} if paths else None


def _path(resource: Resource, version: str) -> tuple[str, dict[str, str]]:
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    middle = "/namespaces/{namespace}" if resource.namespaced else ""
    kind = {"group": resource.group, "version": version, "kind": resource.kind}
    return f"{root}{middle}/{resource.plural}/{{name}}", kind


def _operation(kind: dict[str, str]) -> Object:
    queries = [
        {"name": name, "in": "query", "schema": {"type": "string"}}
        for name in ("dryRun", "fieldManager", "fieldValidation")
    ]
    return {"patch": {"parameters": queries, "responses": {}, "x-kubernetes-group-version-kind": kind}}

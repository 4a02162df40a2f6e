"""What the server says it serves: versions, groups and resource lists."""

from collections.abc import Iterator

from hpad.lab.cluster.resources import Object, Registry, Resource

VERSION: Object = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2+hpad-lab",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}
_SUBRESOURCE_VERBS = ["get", "patch", "update"]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def answer(registry: Registry, parts: list[str], *, aggregated: bool, host: str) -> Object | None:
    """The body for `/version`, `/api`, `/apis` and what lies under them; None for an unknown address."""
    match parts:
        case ["version"]:
            return VERSION
        case ["api" | "apis" as root] if aggregated:
            return _aggregated(registry, core=root == "api")
        case ["api"]:
            address = {"clientCIDR": "0.0.0.0/0", "serverAddress": host}
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in registry.groups().items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resource_list(registry, "", version)
        case ["apis", group] if group in registry.groups():
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, registry.groups()[group])}
        case ["apis", group, version]:
            return _resource_list(registry, group, version)
        case _:
            return None


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(registry: Registry, group: str, version: str) -> Object | None:
    found = list(registry.in_version(group, version))
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found[0].group_version(version),
        "resources": [entry for resource in found for entry in _entries(resource)],
    }


def _entries(resource: Resource) -> Iterator[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": "" if resource.virtual else resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    yield entry
    common = {"singularName": "", "namespaced": resource.namespaced}
    if resource.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": _SUBRESOURCE_VERBS}
        yield {"name": f"{resource.plural}/scale", **common, **scale}
    if resource.has_status:
        status = {"kind": resource.kind, "verbs": _SUBRESOURCE_VERBS}
        yield {"name": f"{resource.plural}/status", **common, **status}


def _aggregated(registry: Registry, *, core: bool) -> Object:
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None},
            "versions": [_version(registry, group, version) for version in versions],
        }
        for group, versions in registry.groups().items()
        if (group == "") is core
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _version(registry: Registry, group: str, version: str) -> Object:
    resources = [_aggregated_entry(resource) for resource in registry.in_version(group, version)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_entry(resource: Resource) -> Object:
    own = {"group": "", "version": "", "kind": resource.kind}  # empty: as the list says
    entry: Object = {
        "resource": resource.plural,
        "responseKind": own,
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": "" if resource.virtual else resource.kind.lower(),
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subresources: list[Object] = []
    if resource.scale:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        subresources.append({"subresource": "scale", "responseKind": scale, "verbs": _SUBRESOURCE_VERBS})
    if resource.has_status:
        subresources.append({"subresource": "status", "responseKind": own, "verbs": _SUBRESOURCE_VERBS})
    if subresources:
        entry["subresources"] = subresources
    return entry

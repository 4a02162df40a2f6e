"""Discovery: the served versions, groups and resource lists."""

from collections.abc import Iterator, Mapping
from typing import Final

from hpad.lab.cluster.resources import CUSTOM_ORDER, Object, Registry, Resource

VERSION: Final[Object] = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "go1.27.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
"""The fields of `/version` as recorded from a real server."""
AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SUBRESOURCE_VERBS: Final = ["get", "patch", "update"]
_STREAM: Final = ["create", "get"]
_PROXY: Final = ["create", "delete", "get", "patch", "update"]
_SCALE: Final = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
_BESIDE: Final[dict[str, tuple[Object, list[str]]]] = {
    "attach": ({"kind": "{kind}AttachOptions"}, _STREAM),
    "binding": ({"kind": "Binding"}, ["create"]),
    "eviction": ({"group": "policy", "version": "v1", "kind": "Eviction"}, ["create"]),
    "exec": ({"kind": "{kind}ExecOptions"}, _STREAM),
    "finalize": ({"kind": "{kind}"}, ["update"]),
    "log": ({"kind": "{kind}"}, ["get"]),
    "portforward": ({"kind": "{kind}PortForwardOptions"}, _STREAM),
    "proxy": ({"kind": "{kind}ProxyOptions"}, _PROXY),
    "scale": (_SCALE, _SUBRESOURCE_VERBS),
    "token": ({"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}, ["create"]),
}
"""Kind and verbs of each subresource that takes another kind than its object, or other verbs than GET, PATCH, PUT."""
Elsewhere = Mapping[tuple[str, str], bool]
"""Groups and versions of aggregated API servers, and whether these are available (see `aggregation`)."""


def answer(registry: Registry, parts: list[str], *, aggregated: bool, host: str, elsewhere: Elsewhere) -> Object | None:
    """Returns the body for `/version`, `/api`, `/apis` and the paths below them; None for an unknown path."""
    groups = _groups(registry, elsewhere)
    match parts:
        case ["version"]:
            return VERSION
        case ["api" | "apis" as root] if aggregated:
            chosen = {group: versions for group, versions in groups.items() if (group == "") is (root == "api")}
            return _aggregated(registry, chosen, elsewhere)
        case ["api"]:
            address = {"clientCIDR": "0.0.0.0/0", "serverAddress": host}
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
        case ["apis"]:
            listed = [_group(name, versions) for name, versions in groups.items() if name]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
        case ["api", version]:
            return _resource_list(registry, "", version)
        case ["apis", group] if group in groups:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, groups[group])}
        case ["apis", group, version]:
            return _resource_list(registry, group, version)
        case _:
            return None


def _groups(registry: Registry, elsewhere: Elsewhere) -> dict[str, list[str]]:
    """Returns the groups with their versions. Aggregated groups come last, among them the metrics of this server."""
    found = {group: versions for group, versions in registry.groups().items() if not _is_computed(registry, group)}
    behind: dict[str, list[str]] = {}
    for group, version in elsewhere:
        behind.setdefault(group, []).append(version)
    behind |= {group: versions for group, versions in registry.groups().items() if _is_computed(registry, group)}
    return found | dict(sorted(behind.items()))


def _is_computed(registry: Registry, group: str) -> bool:
    return all(resource.is_measured for resource in registry.in_version(group, registry.groups()[group][0]))


def _group(name: str, versions: list[str]) -> Object:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource_list(registry: Registry, group: str, version: str) -> Object | None:
    found = list(registry.in_version(group, version))
    if not found:
        return None
    return {
        "kind": "APIResourceList",
        **({"apiVersion": "v1"} if group else {}),  # absent in the core group, as in Kubernetes
        "groupVersion": found[0].group_version(version),
        "resources": [entry for resource in found for entry in _entries(resource)],
    }


def _entries(resource: Resource) -> Iterator[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": _singular(resource),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
        **_names(resource),
    }
    if resource.is_stored:
        entry["storageVersionHash"] = resource.storage_version_hash
    yield entry
    for name in _subresources(resource):
        kind, verbs = _beside(resource, name)
        head = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
        yield {**head, **kind, "verbs": verbs}


def _aggregated(registry: Registry, groups: Mapping[str, list[str]], elsewhere: Elsewhere) -> Object:
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_version(registry, group, version, elsewhere) for version in versions],
        }
        for group, versions in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _version(registry: Registry, group: str, version: str, elsewhere: Elsewhere) -> Object:
    """Returns one version of a group. The version of an unavailable server is stale and has no resources here."""
    answers = elsewhere.get((group, version), True)
    found = list(registry.in_version(group, version)) if answers else []
    if any(resource.is_custom for resource in found):
        found.sort(key=lambda resource: resource.plural)
    resources = {"resources": [_aggregated_entry(resource, version) for resource in found]} if found else {}
    return {"version": version, **resources, "freshness": "Current" if answers else "Stale"}


def _aggregated_entry(resource: Resource, version: str) -> Object:
    # a built-in kind leaves group and version empty, which means: those of the list around it
    own = {"group": resource.group, "version": version} if resource.is_custom else {"group": "", "version": ""}
    entry: Object = {
        "resource": resource.plural,
        "responseKind": {**own, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": _singular(resource),
        "verbs": _verbs(resource),
        **_names(resource),
    }
    subresources = []
    for name in _subresources(resource):
        kind, verbs = _beside(resource, name)
        subresources.append({"subresource": name, "responseKind": {**own, **kind}, "verbs": verbs})
    if subresources:
        entry["subresources"] = subresources
    return entry


def _singular(resource: Resource) -> str:
    return "" if resource.is_measured else resource.kind.lower()


def _verbs(resource: Resource) -> list[str]:
    return sorted(resource.verbs, key=CUSTOM_ORDER.index) if resource.is_custom else list(resource.verbs)


def _names(resource: Resource) -> Object:
    named = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {name: value for name, value in named.items() if value}


def _subresources(resource: Resource) -> list[str]:
    """Returns all subresources, sorted by name; those of a custom kind in the order status, scale."""
    ours = [name for name, serves in (("status", resource.has_status), ("scale", resource.scale)) if serves]
    return ours if resource.is_custom else sorted([*ours, *resource.subresources])


def _beside(resource: Resource, name: str) -> tuple[Object, list[str]]:
    """Returns group, version and kind of a subresource, and its verbs."""
    kind, verbs = _BESIDE.get(name, ({"kind": "{kind}"}, _SUBRESOURCE_VERBS))
    return {**kind, "kind": kind["kind"].format(kind=resource.kind)}, verbs

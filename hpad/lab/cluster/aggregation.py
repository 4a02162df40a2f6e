"""API groups of aggregated API servers, registered by APIService objects: listed in discovery, answered with 503.

Requests are not proxied. The cluster itself serves `metrics.k8s.io`; no other APIService has a server.
"""

from typing import Final

from hpad.lab.cluster import pods
from hpad.lab.cluster.resources import API_SERVICES, Registry
from hpad.lab.cluster.store import Store

UNAVAILABLE: Final = "service unavailable\n"
UNREACHABLE: Final = "error trying to reach service: dial tcp: connect: connection refused\n"


def registered(store: Store) -> dict[tuple[str, str], bool]:
    """Maps group and version of each APIService with a service to whether its condition Available is True."""
    found = {}
    for obj in store.objects(API_SERVICES):
        spec = obj.get("spec") or {}
        if spec.get("service"):
            is_available = (pods.condition(obj, "Available") or {}).get("status") == "True"
            found[str(spec.get("group", "")), str(spec.get("version", ""))] = is_available
    return found


def refusal(store: Store, registry: Registry, path: str) -> str | None:
    """Returns the text of the 503 for a request to an aggregated group without a server; None for other requests."""
    root, _, rest = path.strip("/").partition("/")
    group, version, *_ = (*rest.split("/"), "", "")
    if root != "apis" or not version:
        return None
    is_available = registered(store).get((group, version))
    if is_available is None or (is_available and version in registry.groups().get(group, ())):
        return None
    return UNREACHABLE if is_available else UNAVAILABLE

"""API groups of other servers, as APIService objects register them: listed in discovery, asked in vain.

Nothing is proxied: behind `metrics.k8s.io` is the cluster itself, behind any other APIService nobody.
"""

from typing import Final

from hpad.lab.cluster import pods
from hpad.lab.cluster.resources import API_SERVICES, Registry
from hpad.lab.cluster.store import Store

UNAVAILABLE: Final = "service unavailable\n"
UNREACHABLE: Final = "error trying to reach service: dial tcp: connect: connection refused\n"


def registered(store: Store) -> dict[tuple[str, str], bool]:
    """Group and version of every APIService with a service, and whether it is told to be available."""
    found = {}
    for obj in store.objects(API_SERVICES):
        spec = obj.get("spec") or {}
        if spec.get("service"):
            is_available = (pods.condition(obj, "Available") or {}).get("status") == "True"
            found[str(spec.get("group", "")), str(spec.get("version", ""))] = is_available
    return found


def refusal(store: Store, registry: Registry, path: str) -> str | None:
    """The text of the 503 that answers a request for a group that somebody else should serve and does not."""
    root, _, rest = path.strip("/").partition("/")
    group, version, *_ = (*rest.split("/"), "", "")
    if root != "apis" or not version:
        return None
    is_available = registered(store).get((group, version))
    if is_available is None or (is_available and version in registry.groups().get(group, ())):
        return None
    return UNREACHABLE if is_available else UNAVAILABLE

"""Resources of the Kubernetes API and their URL paths."""

import re
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from hpad.api.metadata import Key

_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


class Resource(NamedTuple):
    """A resource of the API; `group` is "" for the core group. Its text is the Kubernetes name, `deployments.apps`."""

    group: str
    version: str
    plural: str
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def root(self) -> str:
        """Returns the path of the version: `/api/v1` or `/apis/apps/v1`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, namespace: str = "") -> str:
        """Returns the path of all objects, or of the objects of one namespace."""
        scope = f"/namespaces/{_escaped(namespace)}" if namespace else ""
        return f"{self.root}{scope}/{self.plural}"

    def object(self, key: Key, subresource: str = "") -> str:
        """Returns the path of one object, or of its subresource."""
        path = f"{self.collection(key.namespace)}/{_escaped(key.name)}"
        return f"{path}/{subresource}" if subresource else path


HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
AUTOSCALERS = Resource("hpad.io", "v1", "autoscalers", "Autoscaler")
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
REPLICATION_CONTROLLERS = Resource("", "v1", "replicationcontrollers", "ReplicationController")


def _escaped(name: str) -> str:
    return name if _PLAIN(name) else quote(name, safe="")  # nearly all names are plain, and quote is slow


def described(method: str, path: str) -> str:
    """Returns a request as in error texts of client-go: `get deployments.apps web`; "" for a path without a resource.

    The client of scales has no group. Source: apimachinery, api/errors/errors.go: NewGenericServerResponse; client-go,
    scale/client.go: NewForConfig.
    """
    parts = [unquote(part) for part in path.strip("/").split("/")]
    roots = {"api": 2, "apis": 3}.get(parts[0], len(parts))
    group, rest = parts[1] if parts[0] == "apis" and len(parts) > 1 else "", parts[roots:]
    if len(rest) >= 3 and rest[0] == "namespaces":
        rest = rest[2:]
    if not rest:
        return ""
    resource = f"{rest[0]}.{group}" if group and rest[2:] != ["scale"] else rest[0]
    return " ".join(filter(None, (method.lower(), resource, *rest[1:2])))

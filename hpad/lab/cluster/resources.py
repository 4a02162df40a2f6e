"""The kinds that the embedded cluster serves, and how a test adds its own."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
"""A Kubernetes object as plain JSON."""

WRITES = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind keeps what `/scale` shows; paths as in a CustomResourceDefinition.

    `selector` may name a string (custom resources), a map (ReplicationController) or a LabelSelector.
    """

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str | None = ".spec.selector"


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API: `str()` of it is `deployments.apps`, or `pods` in the core group.

    `versions` has the preferred one, in which objects are stored, first. `has_generation` is False for
    kinds whose objects carry no metadata.generation (HPAs among them). `virtual` ones are computed.
    """

    group: str
    versions: tuple[str, ...]
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    has_status: bool = True
    scale: ScalePaths | None = None
    has_generation: bool = True
    verbs: tuple[str, ...] = WRITES
    virtual: bool = False

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_custom(self) -> bool:
        """Whether it is one that a CustomResourceDefinition would bring, as its group shows."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def api_version(self) -> str:
        """The apiVersion objects are stored in, e.g. `apps/v1`."""
        return self.group_version(self.versions[0])

    def group_version(self, version: str) -> str:
        """`apps/v1`, or `v1` in the core group; an apiVersion of another group stays."""
        return f"{self.group}/{version}" if self.group and "/" not in version else version


PODS = Resource("", ("v1",), "pods", "Pod", short_names=("po",), categories=("all",))
NAMESPACES = Resource(
    "",
    ("v1",),
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    has_generation=False,
    verbs=tuple(verb for verb in WRITES if verb != "deletecollection"),
)
REPLICATION_CONTROLLERS = Resource(
    "",
    ("v1",),
    "replicationcontrollers",
    "ReplicationController",
    short_names=("rc",),
    categories=("all",),
    scale=ScalePaths(),
)
DEPLOYMENTS = Resource(
    "apps",
    ("v1",),
    "deployments",
    "Deployment",
    short_names=("deploy",),
    categories=("all",),
    scale=ScalePaths(),
)
REPLICA_SETS = Resource(
    "apps", ("v1",), "replicasets", "ReplicaSet", short_names=("rs",), categories=("all",), scale=ScalePaths()
)
STATEFUL_SETS = Resource(
    "apps",
    ("v1",),
    "statefulsets",
    "StatefulSet",
    short_names=("sts",),
    categories=("all",),
    scale=ScalePaths(),
)
HPAS = Resource(
    "autoscaling",
    ("v2", "v1"),
    "horizontalpodautoscalers",
    "HorizontalPodAutoscaler",
    short_names=("hpa",),
    categories=("all",),
    has_generation=False,
)
EVENTS = Resource("", ("v1",), "events", "Event", short_names=("ev",), has_status=False, has_generation=False)
EVENTS_V1 = "events.k8s.io/v1"
NEWER_EVENTS = Resource(
    "events.k8s.io", ("v1",), "events", "Event", short_names=("ev",), has_status=False, has_generation=False
)
"""Events under other names of their fields: a way to EVENTS, nothing is stored as these."""
POD_METRICS = Resource(
    "metrics.k8s.io",
    ("v1beta1",),
    "pods",
    "PodMetrics",
    has_status=False,
    verbs=("get", "list"),
    virtual=True,
)

BUILT_IN = (
    PODS,
    NAMESPACES,
    REPLICATION_CONTROLLERS,
    Resource("", ("v1",), "configmaps", "ConfigMap", short_names=("cm",), has_status=False),
    EVENTS,
    Resource("", ("v1",), "services", "Service", short_names=("svc",), categories=("all",)),
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource("apps", ("v1",), "daemonsets", "DaemonSet", short_names=("ds",), categories=("all",)),
    HPAS,
    Resource("coordination.k8s.io", ("v1",), "leases", "Lease", has_status=False, has_generation=False),
    NEWER_EVENTS,
    POD_METRICS,
)


def stored(resource: Resource, version: str) -> tuple[Resource, str]:
    """As what the objects of a resource are stored, and the version (or, of another group, apiVersion) asked for."""
    return (EVENTS, EVENTS_V1) if resource == NEWER_EVENTS else (resource, version)


class Registry:
    """Which resources are served, by group, version and plural."""

    def __init__(self, resources: Iterable[Resource] = BUILT_IN) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serve one more kind; an entry with the same group, version and plural is replaced."""
        for version in resource.versions:
            self._served[resource.group, version, resource.plural] = resource

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource that holds objects of this apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        for (served_group, served_version, _), resource in self._served.items():
            if (served_group, served_version, resource.kind) == (group, version, kind):
                return resource
        return None

    def in_version(self, group: str, version: str) -> Iterator[Resource]:
        return (r for (g, v, _), r in self._served.items() if (g, v) == (group, version))

    def groups(self) -> dict[str, list[str]]:
        """Each group with its versions, the preferred one first; the core group is `""`."""
        found: dict[str, list[str]] = {}
        for group, version, _ in self._served:
            versions = found.setdefault(group, [])
            if version not in versions:
                versions.append(version)
        return found

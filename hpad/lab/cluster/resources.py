"""The kinds that the embedded cluster serves, and the registry to which tests add their own."""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final, TypeVar

Object = dict[str, Any]
"""A Kubernetes object as plain JSON."""
_Json = TypeVar("_Json")

WRITES: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
CUSTOM_ORDER: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
"""The verbs of a custom kind, in the order of discovery."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Paths to the fields that `/scale` shows, as in a CustomResourceDefinition.

    `selector` leads to a string (custom resources), a map (ReplicationController) or a LabelSelector.
    """

    spec: str = ".spec.replicas"
    status: str = ".status.replicas"
    selector: str | None = ".spec.selector"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API; its text is `deployments.apps`, or `pods` in the core group.

    - `versions`: the preferred one first. It is the storage version unless `stored_as` names another apiVersion.
    - `has_generation`: whether objects have metadata.generation; HPAs do not.
    - `virtual`: objects are computed, not stored.
    - `subresources`: those besides `status` and `scale`.
    - `is_shown_when_deleted`: a DELETE returns the object instead of a Status.
    - `schema`: the OpenAPI v3 schema of a custom kind, with the parts that `customs` supports.
    - `columns`: the additionalPrinterColumns of a custom kind; empty: name and age.
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
    subresources: tuple[str, ...] = ()
    stored_as: str = ""
    is_shown_when_deleted: bool = False
    schema: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    columns: tuple[Mapping[str, Any], ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __eq__(self, other: object) -> bool:
        """Compares group and plural only, so that objects are still found when the definition of their kind changes."""
        return isinstance(other, Resource) and (self.group, self.plural) == (other.group, other.plural)

    def __hash__(self) -> int:
        return hash((self.group, self.plural))

    @property
    def is_custom(self) -> bool:
        """Whether the group is that of a CustomResourceDefinition."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def is_measured(self) -> bool:
        """Whether objects are computed at each read."""
        return self.virtual and "get" in self.verbs

    @property
    def is_stored(self) -> bool:
        """Whether the kind has stored objects; reviews have none."""
        return {"get", "create"} <= set(self.verbs)

    @property
    def api_version(self) -> str:
        """The apiVersion of stored objects, such as `apps/v1`."""
        return self.group_version(self.versions[0])

    @property
    def storage_version_hash(self) -> str:
        """The storageVersionHash of discovery.

        Source: Kubernetes 1.36, apiserver/pkg/endpoints/discovery/storageversionhash.go: StorageVersionHash.
        """
        stored = self.stored_as or f"{self.group}/{self.versions[0]}"
        return base64.b64encode(hashlib.sha256(f"{stored}/{self.kind}".encode()).digest()[:8]).decode()

    def group_version(self, version: str) -> str:
        """Returns the apiVersion of a version (`apps/v1`, `v1` in the core group); returns an apiVersion unchanged."""
        return f"{self.group}/{version}" if self.group and "/" not in version else version


def _read() -> Iterator[Resource]:
    """Yields the built-in kinds of `kinds.txt`."""
    group: str = ""
    versions: tuple[str, ...] = ()
    for line in (files("hpad.lab.cluster") / "kinds.txt").read_text("utf-8").splitlines():
        words = line.partition("#")[0].split()
        if words[:1] == ["group"]:
            group, versions = "" if words[1] == "core" else words[1], tuple(words[2].split(","))
        elif words:
            yield _kind(group, versions, words)


def _kind(group: str, versions: tuple[str, ...], words: list[str]) -> Resource:
    plural, kind, scope, *more = words
    options = dict(word.partition("=")[::2] for word in more)
    listed = {name: tuple(filter(None, options.get(name, "").split(","))) for name in ("verbs", "short", "in", "sub")}
    return Resource(
        group,
        versions,
        plural,
        kind,
        namespaced=scope == "namespaced",
        short_names=listed["short"],
        categories=listed["in"],
        has_status="status" in listed["sub"],
        scale=ScalePaths() if "scale" in listed["sub"] else None,
        has_generation="generation" in options,
        verbs=listed["verbs"] or WRITES,
        subresources=tuple(name for name in listed["sub"] if name not in ("status", "scale")),
        stored_as=options.get("stored", ""),
        is_shown_when_deleted="shown" in options,
    )


_DEFAULT: Final = {(each.group, each.plural): each for each in _read()}
PODS: Final = _DEFAULT["", "pods"]
SERVICES: Final = _DEFAULT["", "services"]
NODES: Final = _DEFAULT["", "nodes"]
NAMESPACES: Final = _DEFAULT["", "namespaces"]
REPLICATION_CONTROLLERS: Final = _DEFAULT["", "replicationcontrollers"]
DEPLOYMENTS: Final = _DEFAULT["apps", "deployments"]
REPLICA_SETS: Final = _DEFAULT["apps", "replicasets"]
STATEFUL_SETS: Final = _DEFAULT["apps", "statefulsets"]
HPAS: Final = _DEFAULT["autoscaling", "horizontalpodautoscalers"]
EVENTS: Final = _DEFAULT["", "events"]
EVENTS_V1: Final = "events.k8s.io/v1"
DEFINITIONS: Final = _DEFAULT["apiextensions.k8s.io", "customresourcedefinitions"]
API_SERVICES: Final = _DEFAULT["apiregistration.k8s.io", "apiservices"]
NEWER_EVENTS: Final = _DEFAULT["events.k8s.io", "events"]
"""A second API for EVENTS with other field names; nothing is stored as this kind."""


def _measured(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(
        "metrics.k8s.io",
        ("v1beta1",),
        plural,
        kind,
        namespaced=namespaced,
        has_status=False,
        has_generation=False,
        verbs=("get", "list"),
        virtual=True,
    )


NODE_METRICS: Final = _measured("nodes", "NodeMetrics", namespaced=False)
POD_METRICS: Final = _measured("pods", "PodMetrics", namespaced=True)

BUILT_IN: Final = (*_DEFAULT.values(), NODE_METRICS, POD_METRICS)


def stored(resource: Resource, version: str) -> tuple[Resource, str]:
    """Returns the resource in which objects are stored, and the requested version, or apiVersion of another group."""
    return (EVENTS, EVENTS_V1) if resource == NEWER_EVENTS else (resource, version)


class Registry:
    """The served resources by group, version and plural."""

    def __init__(self, resources: Iterable[Resource] = BUILT_IN) -> None:
        self._served: dict[tuple[str, str, str], Resource] = {}
        self._groups: dict[str, list[str]] = {}
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        """Serves a kind; replaces an entry with the same group, version and plural."""
        for version in resource.versions:
            self._served[resource.group, version, resource.plural] = resource
        self._groups = {}

    def remove(self, group: str, plural: str) -> None:
        """Stops serving all versions of a kind."""
        self._served = {key: each for key, each in self._served.items() if (key[0], key[2]) != (group, plural)}
        self._groups = {}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """Returns the resource of an apiVersion and kind, None if it is not served."""
        group, _, version = api_version.rpartition("/")
        for (served_group, served_version, _), resource in self._served.items():
            if (served_group, served_version, resource.kind) == (group, version, kind):
                return resource
        return None

    def in_version(self, group: str, version: str) -> Iterator[Resource]:
        return (r for (g, v, _), r in self._served.items() if (g, v) == (group, version))

    def groups(self) -> dict[str, list[str]]:
        """Maps each group to its versions, the preferred one first. The core group is `""`; computed ones are last."""
        if not self._groups:
            for (group, version, _), _ in sorted(self._served.items(), key=lambda entry: entry[1].is_measured):
                versions = self._groups.setdefault(group, [])
                if version not in versions:
                    versions.append(version)
        return self._groups


def copied(value: _Json) -> _Json:
    """Returns a deep copy of plain JSON; `copy.deepcopy`, which takes anything, takes many times as long."""
    if not isinstance(value, dict | list):
        return value
    made: Any = value.copy()
    for where, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, dict | list):  # asked here, since most values are neither
            made[where] = copied(each)
    return made  # type: ignore[no-any-return]

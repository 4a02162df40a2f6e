"""The columns of the tables that `kubectl get` prints, and how each cell is computed.

Names, types and priorities are those of Kubernetes 1.36, pkg/printers/internalversion/printers.go: AddHandlers;
descriptions are empty. Kinds that are missing below have a name and an age.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from hpad.api import autoscaler
from hpad.api import hpa as v2
from hpad.lab.cluster import pods, selectors
from hpad.lab.cluster.resources import Object, Resource

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `-o wide` alone shows a `wide` one. The `cell` of a `timed` one also takes the current time."""

    name: str
    cell: Callable[..., Any]
    wide: bool = False
    type: str = "string"
    timed: bool = False


def of(resource: Resource) -> tuple[Column, ...]:
    """Returns all columns of a kind: its name, the narrow columns of `_COLUMNS`, its age, then the wide ones."""
    if resource.is_custom:
        return (_NAME, *map(_printed, resource.columns)) if resource.columns else (_NAME, _CUSTOM_AGE)
    if resource.kind in _DATED:
        return (_NAME, _CREATED_AT)
    own = _COLUMNS.get(resource.kind, ())
    if resource.kind in _COMPLETE:
        return own
    narrow, wide = (tuple(each for each in own if each.wide is which) for which in (False, True))
    return (_NAME, *narrow, _AGE, *wide)


def age(since: str | None, now: datetime) -> str:
    """Formats the time since a timestamp by `duration`."""
    return "<unknown>" if since is None else duration((now - pods.parsed(since)).total_seconds())


def duration(span: float) -> str:
    """Formats seconds in one or two units, such as 90s, 5m12s, 3h or 2d4h.

    Source: Kubernetes 1.36, apimachinery/pkg/util/duration/duration.go: HumanDuration.
    """
    seconds = max(0, int(span))
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    for unit, name, until_two, until_one, (part, part_name) in (
        (_MINUTE, "m", 10 * _MINUTE, 3 * _HOUR, (1, "s")),
        (_HOUR, "h", 8 * _HOUR, 2 * _DAY, (_MINUTE, "m")),
        (_DAY, "d", 8 * _DAY, 2 * _YEAR, (_HOUR, "h")),
        (_YEAR, "y", 8 * _YEAR, 10**12, (_DAY, "d")),
    ):
        rest = seconds % unit // part
        if seconds < until_one:
            two = seconds < until_two and rest
            return f"{seconds // unit}{name}{f'{rest}{part_name}' if two else ''}"
    return "<unknown>"


def _at(path: str, default: Any = 0) -> Callable[[Object], Any]:
    def cell(obj: Object) -> Any:
        value = selectors.read_path(obj, path)
        return default if value is None else value

    return cell


def _of(part: str) -> Callable[[Object], str]:
    return lambda obj: f"{_at(f'status.{part}')(obj)}/{_at('spec.replicas', 1)(obj)}"


def _statuses(pod: Object) -> list[Object]:
    return list((pod.get("status") or {}).get("containerStatuses") or [])


def _pod_ready(pod: Object) -> str:
    return f"{sum(bool(each.get('ready')) for each in _statuses(pod))}/{len(pod['spec']['containers'])}"


def _pod_status(pod: Object) -> str:
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    for status in _statuses(pod):
        state = status.get("state") or {}
        reason = (state.get("waiting") or state.get("terminated") or {}).get("reason")
        if reason:
            return str(reason)
    return pods.phase(pod)


def _restarts(pod: Object, now: datetime) -> str:
    count = sum(each.get("restartCount", 0) for each in _statuses(pod))
    ended = [selectors.read_path(each, "lastState.terminated.finishedAt") for each in _statuses(pod)]
    last = max(filter(None, ended), default=None)
    return f"{count} ({age(last, now)} ago)" if count and last else str(count)


def _containers(field: str) -> Callable[[Object], str]:
    def cell(obj: Object) -> str:
        containers = selectors.read_path(obj, "spec.template.spec.containers") or []
        return ",".join(str(each.get(field, "")) for each in containers)

    return cell


def _reference(obj: Object) -> str:
    target = obj["spec"]["scaleTargetRef"]
    return f"{target['kind']}/{target['name']}"


def _targets(obj: Object) -> str:
    return autoscaler.targets(v2.from_builtins(obj))


def _minimum(obj: Object) -> str:
    return str(_at("spec.minReplicas", "<unset>")(obj))


def _involved(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _first_seen(event: Object, now: datetime) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _last_seen(event: Object, now: datetime) -> str:
    return age(event.get("lastTimestamp") or event.get("eventTime"), now)


def _source(event: Object) -> str:
    source = event.get("source") or {}
    return ", ".join(filter(None, (source.get("component"), source.get("host"))))


def _ports(service: Object) -> str:
    ports = (service.get("spec") or {}).get("ports") or []
    return ",".join(f"{port.get('port')}/{port.get('protocol', 'TCP')}" for port in ports) or "<none>"


def _pairs(path: str) -> Callable[[Object], str]:
    """Returns a cell that writes the map at `path` as `key=value,...`."""

    def cell(obj: Object) -> str:
        found = selectors.read_path(obj, path) or {}
        return ",".join(f"{key}={value}" for key, value in sorted(found.items())) or "<none>"

    return cell


def _entries(obj: Object) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _pod_selector(obj: Object) -> str:
    return selectors.written(selectors.read_path(obj, "spec.podSelector")) or "<none>"


def _api_service(obj: Object) -> str:
    service = selectors.read_path(obj, "spec.service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _availability(obj: Object) -> str:
    found = pods.condition(obj, "Available")
    if found is None:
        return "Unknown"
    is_fine = found.get("status") == "True"
    return "True" if is_fine else f"{found.get('status')} ({found.get('reason', '')})"


def _node_status(node: Object) -> str:
    found = pods.condition(node, "Ready")
    ready = "Unknown" if found is None else "Ready" if found.get("status") == "True" else "NotReady"
    return f"{ready},SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else ready


def _node_roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(name.removeprefix(prefix) for name in labels if name.startswith(prefix))) or "<none>"


def _node_address(kind: str) -> Callable[[Object], str]:
    def cell(node: Object) -> str:
        addresses = (node.get("status") or {}).get("addresses") or []
        return next((str(each["address"]) for each in addresses if each.get("type") == kind), "<none>")

    return cell


def _role(binding: Object) -> str:
    role = binding.get("roleRef") or {}
    return f"{role.get('kind')}/{role.get('name')}"


def _subjects(kind: str) -> Callable[[Object], str]:
    def cell(binding: Object) -> str:
        named = [each for each in binding.get("subjects") or () if each.get("kind") == kind]
        names = (f"{each['namespace']}/{each['name']}" if each.get("namespace") else each["name"] for each in named)
        return ", ".join(names)

    return cell


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _created(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _selector(obj: Object) -> str:
    return selectors.written((obj.get("spec") or {}).get("selector")) or "<none>"


def _printed(column: Mapping[str, Any]) -> Column:
    """Returns a column of a CustomResourceDefinition: the value at its path, and of a date the time since."""
    name, path, kind = str(column["name"]), str(column["jsonPath"]), str(column.get("type", "string"))
    wide = column.get("priority", 0) > 0

    def since(obj: Object, now: datetime) -> Any:
        found = selectors.read_path(obj, path)
        return None if found is None else age(found, now)

    cell = since if kind == "date" else _at(path, None)
    return Column(name, cell, wide=wide, type=kind, timed=kind == "date")


_NAME = Column("Name", _name)
_AGE = Column("Age", _created, timed=True)
_CUSTOM_AGE = Column("Age", _created, type="date", timed=True)
_CREATED_AT = Column("Created At", lambda obj: obj["metadata"].get("creationTimestamp"), type="date")
_DATED: Final = ("LimitRange", "ClusterRole", "Role", "CSIStorageCapacity", "CustomResourceDefinition")
"""Kinds without printer columns in the API server."""
_COMPLETE: Final = ("Event", "Node")
"""Kinds whose columns below are all, with name and age in their own places."""
_TEMPLATE = (
    Column("Containers", _containers("name"), wide=True),
    Column("Images", _containers("image"), wide=True),
    Column("Selector", _selector, wide=True),
)
_SUBJECTS = (
    Column("Users", _subjects("User"), wide=True),
    Column("Groups", _subjects("Group"), wide=True),
    Column("ServiceAccounts", _subjects("ServiceAccount"), wide=True),
)
_REPLICAS = (
    Column("Desired", _at("spec.replicas"), type="integer"),
    Column("Current", _at("status.replicas"), type="integer"),
    Column("Ready", _at("status.readyReplicas"), type="integer"),
    *_TEMPLATE,
)
_COLUMNS: dict[str, tuple[Column, ...]] = {
    "Pod": (
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", _restarts, timed=True),
        Column("IP", _at("status.podIP", "<none>"), wide=True),
        Column("Node", _at("spec.nodeName", "<none>"), wide=True),
        Column("Nominated Node", _at("status.nominatedNodeName", "<none>"), wide=True),
        Column("Readiness Gates", lambda pod: "<none>", wide=True),
    ),
    "Deployment": (
        Column("Ready", _of("readyReplicas")),
        Column("Up-to-date", _at("status.updatedReplicas")),
        Column("Available", _at("status.availableReplicas")),
        *_TEMPLATE,
    ),
    "ReplicaSet": _REPLICAS,
    "ReplicationController": _REPLICAS,
    "StatefulSet": (Column("Ready", _of("readyReplicas")), *_TEMPLATE[:2]),
    "HorizontalPodAutoscaler": (
        Column("Reference", _reference),
        Column("Targets", _targets),
        Column("MinPods", _minimum),
        Column("MaxPods", _at("spec.maxReplicas")),
        Column("Replicas", _at("status.currentReplicas")),
    ),
    "Node": (
        _NAME,
        Column("Status", _node_status),
        Column("Roles", _node_roles),
        _AGE,
        Column("Version", _at("status.nodeInfo.kubeletVersion", "")),
        Column("Internal-IP", _node_address("InternalIP"), wide=True),
        Column("External-IP", _node_address("ExternalIP"), wide=True),
        Column("OS-Image", _at("status.nodeInfo.osImage", "<unknown>"), wide=True),
        Column("Kernel-Version", _at("status.nodeInfo.kernelVersion", "<unknown>"), wide=True),
        Column("Container-Runtime", _at("status.nodeInfo.containerRuntimeVersion", "<unknown>"), wide=True),
    ),
    "Namespace": (Column("Status", _at("status.phase", "")),),
    "Lease": (Column("Holder", _at("spec.holderIdentity", "")),),
    "Event": (
        Column("Last Seen", _last_seen, timed=True),
        Column("Type", _at("type", "")),
        Column("Reason", _at("reason", "")),
        Column("Object", _involved),
        Column("Subobject", _at("involvedObject.fieldPath", ""), wide=True),
        Column("Source", _source, wide=True),
        Column("Message", _at("message", "")),
        Column("First Seen", _first_seen, wide=True, timed=True),
        Column("Count", _at("count", 1), wide=True),
        Column("Name", _name, wide=True),
    ),
    "ConfigMap": (Column("Data", _entries),),
    "Secret": (Column("Type", _at("type", "")), Column("Data", _entries)),
    "DaemonSet": (
        Column("Desired", _at("status.desiredNumberScheduled"), type="integer"),
        Column("Current", _at("status.currentNumberScheduled"), type="integer"),
        Column("Ready", _at("status.numberReady"), type="integer"),
        Column("Up-to-date", _at("status.updatedNumberScheduled"), type="integer"),
        Column("Available", _at("status.numberAvailable"), type="integer"),
        Column("Node Selector", _pairs("spec.template.spec.nodeSelector")),
        *_TEMPLATE,
    ),
    "APIService": (Column("Service", _api_service), Column("Available", _availability)),
    "ClusterRoleBinding": (Column("Role", _role), *_SUBJECTS),
    "RoleBinding": (Column("Role", _role), *_SUBJECTS),
    "NetworkPolicy": (Column("Pod-Selector", _pod_selector),),
    "PodDisruptionBudget": (
        Column("Min Available", _at("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _at("spec.maxUnavailable", "N/A")),
        Column("Allowed Disruptions", _at("status.disruptionsAllowed"), type="integer"),
    ),
    "StorageClass": (
        Column("Provisioner", _at("provisioner", "")),
        Column("ReclaimPolicy", _at("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", _at("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", _at("allowVolumeExpansion", False)),
    ),
    "Service": (
        Column("Type", _at("spec.type", "ClusterIP")),
        Column("Cluster-IP", _at("spec.clusterIP", "<none>")),
        Column("External-IP", _at("spec.externalName", "<none>")),
        Column("Port(s)", _ports),
        Column("Selector", _pairs("spec.selector"), wide=True),
    ),
}

"""Tables as `kubectl get` asks for them: columns and cells of the kinds served."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hpad.lab.cluster import pods, selectors
from hpad.lab.cluster.resources import Object, Resource
from hpad.model import hpa, targets

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `wide` ones are shown by `-o wide` only."""

    name: str
    cell: Callable[[Object], Any]
    wide: bool = False
    type: str = "string"


def table(
    resource: Resource, objects: Iterable[Object], metadata: Mapping[str, Any], now: datetime, include: str = ""
) -> Object:
    """A meta.k8s.io/v1 Table; `include` is the query's includeObject: Metadata (default), Object or None."""
    columns = _COLUMNS.get(resource.kind, ())
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": dict(metadata),
        "columnDefinitions": [
            _definition("Name", "name"),
            *(_definition(each.name, "", int(each.wide), each.type) for each in columns if not each.wide),
            _definition("Age", ""),
            *(_definition(each.name, "", int(each.wide), each.type) for each in columns if each.wide),
        ],
        "rows": [_row(columns, obj, now, include) for obj in objects],
    }


def _definition(name: str, form: str, priority: int = 0, kind: str = "string") -> Object:
    return {"name": name, "type": kind, "format": form, "description": "", "priority": priority}


def _row(columns: Iterable[Column], obj: Object, now: datetime, include: str) -> Object:
    cells = [
        obj["metadata"]["name"],
        *(each.cell(obj) for each in columns if not each.wide),
        age(obj["metadata"].get("creationTimestamp"), now),
        *(each.cell(obj) for each in columns if each.wide),
    ]
    return {"cells": cells, "object": None if include == "None" else obj if include == "Object" else partial(obj)}


def partial(obj: Object) -> Object:
    """The metadata of an object and nothing else."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def age(since: str | None, now: datetime) -> str:
    """Time since a timestamp, in the one or two units kubectl prints: 90s, 5m12s, 3h, 2d4h."""
    if since is None:
        return "<unknown>"
    seconds = max(0, int((now - pods.parsed(since)).total_seconds()))
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


def _restarts(pod: Object) -> str:
    return str(sum(each.get("restartCount", 0) for each in _statuses(pod)))


def _containers(field: str) -> Callable[[Object], str]:
    def cell(obj: Object) -> str:
        held = selectors.read_path(obj, "spec.template.spec.containers") or []
        return ",".join(str(each.get(field, "")) for each in held)

    return cell


def _reference(obj: Object) -> str:
    target = obj["spec"]["scaleTargetRef"]
    return f"{target['kind']}/{target['name']}"


def _targets(obj: Object) -> str:
    return targets.targets(hpa.from_builtins(obj))


def _minimum(obj: Object) -> str:
    return str(_at("spec.minReplicas", "<unset>")(obj))


def _involved(event: Object) -> str:
    about = event.get("involvedObject") or {}
    return f"{about.get('kind', '').lower()}/{about.get('name', '')}"


def _selector(obj: Object) -> str:
    return selectors.written((obj.get("spec") or {}).get("selector")) or "<none>"


_TEMPLATE = (
    Column("Containers", _containers("name"), wide=True),
    Column("Images", _containers("image"), wide=True),
    Column("Selector", _selector, wide=True),
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
        Column("Restarts", _restarts),
        Column("IP", _at("status.podIP", "<none>"), wide=True),
        Column("Node", _at("spec.nodeName", "<none>"), wide=True),
    ),
    "Deployment": (
        Column("Ready", _of("readyReplicas")),
        Column("Up-to-date", _at("status.updatedReplicas"), type="integer"),
        Column("Available", _at("status.availableReplicas"), type="integer"),
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
    "Namespace": (Column("Status", _at("status.phase", "")),),
    "Lease": (Column("Holder", _at("spec.holderIdentity", "")),),
    "Event": (
        Column("Type", _at("type", "")),
        Column("Reason", _at("reason", "")),
        Column("Object", _involved),
        Column("Message", _at("message", "")),
    ),
}

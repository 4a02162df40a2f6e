"""Pods for the controllers: ownership, activity, readiness, and the order of deletion."""

from datetime import UTC, datetime
from typing import Any

from hpad.api.pod import DELETION_COST, cost_value
from hpad.lab.cluster.resources import PODS, Object, Resource, copied
from hpad.lab.cluster.store import Store


def owner_reference(resource: Resource, owner: Object) -> Object:
    """Returns the reference that makes `owner` the controller of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controlled(store: Store, resource: Resource, uid: str) -> list[Object]:
    """Returns the objects of a resource whose controller has this uid."""
    return [
        obj
        for owned, obj in store.owned(uid)
        if owned == resource
        and any(ref["uid"] == uid and ref.get("controller") for ref in obj["metadata"]["ownerReferences"])
    ]


def owned_pods(store: Store, uid: str) -> list[Object]:
    return controlled(store, PODS, uid)


def from_template(resource: Resource, owner: Object, template: Object) -> Object:
    """Returns a pod from a workload's template, without a name."""
    metadata = copied(template.get("metadata") or {})
    metadata["ownerReferences"] = [owner_reference(resource, owner)]
    spec = copied(template["spec"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_active(pod: Object) -> bool:
    """Returns whether a pod is neither finished nor being deleted."""
    return "deletionTimestamp" not in pod["metadata"] and phase(pod) not in ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def condition(obj: Object, kind: str) -> dict[str, Any] | None:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), None)


def is_ready(pod: Object) -> bool:
    return (condition(pod, "Ready") or {}).get("status") == "True"


def available_in(pod: Object, min_ready_seconds: float, now: datetime) -> float | None:
    """Returns the seconds until a pod counts as available: zero or less if it does, None if it is not ready."""
    if not is_ready(pod):
        return None
    if not min_ready_seconds:
        return 0.0
    since = (condition(pod, "Ready") or {}).get("lastTransitionTime")
    return min_ready_seconds - (now - parsed(since)).total_seconds() if since else 0.0


def parsed(text: str) -> datetime:
    """Parses an RFC 3339 timestamp, to UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def deletion_rank(pod: Object) -> tuple[Any, ...]:
    """Returns the sort key of the pods that a ReplicaSet deletes first.

    Source: Kubernetes 1.36, pkg/controller/controller_utils.go: ActivePodsWithRanks.Less.
    """
    annotations = pod["metadata"].get("annotations") or {}
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    created = parsed(pod["metadata"]["creationTimestamp"])
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        {"Pending": 0, "Unknown": 1}.get(phase(pod), 2),
        is_ready(pod),
        cost_value(annotations.get(DELETION_COST)),
        -max((status.get("restartCount", 0) for status in statuses), default=0),
        -created.timestamp(),
        -int(pod["metadata"]["resourceVersion"]),
    )

"""What the controllers need to know of pods: whose they are, whether they count, which go first."""

import copy
from datetime import UTC, datetime
from typing import Any

from hpad.lab.cluster.resources import PODS, Object, Resource
from hpad.lab.cluster.store import Store


def owner_reference(resource: Resource, owner: Object) -> Object:
    """The reference that makes `owner` the controller of an object."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controlled(store: Store, wanted: Resource, uid: str) -> list[Object]:
    """Objects of a resource whose controller has this uid."""
    return [
        obj
        for resource, obj in store.owned(uid)
        if resource == wanted
        and any(ref["uid"] == uid and ref.get("controller") for ref in obj["metadata"]["ownerReferences"])
    ]


def owned_pods(store: Store, uid: str) -> list[Object]:
    return controlled(store, PODS, uid)


def from_template(resource: Resource, owner: Object, template: Object) -> Object:
    """A pod of a workload, as yet without a name."""
    metadata = copy.deepcopy(template.get("metadata") or {})
    metadata["ownerReferences"] = [owner_reference(resource, owner)]
    spec = copy.deepcopy(template["spec"])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_active(pod: Object) -> bool:
    """Neither finished nor on its way out."""
    return "deletionTimestamp" not in pod["metadata"] and phase(pod) not in ("Succeeded", "Failed")


def phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase") or "Pending")


def condition(obj: Object, kind: str) -> dict[str, Any] | None:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == kind), None)


def is_ready(pod: Object) -> bool:
    return (condition(pod, "Ready") or {}).get("status") == "True"


def available_in(pod: Object, min_ready_seconds: float, now: datetime) -> float | None:
    """Seconds until a pod has been ready for long enough: zero or less when it has, None if not ready."""
    if not is_ready(pod):
        return None
    if not min_ready_seconds:
        return 0.0
    since = (condition(pod, "Ready") or {}).get("lastTransitionTime")
    return min_ready_seconds - (now - parsed(since)).total_seconds() if since else 0.0


def parsed(text: str) -> datetime:
    """The moment of an RFC 3339 timestamp in UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def deletion_rank(pod: Object) -> tuple[Any, ...]:
    """Sort key: whom a ReplicaSet deletes first (unassigned, pending, not ready, more restarts, younger)."""
    annotations = pod["metadata"].get("annotations") or {}
    statuses = (pod.get("status") or {}).get("containerStatuses") or []
    created = parsed(pod["metadata"]["creationTimestamp"])
    return (
        bool((pod.get("spec") or {}).get("nodeName")),
        {"Pending": 0, "Unknown": 1}.get(phase(pod), 2),
        is_ready(pod),
        int(annotations.get("controller.kubernetes.io/pod-deletion-cost", "0")),
        -max((status.get("restartCount", 0) for status in statuses), default=0),
        -created.timestamp(),
        -int(pod["metadata"]["resourceVersion"]),
    )

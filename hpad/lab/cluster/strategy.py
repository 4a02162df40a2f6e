"""Prepares objects for storage: metadata, defaults and validation.

HPAs are validated in full by `admission`; other kinds only as far as needed for clear errors.
"""

import random
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hpad.api.metadata import subdomain_faults
from hpad.api.pod import DELETION_COST, is_valid_cost
from hpad.lab.cluster import defaults, errors, rules, selectors
from hpad.lab.cluster.resources import DEPLOYMENTS, PODS, Object, Resource, copied

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of generated names, without vowels, which could form words."""

_CLIENT_FIELDS = ("labels", "annotations", "finalizers", "ownerReferences")
"""The metadata that `/status` may change as well, except of custom kinds, and except labels of Deployments."""
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def timestamp(moment: datetime) -> str:
    """Formats a time as RFC 3339 in whole seconds, as in metadata and conditions."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def random_suffix(length: int = 5) -> str:
    return "".join(random.choices(SUFFIX, k=length))


def placed(resource: Resource, obj: Object, namespace: str) -> Object:
    """Returns the object with the namespace of its URL; raises ApiError 400 when it names another one."""
    return {**obj, "metadata": _checked_metadata(resource, obj, namespace)}


def prepare_new(resource: Resource, obj: Object, namespace: str, now: datetime) -> Object:
    """Prepares the body of a POST for storage; raises ApiError 400 or 422."""
    obj = copied(obj)
    metadata = _checked_metadata(resource, obj, namespace)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + random_suffix()
    for name in ("resourceVersion", "selfLink", "managedFields", *_SERVER_OWNED):
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = timestamp(now)
    if resource.has_generation:
        metadata["generation"] = 1
    obj["metadata"] = metadata
    if resource.has_status:
        obj.pop("status", None)
    defaults.fill(resource, obj)
    check(resource, obj)
    return obj


def prepare_update(resource: Resource, new: Object, old: Object) -> Object:
    """Prepares the body of a PUT for storage; keeps the old status and the metadata that the server owns.

    Raises ApiError 400 for another name, 409 for another uid, 422 for invalid content.
    """
    new = copied(new)
    before = old["metadata"]
    metadata = _checked_metadata(resource, new, before.get("namespace", ""))
    check_identity(resource, metadata, old)
    for name in _SERVER_OWNED:
        metadata.pop(name, None)
        if name in before:
            metadata[name] = before[name]
    new["metadata"] = metadata
    defaults.fill(resource, new)
    check(resource, new, old)
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    # Kubernetes 1.36, pkg/registry/apps/deployment/strategy.go: PrepareForUpdate counts annotations as spec
    annotated = resource == DEPLOYMENTS and (metadata.get("annotations") or {}) != (before.get("annotations") or {})
    if resource.has_generation and (annotated or new.get("spec") != old.get("spec")):
        metadata["generation"] = before.get("generation", 1) + 1
    return new


def prepare_status(resource: Resource, new: Object, old: Object) -> Object:
    """Prepares the body of a PUT on `/status`: takes its status, and the metadata that clients may change with it."""
    received, before = new.get("metadata") or {}, old["metadata"]
    kept = ("labels",) if resource == DEPLOYMENTS else _CLIENT_FIELDS if resource.is_custom else ()
    changed = [name for name in _CLIENT_FIELDS if name not in kept]
    metadata = {name: value for name, value in before.items() if name not in changed}
    metadata |= {name: copied(received[name]) for name in changed if received.get(name)}
    metadata["resourceVersion"] = received.get("resourceVersion") or before["resourceVersion"]
    result = {**old, "metadata": metadata}
    result["status"] = copied(new.get("status") or {})
    return result


def check_identity(resource: Resource, metadata: Mapping[str, Any], old: Object) -> None:
    """Raises ApiError 400 when the body names another object, 409 when it has another uid."""
    before = old["metadata"]
    if metadata.get("name", before["name"]) != before["name"]:
        raise errors.other_name(metadata["name"], before["name"])
    uid = metadata.get("uid") or before["uid"]
    if uid != before["uid"]:
        raise errors.uid_mismatch(resource, before.get("namespace", ""), before["name"], uid, before["uid"])


def _checked_metadata(resource: Resource, obj: Object, namespace: str) -> dict[str, Any]:
    metadata = dict(obj.get("metadata") or {})
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return metadata
    if metadata.get("namespace") and metadata["namespace"] != namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace
    return metadata


def check(resource: Resource, obj: Object, old: Object | None = None) -> None:
    """Raises ApiError 422 with all invalid fields. `old` is the stored object of an update."""
    name = obj["metadata"].get("name", "")
    causes = [] if rules.names_itself(resource) else list(_name_causes(name))
    causes += rules.causes(resource, obj)
    if resource.kind in defaults.WORKLOADS:
        causes += _workload_causes(obj, old)
    if resource == PODS:
        causes += _pod_causes(obj, old)
    if causes:
        raise errors.invalid(resource.kind, resource.group, name, causes)


def _name_causes(name: str) -> list[errors.Cause]:
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    return [errors.wrong("metadata.name", name, fault) for fault in subdomain_faults(name)]


def _pod_causes(pod: Object, old: Object | None) -> list[errors.Cause]:
    causes = _cost_causes("metadata", pod, old)
    if not (pod.get("spec") or {}).get("containers"):
        causes.append(errors.required("spec.containers"))
    return causes


def _cost_causes(field: str, pod: Object, old: Object | None) -> list[errors.Cause]:
    """Returns the fault of the deletion cost. An invalid one that is stored already may stay.

    Source: Kubernetes 1.36, pkg/api/pod/util.go: AllowInvalidPodDeletionCost.
    """
    text, before = _deletion_cost(pod), None if old is None else _deletion_cost(old)
    if text is None or is_valid_cost(text) or not (before is None or is_valid_cost(before)):
        return []
    return [errors.wrong(f"{field}.annotations[{DELETION_COST}]", text, "must be a 32bit integer")]


def _deletion_cost(pod: Object) -> str | None:
    found: str | None = ((pod.get("metadata") or {}).get("annotations") or {}).get(DELETION_COST)
    return found


def _workload_causes(obj: Object, old: Object | None) -> list[errors.Cause]:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    before = None if old is None else (old.get("spec") or {}).get("template") or {}
    causes = _cost_causes("spec.template", template, before)
    if (spec.get("replicas") or 0) < 0:
        causes.append(errors.wrong("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
    if not spec.get("selector"):
        causes.append(errors.required("spec.selector"))
    elif not selectors.of_object(spec["selector"]).matches((template.get("metadata") or {}).get("labels") or {}):
        labels = (template.get("metadata") or {}).get("labels")
        hint = "`selector` does not match template `labels`"
        causes.append(errors.wrong("spec.template.metadata.labels", labels or {}, hint))
    if not (template.get("spec") or {}).get("containers"):
        causes.append(errors.required("spec.template.spec.containers"))
    return causes

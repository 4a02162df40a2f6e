"""What the server does to an object before it is stored: metadata, defaults, and the few checks it makes.

Only HPAs get the full admission (see `admission`); of other kinds what is needed for a clear error.
"""

import copy
import random
import re
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from hpad.lab.cluster import admission, errors, rules, selectors
from hpad.lab.cluster.resources import HPAS, NAMESPACES, Object, Resource

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: no vowels, so that no words come out."""

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
_WORKLOADS = ("ReplicationController", "Deployment", "ReplicaSet", "StatefulSet")
_DEFAULTS: dict[str, dict[str, Any]] = {
    "Deployment": {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    },
    "StatefulSet": {
        "podManagementPolicy": "OrderedReady",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "revisionHistoryLimit": 10,
    },
}
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, as metadata and conditions carry it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def random_suffix(length: int = 5) -> str:
    return "".join(random.choices(SUFFIX, k=length))


def placed(resource: Resource, obj: Object, namespace: str) -> Object:
    """The object in the namespace of its URL; raises ApiError 400 when it names another one."""
    return {**obj, "metadata": _checked_metadata(resource, obj, namespace)}


def prepare_new(resource: Resource, obj: Object, namespace: str, now: datetime) -> Object:
    """A body of POST made ready to store; raises ApiError 400 or 422."""
    obj = copy.deepcopy(obj)
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
    set_defaults(resource, obj)
    check(resource, obj)
    return obj


def prepare_update(resource: Resource, new: Object, old: Object) -> Object:
    """A body of PUT on the object itself: status and what the server owns stay as they were.

    Raises ApiError 400 for another name, 409 for another uid, 422 for content that makes no sense.
    """
    new = copy.deepcopy(new)
    held = old["metadata"]
    metadata = _checked_metadata(resource, new, held.get("namespace", ""))
    check_identity(resource, metadata, old)
    metadata.pop("managedFields", None)
    for name in _SERVER_OWNED:
        metadata.pop(name, None)
        if name in held:
            metadata[name] = held[name]
    new["metadata"] = metadata
    set_defaults(resource, new)
    check(resource, new)
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    if resource.has_generation and new.get("spec") != old.get("spec"):
        metadata["generation"] = held.get("generation", 1) + 1
    return new


def prepare_status(resource: Resource, new: Object, old: Object) -> Object:
    """A body of PUT on `/status`: only the status is taken from it."""
    check_identity(resource, new.get("metadata") or {}, old)
    version = (new.get("metadata") or {}).get("resourceVersion") or old["metadata"]["resourceVersion"]
    result = {**old, "metadata": {**old["metadata"], "resourceVersion": version}}
    result["status"] = copy.deepcopy(new.get("status") or {})
    return result


def check_identity(resource: Resource, metadata: Mapping[str, Any], old: Object) -> None:
    """Raises ApiError 400 when the body names another object, 409 when it has another uid."""
    held = old["metadata"]
    if metadata.get("name", held["name"]) != held["name"]:
        raise errors.bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({held['name']})"
        )
    uid = metadata.get("uid") or held["uid"]
    if uid != held["uid"]:
        raise errors.uid_mismatch(resource, held.get("namespace", ""), held["name"], uid, held["uid"])


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


def set_defaults(resource: Resource, obj: Object) -> None:
    """The defaults that controllers and kubelet rely on, in place."""
    spec = obj.get("spec")
    if resource.kind == "Pod":
        _default_pod_spec(obj.setdefault("spec", {}))
        obj.setdefault("status", {"phase": "Pending"})
    elif resource.kind in _WORKLOADS and isinstance(spec, dict):
        _default_workload(resource.kind, spec)
        obj.setdefault("status", {"replicas": 0} if resource.kind != "Deployment" else {})
    elif resource == HPAS:
        obj.setdefault("status", admission.empty_status())
    elif resource == NAMESPACES:
        obj.setdefault("status", {"phase": "Active"})


def _default_workload(kind: str, spec: dict[str, Any]) -> None:
    if spec.get("replicas") is None:
        spec["replicas"] = 1
    for name, value in _DEFAULTS.get(kind, {}).items():
        spec.setdefault(name, copy.deepcopy(value))
    if spec.get("template"):
        spec["template"] = _without_nulls(spec["template"])
    template = spec.get("template") or {}
    if kind == "ReplicationController" and not spec.get("selector"):
        spec["selector"] = dict((template.get("metadata") or {}).get("labels") or {})
    if isinstance(template.get("spec"), dict):
        _default_pod_spec(template["spec"])


def _without_nulls(value: Any) -> Any:
    """As the server reads it: null is the same as absent, so that it makes no other template."""
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _default_pod_spec(spec: dict[str, Any]) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for container in spec.get("containers") or []:
        resources = container.setdefault("resources", {})
        if resources.get("limits"):  # a limit without a request is the request too
            requests = resources["limits"] | (resources.get("requests") or {})
            container["resources"] = {**resources, "requests": requests}
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")


def check(resource: Resource, obj: Object) -> None:
    """Raises ApiError 422 that lists every field at fault."""
    name = obj["metadata"].get("name", "")
    causes = [] if rules.names_itself(resource) else list(_name_causes(name))
    causes += rules.causes(resource, obj)
    if resource.kind in _WORKLOADS:
        causes += _workload_causes(obj)
    if resource.kind == "Pod" and not (obj.get("spec") or {}).get("containers"):
        causes.append(errors.required("spec.containers"))
    if causes:
        raise errors.invalid(resource.kind, resource.group, name, causes)


def _name_causes(name: str) -> list[errors.Cause]:
    if not name:
        return [errors.required("metadata.name", "name or generateName is required")]
    if _NAME.match(name) and len(name) <= 253:
        return []
    hint = (
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    )
    return [errors.wrong("metadata.name", name, hint)]


def _workload_causes(obj: Object) -> list[errors.Cause]:
    spec = obj.get("spec") or {}
    template = spec.get("template") or {}
    causes = []
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

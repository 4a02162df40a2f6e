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

from hpad.lab.cluster import defaults, errors, rules, selectors
from hpad.lab.cluster.resources import DEPLOYMENTS, Object, Resource

SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: no vowels, so that no words come out."""

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
_CLIENTS = ("labels", "annotations", "finalizers", "ownerReferences")
"""The metadata that may be written through `/status` as well: not of custom kinds, and no labels of Deployments."""
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
    defaults.fill(resource, obj)
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
    for name in _SERVER_OWNED:
        metadata.pop(name, None)
        if name in held:
            metadata[name] = held[name]
    new["metadata"] = metadata
    defaults.fill(resource, new)
    check(resource, new)
    if resource.has_status:
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    annotated = resource == DEPLOYMENTS and (metadata.get("annotations") or {}) != (held.get("annotations") or {})
    if resource.has_generation and (annotated or new.get("spec") != old.get("spec")):
        metadata["generation"] = held.get("generation", 1) + 1
    return new


def prepare_status(resource: Resource, new: Object, old: Object) -> Object:
    """A body of PUT on `/status`: the status is taken from it, and what of the metadata clients may write."""
    given, held = new.get("metadata") or {}, old["metadata"]
    check_identity(resource, given, old)
    kept = ("labels",) if resource == DEPLOYMENTS else _CLIENTS if resource.is_custom else ()
    metadata = {name: value for name, value in held.items() if name not in _CLIENTS or name in kept}
    metadata |= {name: copy.deepcopy(given[name]) for name in _CLIENTS if given.get(name) and name not in kept}
    metadata["resourceVersion"] = given.get("resourceVersion") or held["resourceVersion"]
    result = {**old, "metadata": metadata}
    result["status"] = copy.deepcopy(new.get("status") or {})
    return result


def check_identity(resource: Resource, metadata: Mapping[str, Any], old: Object) -> None:
    """Raises ApiError 400 when the body names another object, 409 when it has another uid."""
    held = old["metadata"]
    if metadata.get("name", held["name"]) != held["name"]:
        raise errors.other_name(metadata["name"], held["name"])
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


def check(resource: Resource, obj: Object) -> None:
    """Raises ApiError 422 that lists every field at fault."""
    name = obj["metadata"].get("name", "")
    causes = [] if rules.names_itself(resource) else list(_name_causes(name))
    causes += rules.causes(resource, obj)
    if resource.kind in defaults.WORKLOADS:
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

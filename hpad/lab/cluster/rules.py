"""Validates kinds other than HPAs: ConfigMaps, Events, Leases, roles and bindings, and custom kinds."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hpad.lab.cluster import customs, errors, rbac, revisions
from hpad.lab.cluster.resources import EVENTS, Object, Resource

_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_CONFIG_BYTES = 1024 * 1024
_TOO_LONG = "FieldValueTooLong"
_BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def causes(resource: Resource, obj: Object) -> Iterator[errors.Cause]:
    """Yields the errors in the content of an object."""
    if resource.kind == "ConfigMap":
        yield from _config_map(obj)
    elif resource == EVENTS:
        yield from _event(obj)
    elif resource.group == rbac.GROUP:
        yield from _rbac_causes(obj)
    elif resource.schema is not None:
        yield from customs.causes(resource.schema, obj)


def names_itself(resource: Resource) -> bool:
    """Returns whether the general rule for names does not apply: events have any names, roles may contain colons."""
    return resource == EVENTS or resource.group == rbac.GROUP


def check_version(resource: Resource, metadata: Mapping[str, Any], name: str) -> None:
    """Raises ApiError 422 for a PUT without a resourceVersion of a kind that requires it (Leases, custom kinds)."""
    required = resource.kind == "Lease" or resource.is_custom
    if required and not revisions.of_object(metadata.get("resourceVersion")):
        cause = errors.wrong("metadata.resourceVersion", 0, "must be specified for an update")
        raise errors.invalid(resource.plural, resource.group, name, [cause])


def check_schema(resource: Resource, obj: Object) -> None:
    """Raises ApiError 422 for a custom object that violates its schema."""
    if resource.schema is not None:
        _refuse(resource, obj, list(customs.causes(resource.schema, obj)))


def check_status(resource: Resource, obj: Object) -> None:
    """Raises ApiError 422 for a custom object with a status that violates its schema; its spec may.

    Source: Kubernetes 1.36, apiextensions-apiserver/pkg/registry/customresource/validator.go: ValidateStatusUpdate.
    """
    schema = ((resource.schema or {}).get("properties") or {}).get("status") or {}
    _refuse(resource, obj, list(customs.causes(schema, obj["status"], "status")))


def _refuse(resource: Resource, obj: Object, found: Sequence[errors.Cause]) -> None:
    if found:
        raise errors.invalid(resource.kind, resource.group, obj["metadata"]["name"], found)


def check_unchanged(resource: Resource, obj: Object, old: Object) -> None:
    """Raises ApiError 422 for a change of roleRef, which is immutable."""
    bindings = (rbac.ROLE_BINDINGS, rbac.CLUSTER_ROLE_BINDINGS)
    if resource in bindings and obj.get("roleRef") != old.get("roleRef"):
        shown = {name: obj["roleRef"].get(name[0].lower() + name[1:], "") for name in ("Kind", "Name")}
        shown = {"APIGroup": obj["roleRef"].get("apiGroup", ""), **shown}
        cause = errors.wrong("roleRef", shown, "cannot change roleRef")
        raise errors.invalid(old["kind"], rbac.GROUP, old["metadata"]["name"], [cause])


def _config_map(obj: Object) -> Iterator[errors.Cause]:
    size = 0
    for part in ("data", "binaryData"):
        for key, value in (obj.get(part) or {}).items():
            if not _CONFIG_KEY.fullmatch(key):
                yield errors.wrong(f"{part}[{key}]", key, _BAD_KEY)
            size += len(value.encode()) if part == "data" else _decoded(value)
    if size > _CONFIG_BYTES:
        yield errors.Cause("[]", _TOO_LONG, f"Too long: may not be more than {_CONFIG_BYTES} bytes")


def _decoded(value: str) -> int:
    try:
        return len(base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise errors.bad_request("illegal base64 data at input byte 0") from None


def _event(obj: Object) -> Iterator[errors.Cause]:
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    namespace = obj["metadata"].get("namespace", "")
    if about != namespace and (about or namespace != "default"):
        yield errors.wrong("involvedObject.namespace", about, "does not match event.namespace")


# Roles and bindings.
#
# Source: Kubernetes 1.36, pkg/apis/rbac/validation/validation.go.

_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def _rbac_causes(obj: Object) -> Iterator[errors.Cause]:
    """Yields the errors of a Role, a ClusterRole or a binding."""
    name = obj["metadata"].get("name", "")
    yield from (errors.wrong("metadata.name", name, f"may not contain '{sign}'") for sign in "/%" if sign in name)
    if obj["kind"].endswith("Role"):
        for number, rule in enumerate(obj.get("rules") or ()):
            yield from _rule(f"rules[{number}]", rule, namespaced=obj["kind"] == "Role")
    elif obj["kind"].endswith("Binding"):
        kinds = ("Role", "ClusterRole") if obj["kind"] == "RoleBinding" else ("ClusterRole",)
        yield from _reference(obj.get("roleRef") or {}, kinds)
        for number, subject in enumerate(obj.get("subjects") or ()):
            yield from _subject(f"subjects[{number}]", subject, obj["metadata"].get("namespace"))


def _rule(path: str, rule: Mapping[str, Any], *, namespaced: bool) -> Iterator[errors.Cause]:
    if not rule.get("verbs"):
        yield errors.required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            yield errors.wrong(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        elif any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            hint = "rules cannot apply to both regular resources and non-resource URLs"
            yield errors.wrong(f"{path}.nonResourceURLs", urls, hint)
        return
    if not rule.get("apiGroups"):
        yield errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield errors.required(f"{path}.resources", "resource rules must supply at least one resource")


def _reference(role: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[errors.Cause]:
    if role.get("kind") not in kinds:
        yield errors.unsupported("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield errors.required("roleRef.name")


def _subject(path: str, subject: Mapping[str, Any], namespace: str | None) -> Iterator[errors.Cause]:
    if not subject.get("name"):
        yield errors.required(f"{path}.name")
    if subject.get("kind") not in _SUBJECTS:
        yield errors.unsupported(f"{path}.kind", subject.get("kind", ""), _SUBJECTS)
    elif subject["kind"] == "ServiceAccount" and not subject.get("namespace") and not namespace:
        yield errors.required(f"{path}.namespace")

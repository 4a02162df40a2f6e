"""Validates kinds other than HPAs: ConfigMaps, Events, Leases, roles and bindings, and custom kinds."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hpad.lab.cluster import customs, errors, rbac, rbac_checks, revisions
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
        yield from rbac_checks.causes(obj)
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
    found = list(customs.causes(resource.schema, obj)) if resource.schema is not None else []
    if found:
        raise errors.invalid(resource.kind, resource.group, obj["metadata"]["name"], found)


def check_unchanged(resource: Resource, obj: Object, old: Object) -> None:
    """Raises ApiError 422 for a change of an immutable field."""
    if resource in (rbac.ROLE_BINDINGS, rbac.CLUSTER_ROLE_BINDINGS):
        rbac_checks.check_unchanged(obj, old, rbac.GROUP)


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

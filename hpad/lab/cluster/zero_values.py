"""Zero values of the built-in types as Go encodes them; a bookmark carries one beside its resourceVersion."""

import functools
from collections.abc import Mapping
from typing import Any, Final

from hpad.lab.cluster import schemas
from hpad.lab.cluster.resources import Object

_ABSENT: Final = object()
_ZEROS: Final[Mapping[str, Any]] = {"string": "", "boolean": False, "int32": 0, "int64": 0}
_HEAD: Final = ("kind", "apiVersion", "metadata")
_ALWAYS: Final[Mapping[str, Mapping[str, Any]]] = {
    "apps.v1.DeploymentSpec": {"replicas": 0},
    "apps.v1.ReplicaSetSpec": {"replicas": 0},
    "apps.v1.StatefulSetSpec": {"replicas": 0, "serviceName": ""},
    "apps.v1.StatefulSetStatus": {"availableReplicas": 0},
    "autoscaling.v2.HorizontalPodAutoscalerStatus": {"currentMetrics": None},
    "core.v1.Event": {
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    "events.v1.Event": {"deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None},
    "rbac.v1.ClusterRole": {"rules": None},
    "rbac.v1.Role": {"rules": None},
    "rbac.v1.RoleRef": {"apiGroup": ""},
}
"""Fields that are written even when empty, although the schema does not require them."""


@functools.cache
def of(api_version: str, kind: str) -> Object:
    """Returns the fields of a zero object except kind, apiVersion and metadata; empty for custom kinds.

    The result is cached and shared: copy it before changing it.
    """
    schema = schemas.of_kind(api_version, kind)
    blank = {} if schema is None else _blank(schema)
    return {name: value for name, value in blank.items() if name not in _HEAD}


def _blank(schema: schemas.Schema) -> Object:
    values = {name: _value(field) for name, field in schema.fields.items()}
    return {**{name: value for name, value in values.items() if value is not _ABSENT}, **_ALWAYS.get(schema.name, {})}


def _value(field: schemas.Field) -> Any:
    if field.type.around:
        return None if field.is_required else _ABSENT
    schema = schemas.of_type(field.type)
    if schema is None:
        return _ZEROS.get(field.type.name) if field.is_required else _ABSENT
    if "default" not in field.flags:
        return None if field.is_required else _ABSENT
    return _blank(schema) if schema.form is None else None

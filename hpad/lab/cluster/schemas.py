"""The types of the API, read from `schemas.txt`; OpenAPI, decoding and field ownership use them."""

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from hpad.lab.cluster.resources import Object

_PREFIXES: Final = {
    "meta.": "io.k8s.apimachinery.pkg.apis.meta.",
    "pkg.": "io.k8s.apimachinery.pkg.",
    "apiextensions.": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.",
    "apiregistration.": "io.k8s.kube-aggregator.pkg.apis.apiregistration.",
}
_SCALARS: Final = frozenset(("string", "bytes", "boolean", "int32", "int64", "double", "object"))


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a field: `name` is a scalar or a schema; `around` has `[]` for each list and `{}` for each map."""

    name: str
    around: str = ""

    @property
    def element(self) -> "Type":
        """The type of the elements of a list or map."""
        return Type(self.name, self.around[2:])


@dataclass(frozen=True, slots=True)
class Field:
    """One field; `flags` are those of its line in `schemas.txt`."""

    type: Type
    is_required: bool
    flags: Mapping[str, str]

    @property
    def is_embedded(self) -> bool:
        """Whether a zero object has this field."""
        return self.is_required or "default" in self.flags


@dataclass(frozen=True, slots=True)
class Schema:
    """A type with fields; with `form`, a type that OpenAPI renders as that instead."""

    name: str
    kinds: tuple[str, ...] = ()
    is_atomic: bool = False
    form: Mapping[str, Any] | None = None
    fields: dict[str, Field] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """The name in OpenAPI, such as `io.k8s.api.core.v1.Pod`."""
        for short, prefix in _PREFIXES.items():
            if self.name.startswith(short):
                return prefix + self.name[len(short) :]
        return f"io.k8s.api.{self.name}"


def of_kind(api_version: str, kind: str) -> Schema | None:
    """Returns the type of a kind; None for unknown kinds, such as custom ones."""
    group, _, version = api_version.rpartition("/")
    return _BY_KIND.get(f"{group}/{version}/{kind}")


def of_type(kind: Type) -> Schema | None:
    """Returns the schema of a type; None for scalars, lists and maps."""
    return None if kind.around else EVERYTHING.get(kind.name)


def closure(names: Iterator[str]) -> list[str]:
    """Returns the names of these schemas and of all schemas that they refer to, sorted."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in _SCALARS:
            found.add(name)
            waiting += [each.type.name for each in EVERYTHING[name].fields.values()]
    return sorted(found)


def pruned(schema: Schema, value: Any) -> Any:
    """Returns the object as the server decodes it: without unknown fields and nulls."""
    return _kept(schema, value, "", lambda path: None)


def unknown(schema: Schema, value: Any) -> list[str]:
    """Returns the paths of unknown fields in an object, as strict decoding reports them."""
    found: list[str] = []
    _kept(schema, value, "", found.append)
    return found


def _kept(schema: Schema, value: Any, path: str, dropped: Callable[[str], None]) -> Any:
    """Returns the value without unknown fields; tells `dropped` their paths."""
    if schema.form is not None or not isinstance(value, Mapping):
        return value
    found = {}
    for name, each in value.items():
        where = f"{path}.{name}" if path else name
        if name not in schema.fields:
            dropped(where)
        elif each is not None:
            found[name] = _kept_in(schema.fields[name].type, each, where, dropped)
    return found


def _kept_in(kind: Type, value: Any, path: str, dropped: Callable[[str], None]) -> Any:
    if value is None:  # in a list or map, where Go reads the zero value
        value = {} if of_type(kind) else _ZEROS.get(kind.name)
    if kind.around.startswith("[]") and isinstance(value, list):
        return [_kept_in(kind.element, each, f"{path}[{index}]", dropped) for index, each in enumerate(value)]
    if kind.around.startswith("{}") and isinstance(value, Mapping):
        return {name: _kept_in(kind.element, each, f"{path}.{name}", dropped) for name, each in value.items()}
    schema = of_type(kind)
    return value if schema is None else _kept(schema, value, path, dropped)


def _read() -> dict[str, Schema]:
    found: dict[str, Schema] = {}
    schema = Schema("")
    for line in (files("hpad.lab.cluster") / "schemas.txt").read_text("utf-8").splitlines():
        if line.startswith("#") or not line:
            continue
        name, *words = line.strip().split(" ")
        if line[0] == " ":
            schema.fields[name.removesuffix("!")] = _field(name.endswith("!"), *words)
        else:
            found[name] = schema = _schema(name, words)
    return found


def _schema(name: str, words: list[str]) -> Schema:
    flags = [word.partition("=")[::2] for word in words]
    form = [json.loads(value) for flag, value in flags if flag == "form"]
    return Schema(
        name,
        kinds=tuple(value for flag, value in flags if flag == "is"),
        is_atomic=("map", "atomic") in flags,
        form=form[0] if form else None,
    )


def _field(is_required: bool, kind: str, *words: str) -> Field:
    name = kind.lstrip("[]{}")
    return Field(
        Type(name, kind[: len(kind) - len(name)]), is_required, dict(word.partition("=")[::2] for word in words)
    )


EVERYTHING: Final = _read()
"""All schemas by short name, such as `core.v1.Pod`."""
_BY_KIND: Final = {kind: schema for schema in EVERYTHING.values() for kind in schema.kinds}


# Zero values of the built-in types as Go encodes them; a bookmark carries one beside its resourceVersion.

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
def zero_of(api_version: str, kind: str) -> Object:
    """Returns the fields of a zero object except kind, apiVersion and metadata; empty for custom kinds.

    The result is cached and shared: copy it before changing it.
    """
    schema = of_kind(api_version, kind)
    blank = {} if schema is None else _blank(schema)
    return {name: value for name, value in blank.items() if name not in _HEAD}


def _blank(schema: Schema) -> Object:
    values = {name: _value(field) for name, field in schema.fields.items()}
    return {**{name: value for name, value in values.items() if value is not _ABSENT}, **_ALWAYS.get(schema.name, {})}


def _value(field: Field) -> Any:
    if field.type.around:
        return None if field.is_required else _ABSENT
    schema = of_type(field.type)
    if schema is None:
        return _ZEROS.get(field.type.name) if field.is_required else _ABSENT
    if "default" not in field.flags:
        return None if field.is_required else _ABSENT
    return _blank(schema) if schema.form is None else None

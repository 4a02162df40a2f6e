"""The types of the API, as `schemas.txt` tells them: what OpenAPI shows, and what field ownership goes by."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

_PREFIXES: Final = {
    "meta.": "io.k8s.apimachinery.pkg.apis.meta.",
    "pkg.": "io.k8s.apimachinery.pkg.",
    "apiextensions.": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.",
    "apiregistration.": "io.k8s.kube-aggregator.pkg.apis.apiregistration.",
}
_SCALARS: Final = frozenset(("string", "bytes", "boolean", "int32", "int64", "double", "object"))


@dataclass(frozen=True, slots=True)
class Type:
    """What a field holds: `name` of a scalar or a schema, in a list (`[]`) or map (`{}`) of it as `around` says."""

    name: str
    around: str = ""

    @property
    def element(self) -> "Type":
        """What a list or map holds."""
        return Type(self.name, self.around[2:])


@dataclass(frozen=True, slots=True)
class Field:
    """One field. `flags` are those of its line."""

    type: Type
    is_required: bool
    flags: Mapping[str, str]

    @property
    def is_embedded(self) -> bool:
        """Whether even an object that says nothing has it."""
        return self.is_required or "default" in self.flags


@dataclass(frozen=True, slots=True)
class Schema:
    """A type with fields, or of another form."""

    name: str
    kinds: tuple[str, ...] = ()
    is_atomic: bool = False
    form: Mapping[str, Any] | None = None
    fields: dict[str, Field] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        """As OpenAPI has it: `io.k8s.api.core.v1.Pod`."""
        for short, prefix in _PREFIXES.items():
            if self.name.startswith(short):
                return prefix + self.name[len(short) :]
        return f"io.k8s.api.{self.name}"


def of_kind(api_version: str, kind: str) -> Schema | None:
    """The type of a kind; None for kinds without a known one, custom kinds among them."""
    group, _, version = api_version.rpartition("/")
    return _BY_KIND.get(f"{group}/{version}/{kind}")


def of_type(kind: Type) -> Schema | None:
    """The type of a field that holds neither a scalar nor a list nor a map."""
    return None if kind.around else EVERYTHING.get(kind.name)


def closure(names: Iterator[str]) -> list[str]:
    """These schemas and all that they refer to, by name."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in _SCALARS:
            found.add(name)
            waiting += [each.type.name for each in EVERYTHING[name].fields.values()]
    return sorted(found)


def unknown(schema: Schema, value: Any, path: str = "") -> Iterator[str]:
    """Paths of the fields in an object that its type does not have, as strict decoding tells them."""
    if schema.form is not None or not isinstance(value, Mapping):
        return
    for name, each in value.items():
        where = f"{path}.{name}" if path else name
        if name not in schema.fields:
            yield where
        else:
            yield from _unknown_in(schema.fields[name].type, each, where)


def _unknown_in(kind: Type, value: Any, path: str) -> Iterator[str]:
    if kind.around.startswith("[]"):
        for index, each in enumerate(value if isinstance(value, list) else ()):
            yield from _unknown_in(kind.element, each, f"{path}[{index}]")
    elif kind.around:
        for name, each in value.items() if isinstance(value, Mapping) else ():
            yield from _unknown_in(kind.element, each, f"{path}.{name}")
    elif (schema := of_type(kind)) is not None:
        yield from unknown(schema, value, path)


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
"""Every schema by its short name, e.g. `core.v1.Pod`."""
_BY_KIND: Final = {kind: schema for schema in EVERYTHING.values() for kind in schema.kinds}

"""Sets of fields for server-side apply (KEP-555): changed fields, set fields, and their encoding as FieldsV1.

A field is a path of steps as FieldsV1 writes them: `f:spec`, `f:containers`, `k:{"name":"web"}`, `f:image`. The schema
decides which maps and lists are granular and which are atomic. In an unknown type maps are granular, lists atomic.
"""

import functools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hpad.lab.cluster import schemas
from hpad.lab.cluster.schemas import Field, Schema

Path = tuple[str, ...]
Tree = dict[str, Any]
"""A set in the form of FieldsV1: a node is a member if it is empty or contains `.`."""
ABSENT: Final = object()
_UNTYPED: Final = None
_SERVER_FIELDS: Final = frozenset(
    ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
)
_PLAIN: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class Changes:
    """The difference of two states: `touched` fields are new or have another value, `removed` ones are absent."""

    touched: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.touched or self.removed)


def compared(old: Mapping[str, Any] | None, new: Mapping[str, Any], subresource: str) -> Changes:
    """Compares two states of an object in one API version; `old` is None for a new object."""
    schema = schemas.of_kind(str(new.get("apiVersion", "")), str(new.get("kind", "")))
    before = _empty(schema.name) if old is None and schema is not None else old or {}
    changes = Changes()
    was, now = ({"metadata": {}, **_ownable(each, subresource)} for each in (before, new))
    _compare((), was, now, _root(schema), changes)
    return changes


def set_by(config: Mapping[str, Any], subresource: str = "") -> set[Path]:
    """Returns the fields that an applied configuration sets."""
    schema = schemas.of_kind(str(config.get("apiVersion", "")), str(config.get("kind", "")))
    return set(_leaves((), _ownable(config, subresource), _root(schema)))


def without(obj: Mapping[str, Any], dropped: set[Path]) -> dict[str, Any]:
    """Returns a copy without these fields, containers that become empty, and list elements that lose their key."""
    schema = schemas.of_kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    return dict(_without((), obj, _root(schema), dropped))


def tree(members: set[Path]) -> Tree:
    """Encodes a set as FieldsV1."""
    root: Tree = {}
    for path in sorted(members):  # a parent sorts before its children, and must be seen first to get its `.`
        node = root
        for depth, step in enumerate(path):
            if not node and path[:depth] in members:
                node["."] = {}
            node = node.setdefault(step, {})
    return root


def paths(node: Tree, path: Path = ()) -> Iterator[Path]:
    """Yields the members of a FieldsV1."""
    for step, below in node.items():
        if step == ".":
            yield path
        elif below:
            yield from paths(below, (*path, step))
        else:
            yield (*path, step)


def has(node: Tree, path: Path) -> bool:
    """Returns whether a FieldsV1 contains the path as a member."""
    for step in path:
        if step not in node:
            return False
        node = node[step]
    return not node or "." in node


def shown(path: Path) -> str:
    """Formats a path as in the message of a conflict: `.spec.containers[name="web"].image`."""
    return "".join(_step(step) for step in path)


def _step(step: str) -> str:
    kind, _, content = step.partition(":")
    if kind == "f":
        return f".{content}"
    if kind == "v":
        return f"[={content}]"
    return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in json.loads(content).items()) + "]"


def _ownable(obj: Mapping[str, Any], subresource: str) -> dict[str, Any]:
    """Returns the fields that can have managers: neither set by the server nor ignored by this kind of write."""
    ignored = ("apiVersion", "kind", "spec" if subresource == "status" else "status")
    kept = {name: value for name, value in obj.items() if name not in ignored}
    metadata = {name: value for name, value in (kept.pop("metadata", None) or {}).items() if name not in _SERVER_FIELDS}
    return {**kept, "metadata": metadata} if metadata else kept


def _root(schema: Schema | None) -> Field | None:
    return None if schema is None else Field(schemas.Type(schema.name), True, _PLAIN)


@functools.cache
def _empty(schema: str) -> Mapping[str, Any]:
    """Returns a zero object: fields that are Go structs, not pointers, exist even when they were not sent."""
    found: dict[str, Any] = {}
    for name, each in schemas.EVERYTHING[schema].fields.items():
        if not each.is_embedded:
            continue
        default = json.loads(each.flags.get("default", "null"))
        inner = schemas.of_type(each.type)
        if default == {}:
            default = _empty(inner.name) if inner is not None and inner.form is None else None
        found[name] = default
    return found


def _children(value: Any, kind: Field | None) -> dict[str, tuple[Any, Field | None]] | None:
    """Returns the fields inside a granular value and their types, by step; None for an atomic value."""
    if isinstance(value, dict):
        return _parts(value, kind)
    if isinstance(value, list) and kind is not _UNTYPED and kind.type.around.startswith("[]"):
        element = Field(kind.type.element, False, _PLAIN)
        if "keys" in kind.flags:
            keys = kind.flags["keys"].split(",")
            return {_key(each, keys, element): (each, element) for each in value if isinstance(each, Mapping)}
        if kind.flags.get("list") == "set":
            return {f"v:{_written(each)}": (each, element) for each in value}
    return None


def _parts(value: Mapping[str, Any], kind: Field | None) -> dict[str, tuple[Any, Field | None]] | None:
    if kind is _UNTYPED:
        return {f"f:{name}": (each, _UNTYPED) for name, each in value.items()}
    if kind.flags.get("map") == "atomic" or kind.type.around.startswith("[]"):
        return None
    if kind.type.around:
        element = Field(kind.type.element, False, _PLAIN)
        return {f"f:{name}": (each, element) for name, each in value.items()}
    schema = schemas.of_type(kind.type)
    if schema is None or schema.form is not None or schema.is_atomic:
        return None
    return {f"f:{name}": (each, schema.fields.get(name)) for name, each in value.items()}


def _key(element: Mapping[str, Any], keys: list[str], kind: Field) -> str:
    """Returns the step to an element of a list of type map; an absent key has its default."""
    schema = schemas.of_type(kind.type)
    found = {}
    for name in sorted(keys):
        default = schema.fields[name].flags.get("default") if schema and name in schema.fields else None
        if name in element or default is not None:
            found[name] = element.get(name, json.loads(default or "null"))
    return f"k:{_written(found)}"


def _written(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _compare(path: Path, old: Any, new: Any, kind: Field | None, changes: Changes) -> None:
    if old is new or old == new or (old is ABSENT and new is None):
        return
    if old is ABSENT:
        _add_all(changes.touched, path, new, kind)
        return
    if new is ABSENT:
        _add_all(changes.removed, path, old, kind)
        return
    after = _children(new, kind)
    before = _children(old if old is not None else type(new)(), kind)
    if before is None or after is None:
        changes.touched.add(path)
        return
    for step in before.keys() | after.keys():
        was, now = before.get(step, (ABSENT, None)), after.get(step, (ABSENT, None))
        _compare((*path, step), was[0], now[0], now[1] or was[1], changes)


def _add_all(found: set[Path], path: Path, value: Any, kind: Field | None) -> None:
    """Adds a field and all fields in it."""
    found.add(path)
    for step, (each, inner) in (_children(value, kind) or {}).items():
        if isinstance(each, dict | list):
            _add_all(found, (*path, step), each, inner)
        else:
            found.add((*path, step))


def _leaves(path: Path, value: Any, kind: Field | None) -> Iterator[Path]:
    """Yields the fields that a configuration sets: the leaves, and the elements of lists themselves."""
    children = _children(value, kind)
    if path and (not children or not path[-1].startswith("f:")):
        yield path
    for step, (each, inner) in (children or {}).items():
        yield from _leaves((*path, step), each, inner)


def _without(path: Path, value: Any, kind: Field | None, dropped: set[Path]) -> Any:
    children = _children(value, kind)
    if children is None or not any(each[: len(path)] == path for each in dropped):
        return value
    kept = {}
    for step, (each, inner) in children.items():
        where = (*path, step)
        if where in dropped or _loses_its_key(where, dropped):
            continue
        remaining = _without(where, each, inner, dropped)
        if remaining or not each or not isinstance(remaining, Mapping | list):
            kept[step] = remaining
    return list(kept.values()) if isinstance(value, list) else {step[2:]: each for step, each in kept.items()}


def _loses_its_key(path: Path, dropped: set[Path]) -> bool:
    return path[-1].startswith("k:") and any((*path, f"f:{name}") in dropped for name in json.loads(path[-1][2:]))

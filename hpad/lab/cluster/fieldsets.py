"""Sets of fields of an object, as server-side apply tells them apart: what changed, what is set, what is in FieldsV1.

A field is a path of steps as FieldsV1 writes them: `f:spec`, `f:containers`, `k:{"name":"web"}`, `f:image`. Which maps
and lists have fields of their own and which are one field as a whole says their type (KEP-555); in a type that nobody
knows maps are divided and lists are not.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hpad.lab.cluster import schemas
from hpad.lab.cluster.schemas import Field, Schema

Path = tuple[str, ...]
Tree = dict[str, Any]
"""A set in the form of FieldsV1: an empty node is a member, another one if it has a `.`."""
ABSENT: Final = object()
_UNTYPED: Final = None
_THE_SERVERS: Final = frozenset(
    ("name", "namespace", "creationTimestamp", "uid", "generation", "managedFields", "resourceVersion")
)
_PLAIN: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class Changes:
    """What an update did: fields that are new or have another value, and fields that are gone."""

    touched: set[Path] = field(default_factory=set)
    removed: set[Path] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.touched or self.removed)


def compared(old: Mapping[str, Any] | None, new: Mapping[str, Any], subresource: str) -> Changes:
    """Between two states of an object in one version; `old` is None for one that is made."""
    schema = schemas.of_kind(str(new.get("apiVersion", "")), str(new.get("kind", "")))
    before = _empty(schema) if old is None else old
    changes = Changes()
    was, now = ({"metadata": {}, **_ownable(each, subresource)} for each in (before, new))
    _compare((), was, now, _root(schema), changes)
    return changes


def set_by(config: Mapping[str, Any], subresource: str = "") -> set[Path]:
    """The fields that an applied configuration sets."""
    schema = schemas.of_kind(str(config.get("apiVersion", "")), str(config.get("kind", "")))
    return set(_leaves((), _ownable(config, subresource), _root(schema)))


def without(obj: Mapping[str, Any], dropped: set[Path]) -> dict[str, Any]:
    """A copy without these fields, without what they leave empty, and without elements that lose their key."""
    schema = schemas.of_kind(str(obj.get("apiVersion", "")), str(obj.get("kind", "")))
    return dict(_without((), obj, _root(schema), dropped))


def tree(members: set[Path]) -> Tree:
    """A set as FieldsV1 has it."""
    root: Tree = {}
    for path in sorted(members):  # what is around a field comes before it
        node = root
        for depth, step in enumerate(path):
            if not node and path[:depth] in members:
                node["."] = {}
            node = node.setdefault(step, {})
    return root


def paths(node: Tree, path: Path = ()) -> Iterator[Path]:
    """The members of a FieldsV1."""
    for step, below in node.items():
        if step == ".":
            yield path
        elif below:
            yield from paths(below, (*path, step))
        else:
            yield (*path, step)


def has(node: Tree, path: Path) -> bool:
    """Whether a FieldsV1 has a member."""
    for step in path:
        if step not in node:
            return False
        node = node[step]
    return not node or "." in node


def shown(path: Path) -> str:
    """A path as conflicts tell it: `.spec.containers[name="web"].image`."""
    return "".join(_step(step) for step in path)


def _step(step: str) -> str:
    kind, _, content = step.partition(":")
    if kind == "f":
        return f".{content}"
    if kind == "v":
        return f"[={content}]"
    return "[" + ",".join(f"{name}={json.dumps(value)}" for name, value in json.loads(content).items()) + "]"


def _ownable(obj: Mapping[str, Any], subresource: str) -> dict[str, Any]:
    """What of an object can have owners: not what the server sets, nor what a write of this kind leaves alone."""
    gone = ("apiVersion", "kind", "spec" if subresource == "status" else "status")
    kept = {name: value for name, value in obj.items() if name not in gone}
    metadata = {name: value for name, value in (kept.pop("metadata", None) or {}).items() if name not in _THE_SERVERS}
    return {**kept, "metadata": metadata} if metadata else kept


def _root(schema: Schema | None) -> Field | None:
    return None if schema is None else Field(schemas.Type(schema.name), True, _PLAIN)


def _empty(schema: Schema | None) -> dict[str, Any]:
    """An object of which nothing is said: what it holds itself, not by a pointer, is there nevertheless."""
    found: dict[str, Any] = {}
    for name, each in schema.fields.items() if schema else ():
        if not each.is_embedded:
            continue
        default = json.loads(each.flags.get("default", "null"))
        inner = schemas.of_type(each.type)
        is_struct = inner is not None and inner.form is None
        found[name] = _empty(inner) if default == {} and is_struct else None if default == {} else default
    return found


def _children(value: Any, kind: Field | None) -> dict[str, tuple[Any, Field | None]] | None:
    """The parts of a value that are fields of their own, by their steps; None for one that is a field as a whole."""
    if isinstance(value, Mapping):
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
    """The step to an element of a list; a key that it does not name has its default."""
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
        changes.touched.update(_all(path, new, kind))
        return
    if new is ABSENT:
        changes.removed.update(_all(path, old, kind))
        return
    after = _children(new, kind)
    before = _children(old if old is not None else type(new)(), kind)
    if before is None or after is None:
        changes.touched.add(path)
        return
    for step in before.keys() | after.keys():
        was, now = before.get(step, (ABSENT, None)), after.get(step, (ABSENT, None))
        _compare((*path, step), was[0], now[0], now[1] or was[1], changes)


def _all(path: Path, value: Any, kind: Field | None) -> Iterator[Path]:
    """A field that is there as a whole: itself and everything in it."""
    yield path
    for step, (each, inner) in (_children(value, kind) or {}).items():
        yield from _all((*path, step), each, inner)


def _leaves(path: Path, value: Any, kind: Field | None) -> Iterator[Path]:
    """What a configuration sets: maps only by what is in them, elements of lists themselves too."""
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
        left = _without(where, each, inner, dropped)
        if left or not each or not isinstance(left, Mapping | list):
            kept[step] = left
    return list(kept.values()) if isinstance(value, list) else {step[2:]: each for step, each in kept.items()}


def _loses_its_key(path: Path, dropped: set[Path]) -> bool:
    return path[-1].startswith("k:") and any((*path, f"f:{name}") in dropped for name in json.loads(path[-1][2:]))

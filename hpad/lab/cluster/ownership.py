"""Who set which field: what server-side apply needs to find conflicts, and what somebody no longer applies.

The rules are those of KEP-555, field by field; merge keys are those of `patches`. Kept beside the objects, not in their
`metadata.managedFields`, which nobody sees here. Statuses, events and leases have no owners, nor has what the
cluster's own controllers write.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hpad.lab.cluster import errors, patches
from hpad.lab.cluster.resources import HPAS, Object, Resource
from hpad.lab.cluster.store import Change

Path = tuple[str, ...]
"""A field, in pieces that make up what a conflict shows: `.spec`, `.containers`, `[name="web"]`, `.image`."""
APPLY, UPDATE = "Apply", "Update"
_PARTS: Final = ("spec", "data", "binaryData")
_ABSENT: Final = object()


@dataclass(frozen=True, slots=True)
class Manager:
    """Somebody who writes. Two ways of writing make two managers of one name."""

    name: str
    operation: str
    version: str
    subresource: str = ""

    def __str__(self) -> str:
        shown = json.dumps(self.name)
        if self.subresource:
            shown += f' with subresource "{self.subresource}"'
        return shown if self.operation == APPLY else f"{shown} using {self.version}"


@dataclass(eq=False, slots=True)
class Owners:
    """The fields of every object, by its uid, and who owns them; equal values may have several owners."""

    _held: dict[str, dict[Manager, set[Path]]] = field(default_factory=dict)

    def on_change(self, change: Change) -> None:
        """A subscriber of the store: what is gone has no owners."""
        if change.type == "DELETED":
            self._held.pop(change.object["metadata"]["uid"], None)

    def wrote(self, manager: Manager, old: Object | None, new: Object) -> None:
        """A create or an update: what it changed belongs to `manager` alone."""
        before, after = leaves(old or {}), leaves(new)
        changed = {path for path, value in after.items() if before.get(path, _ABSENT) != value}
        held = self._held.setdefault(new["metadata"]["uid"], {})
        for owned in held.values():
            owned -= changed
            owned &= after.keys()
        held.setdefault(manager, set()).update(changed)

    def check(self, manager: Manager, live: Object, patch: Object) -> None:
        """Raises ApiError 409 when the patch changes what others own."""
        before, held = leaves(live), self._held.get(live["metadata"]["uid"], {})
        changed = [path for path, value in leaves(patch).items() if before.get(path, _ABSENT) != value]
        conflicts = [(owner, path) for path in changed for owner in held if owner != manager and path in held[owner]]
        if conflicts:
            raise _conflict(conflicts)

    def abandoned(self, manager: Manager, live: Object, patch: Object) -> set[Path]:
        """What `manager` applied before, does not apply now, and nobody else wants."""
        held = self._held.get(live["metadata"]["uid"], {})
        others: set[Path] = set().union(*(paths for owner, paths in held.items() if owner != manager))
        return held.get(manager, set()) - leaves(patch).keys() - others

    def applied(self, manager: Manager, old: Object | None, new: Object, patch: Object) -> None:
        """An apply that went through: `manager` owns what it applied, no more."""
        self.wrote(manager, old, new)
        self._held[new["metadata"]["uid"]][manager] = leaves(patch).keys() & leaves(new).keys()


def are_kept(resource: Resource, subresource: str) -> bool:
    """Whether fields written this way have owners."""
    return (resource.has_generation or resource == HPAS) and subresource in ("", "scale")


def leaves(obj: Object) -> dict[Path, Any]:
    """The fields that can be owned, with their values: labels, annotations, and what an object is for."""
    metadata = obj.get("metadata") or {}
    shown: dict[str, Any] = {name: obj[name] for name in _PARTS if name in obj}
    shown["metadata"] = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return dict(_leaves(shown, ()))


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _leaves(each, (*path, f".{name}"))
    elif isinstance(value, list) and (key := patches.merge_key(path[-1][1:], value)):
        for each in value:
            yield from _leaves(each, (*path, _element(key, each)))
    elif path and value is not None and value != {}:
        yield path, value


def _element(key: str, element: Mapping[str, Any]) -> str:
    return f"[{key}={json.dumps(element[key])}]"


def without(value: Any, dropped: Iterable[Path], path: Path = ()) -> Any:
    """A copy without these fields, without what they leave empty, and without elements that lose their key."""
    gone = set(dropped)
    if isinstance(value, Mapping):
        kept = {name: _shrunk(each, gone, (*path, f".{name}")) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not _ABSENT}
    if isinstance(value, list) and path and (key := patches.merge_key(path[-1][1:], value)):
        elements = [(each, (*path, _element(key, each))) for each in value]
        return [without(each, gone, where) for each, where in elements if (*where, f".{key}") not in gone]
    return value


def _shrunk(value: Any, gone: set[Path], path: Path) -> Any:
    if path in gone:
        return _ABSENT
    if not any(each[: len(path)] == path for each in gone):
        return value
    return without(value, gone, path) or _ABSENT


def _conflict(conflicts: list[tuple[Manager, Path]]) -> errors.ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": "".join(path)}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for shown in sorted({str(manager) for manager, _ in conflicts}):
            lines.append(f"conflicts with {shown}:")
            lines += [f"- {''.join(path)}" for manager, path in conflicts if str(manager) == shown]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return errors.ApiError(409, "Conflict", message, details={"causes": causes})

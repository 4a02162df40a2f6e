"""Field ownership (`metadata.managedFields`), and the conflicts and removals of server-side apply.

The rules are those of KEP-555; `fieldsets` defines the fields. Each object stores its managers in its metadata.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hpad.lab.cluster import errors, fieldsets
from hpad.lab.cluster.fieldsets import Changes, Path
from hpad.lab.cluster.resources import Object

APPLY, UPDATE = "Apply", "Update"
MANAGED: Final = "managedFields"
SCALE: Final = "scale"
MOST_UPDATERS: Final = 10
"""Maximum number of Update managers of an object; beyond it the oldest are merged into one."""
ANCIENT: Final = "ancient-changes"
BEFORE_FIRST_APPLY: Final = "before-first-apply"
_View = Callable[[Object, str], Object]
"""Converts an object to an apiVersion."""


@dataclass(frozen=True, slots=True)
class Manager:
    """A field manager. Update and Apply under one name are two managers; Apply has one for all API versions."""

    name: str
    operation: str
    version: str
    subresource: str = ""

    def __str__(self) -> str:
        shown = json.dumps(self.name)
        if self.subresource:
            shown += f' with subresource "{self.subresource}"'
        return shown if self.operation == APPLY else f"{shown} using {self.version}"

    @property
    def identity(self) -> tuple[str, ...]:
        version = "" if self.operation == APPLY else self.version
        return self.name, self.operation, version, self.subresource


@dataclass(frozen=True, slots=True)
class Entry:
    """A manager of an object, its fields as an immutable FieldsV1, and the time of its last change."""

    manager: Manager
    tree: fieldsets.Tree
    time: str | None

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "Entry":
        manager = Manager(
            str(raw.get("manager", "")),
            str(raw.get("operation", "")),
            str(raw.get("apiVersion", "")),
            str(raw.get("subresource", "")),
        )
        return cls(manager, raw.get("fieldsV1") or {}, raw.get("time"))

    def written(self) -> Object:
        manager = self.manager
        head = {"manager": manager.name, "operation": manager.operation, "apiVersion": manager.version}
        time = {"time": self.time} if self.time else {}
        beside = {"subresource": manager.subresource} if manager.subresource else {}
        return {**head, **time, "fieldsType": "FieldsV1", "fieldsV1": self.tree, **beside}

    @property
    def fields(self) -> set[Path]:
        return set(fieldsets.paths(self.tree))

    @property
    def rank(self) -> tuple[str, ...]:
        """Sort key of managedFields: Apply before Update, then by time."""
        manager = self.manager
        return manager.operation, self.time or "", manager.name, manager.version, manager.subresource

    def has(self, path: Path) -> bool:
        return fieldsets.has(self.tree, path)

    def without(self, *lost: set[Path]) -> "Entry":
        """Returns the entry without fields that other managers set or removed."""
        if not any(self.has(path) for paths in lost for path in paths):
            return self
        return replace(self, tree=fieldsets.tree(self.fields.difference(*lost)))

    def updated(self, changes: Changes, time: str) -> "Entry":
        """Returns the entry after an update by its manager."""
        if not changes:
            return self
        at = time if changes.touched else self.time
        if not changes.removed and all(self.has(path) for path in changes.touched):
            return replace(self, time=at)  # the common case: only values changed, so the tree stays
        return replace(self, tree=fieldsets.tree((self.fields - changes.removed) | changes.touched), time=at)

    def applied(self, fields: set[Path], changes: Changes, time: str) -> "Entry":
        """Returns the entry after an apply by its manager, which owns exactly the applied fields then."""
        is_new = bool(changes) or fields != self.fields
        return replace(self, tree=fieldsets.tree(fields), time=time if is_new else self.time)


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a write, and its API version (empty: the stored one).

    `applied` is the configuration of a server-side apply, None for other writes; `is_forced` overrides conflicts.
    """

    name: str
    version: str = ""
    applied: Object | None = None
    is_forced: bool = True

    def manager(self, stored: str, subresource: str = "") -> Manager:
        operation = UPDATE if self.applied is None else APPLY
        return Manager(self.name, operation, self.version or stored, subresource)


@dataclass(frozen=True, slots=True)
class Writing:
    """A write by `manager` at `time`; `applied` is the set of fields of a server-side apply, None for other writes.

    `scales_to_zero`: it is a Scale of 0, whose JSON has no replicas, so that nobody owns them afterwards.
    """

    manager: Manager
    time: str
    applied: set[Path] | None = None
    is_forced: bool = True
    scales_to_zero: bool = False


@dataclass(slots=True)
class _Comparison:
    """The changes of a write, compared in the API version of each manager."""

    old: Object | None
    new: Object
    view: _View
    subresource: str
    only_removes: bool = False
    _found: dict[str, Changes] = field(default_factory=dict)

    def in_version(self, version: str) -> Changes:
        if version not in self._found:
            old = None if self.old is None else self.view(self.old, version)
            found = fieldsets.compared(old, self.view(self.new, version), self.subresource)
            self._found[version] = Changes(removed=found.touched | found.removed) if self.only_removes else found
        return self._found[version]


def stamped(writing: Writing, old: Object | None, new: Object, view: _View) -> Object:
    """Returns the new state of an object with its managers; `old` is None for a new object.

    Raises ApiError 409 for an apply that changes fields of other managers, unless it is forced.
    """
    entries = [Entry.read(raw) for raw in _base(writing, old, new)]
    comparison = _Comparison(old, new, view, writing.manager.subresource, writing.scales_to_zero)
    changes = comparison.in_version(writing.manager.version)
    is_applied = writing.applied is not None
    if is_applied and old is not None and not entries:
        entries = [_before_first_apply(writing, old, view)]
    if is_applied and not writing.is_forced:
        _check(writing.manager, entries, comparison)
    if (changes and (old is None or _is_tracked(writing, entries, comparison))) or is_applied:
        entries = [entry for entry in _changed(writing, entries, comparison) if entry.tree]
    managers = [entry.written() for entry in sorted(_bounded(entries), key=lambda entry: entry.rank)]
    metadata = {name: value for name, value in new["metadata"].items() if name != MANAGED}
    return {**new, "metadata": {**metadata, **({MANAGED: managers} if managers else {})}}


def _is_tracked(writing: Writing, entries: list[Entry], comparison: _Comparison) -> bool:
    """Whether an update changes the managers: an object without any stays untracked until its first apply.

    For a Scale only managers of the replicas count. Source: Kubernetes 1.36, managedfields: scalehandler.go.
    """
    if writing.manager.subresource != SCALE:
        return bool(entries)
    for entry in entries:
        changes = comparison.in_version(entry.manager.version)
        if any(entry.has(path) for path in changes.touched | changes.removed):
            return True
    return False


def abandoned(manager: Manager, live: Object, applied: set[Path]) -> set[Path]:
    """Returns the fields that `manager` applied before, does not apply now, and shares with no other manager."""
    entries = [Entry.read(raw) for raw in live["metadata"].get(MANAGED) or ()]
    before = [entry.fields for entry in entries if entry.manager.identity == manager.identity]
    others = [entry.fields for entry in entries if entry.manager.identity != manager.identity]
    return set().union(*before) - applied - set().union(*others)


def _base(writing: Writing, old: Object | None, new: Object) -> Iterable[Mapping[str, Any]]:
    """Returns the managers before the write: those in the body, if any, since a client may edit managedFields."""
    stored = ((old or {}).get("metadata") or {}).get(MANAGED) or ()
    received = new["metadata"].get(MANAGED)
    if writing.manager.subresource or not received:
        return stored
    return () if received == [{}] else received  # one empty entry resets managedFields


def _before_first_apply(writing: Writing, old: Object, view: _View) -> Entry:
    """Returns the manager that gets all present fields of an untracked object at its first apply."""
    manager = Manager(BEFORE_FIRST_APPLY, UPDATE, writing.manager.version)
    present = fieldsets.compared(None, view(old, writing.manager.version), writing.manager.subresource)
    return Entry(manager, fieldsets.tree(present.touched), writing.time)


def _changed(writing: Writing, entries: list[Entry], comparison: _Comparison) -> Iterator[Entry]:
    own = Entry(writing.manager, {}, None)
    for entry in entries:
        if entry.manager.identity == writing.manager.identity:
            own = replace(entry, manager=writing.manager)
            continue
        changes = comparison.in_version(entry.manager.version)
        yield entry.without(changes.touched, changes.removed)
    changes = comparison.in_version(writing.manager.version)
    if writing.applied is None:
        yield own.updated(changes, writing.time)
    else:
        yield own.applied(writing.applied, changes, writing.time)


def _bounded(entries: list[Entry]) -> list[Entry]:
    """Merges the oldest Update managers beyond MOST_UPDATERS into one per API version."""
    updaters = sorted((each for each in entries if each.manager.operation == UPDATE), key=lambda entry: entry.rank)
    oldest = updaters[: len(updaters) - MOST_UPDATERS + 1] if len(updaters) > MOST_UPDATERS else []
    merged: dict[str, Entry] = {}
    for entry in oldest:
        version = entry.manager.version
        ancient = merged.get(version) or Entry(Manager(ANCIENT, UPDATE, version), {}, None)
        merged[version] = replace(ancient, tree=fieldsets.tree(ancient.fields | entry.fields), time=entry.time)
    return [*(entry for entry in entries if entry not in oldest), *merged.values()]


def _check(manager: Manager, entries: list[Entry], comparison: _Comparison) -> None:
    """Raises ApiError 409 when the write changes fields of other managers."""
    conflicts = [
        (entry.manager, path)
        for entry in entries
        if entry.manager.identity != manager.identity
        for path in sorted(comparison.in_version(entry.manager.version).touched & entry.fields)
    ]
    if conflicts:
        raise _conflict(conflicts)


def _conflict(conflicts: list[tuple[Manager, Path]]) -> errors.ApiError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": fieldsets.shown(path)}
        for manager, path in conflicts
    ]
    if len(conflicts) == 1:
        message = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for shown in sorted({str(manager) for manager, _ in conflicts}):
            lines.append(f"conflicts with {shown}:")
            lines += [f"- {fieldsets.shown(path)}" for manager, path in conflicts if str(manager) == shown]
        message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return errors.ApiError(409, "Conflict", message, details={"causes": causes})

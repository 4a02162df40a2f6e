"""Serves the kinds of CustomResourceDefinitions from their creation until their deletion.

Of several served versions, schema and columns of the storage version hold for all.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hpad.lab.cluster import strategy
from hpad.lab.cluster.resources import DEFINITIONS, Object, Registry, Resource, ScalePaths
from hpad.lab.cluster.store import Change, key_of
from hpad.lab.cluster.writes import Writer


@dataclass(frozen=True, slots=True)
class Definitions:
    """Registers and unregisters kinds as their definitions change."""

    registry: Registry
    writer: Writer

    def on_change(self, change: Change) -> None:
        """Handles a change; subscribe it to the store."""
        if change.resource != DEFINITIONS:
            return
        if change.type == "DELETED":
            asyncio.get_running_loop().call_soon(self._withdraw, change.object)
            return
        resource, before = defined_by(change.object), defined_by(change.previous or {})
        if before is not None:
            self.registry.remove(before.group, before.plural)
        if resource is not None:
            self.registry.add(resource)
            if "conditions" not in (change.object.get("status") or {}):
                asyncio.get_running_loop().call_soon(self._establish, change.object)

    def _establish(self, definition: Object) -> None:
        current = self.writer.store.find(DEFINITIONS, *key_of(definition))
        if current is None:
            return
        now = strategy.timestamp(self.writer.clock.now())
        spec = definition["spec"]
        conditions = [
            _condition("NamesAccepted", "NoConflicts", "no conflicts found", now),
            _condition("Established", "InitialNamesAccepted", "the initial names have been accepted", now),
        ]
        stored = [version["name"] for version in spec["versions"] if version.get("storage")]
        status = {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}
        self.writer.set_status(DEFINITIONS, current, status)

    def _withdraw(self, definition: Object) -> None:
        """Removes the kind of a deleted definition, and all its objects."""
        resource = defined_by(definition)
        if resource is not None:
            for obj in self.writer.store.objects(resource):
                self.writer.store.remove(resource, *key_of(obj))
            self.registry.remove(resource.group, resource.plural)


def defined_by(definition: Mapping[str, Any]) -> Resource | None:
    """Returns the kind that a definition describes; None without a group, names or served versions."""
    spec = definition.get("spec") or {}
    names, versions = spec.get("names") or {}, list(_served(spec))
    if not (spec.get("group") and names.get("plural") and names.get("kind") and versions):
        return None
    subresources = versions[0].get("subresources") or {}
    return Resource(
        spec["group"],
        tuple(str(version["name"]) for version in versions),
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        has_status="status" in subresources,
        scale=_scale(subresources.get("scale")),
        schema=(versions[0].get("schema") or {}).get("openAPIV3Schema"),
        columns=tuple(versions[0].get("additionalPrinterColumns") or ()),
    )


def _served(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the served versions, the storage version first."""
    versions = [each for each in spec.get("versions") or () if each.get("served", True) and each.get("name")]
    yield from sorted(versions, key=lambda version: not version.get("storage"))


def _scale(paths: Mapping[str, str] | None) -> ScalePaths | None:
    if paths is None:
        return None
    spec, status = paths.get("specReplicasPath", ".spec.replicas"), paths.get("statusReplicasPath", ".status.replicas")
    return ScalePaths(spec, status, paths.get("labelSelectorPath"))


def _condition(kind: str, reason: str, message: str, now: str) -> Object:
    return {"type": kind, "status": "True", "lastTransitionTime": now, "reason": reason, "message": message}

"""All writes of clients and controllers: create, update, patch, apply and delete."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hpad import clock as clocks
from hpad.lab.cluster import (
    admission,
    defaults,
    errors,
    fieldsets,
    ownership,
    patches,
    revisions,
    rules,
    scale,
    selectors,
    strategy,
)
from hpad.lab.cluster.resources import EVENTS, NAMESPACES, PODS, Object, Resource
from hpad.lab.cluster.store import DryRunStore, Store, key_of

FOREGROUND = "foregroundDeletion"
CONTROLLERS = ownership.Author("kube-controller-manager")
"""The author of writes by the cluster's own controllers."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """Options of a DELETE. `grace` is in seconds; None means the pod's terminationGracePeriodSeconds."""

    grace: int | None = None
    propagation: str = "Background"
    preconditions: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to the store by the rules of the API. Bodies may have any served version, results have the stored one."""

    store: Store
    clock: clocks.Clock
    scale_to_zero: bool = False
    author: ownership.Author = CONTROLLERS

    def by(self, author: ownership.Author) -> "Writer":
        """Returns a writer for another author."""
        return replace(self, author=author)

    def dry(self) -> "Writer":
        """Returns a writer for dryRun=All, which checks writes and changes nothing."""
        return replace(self, store=DryRunStore(self.store))

    def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Creates an object; raises ApiError 400, 404 (no such namespace), 409 or 422."""
        placed = strategy.placed(resource, body, namespace)
        admitted = admission.admit(resource, placed, scale_to_zero=self.scale_to_zero)
        new = strategy.prepare_new(resource, admitted, namespace, self.clock.now())
        if resource.namespaced:
            self.store.get(NAMESPACES, "", namespace)
        return self.store.create(resource, defaults.admitted(resource, self._stamped(resource, None, new)))

    def update(self, resource: Resource, old: Object, body: Object, subresource: str = "") -> Object:
        """Replaces an object, or its `status`; raises ApiError 400, 409 or 422."""
        body = strategy.placed(resource, body, key_of(old)[0])
        strategy.check_identity(resource, body["metadata"], old)
        rules.check_version(resource, body["metadata"], old["metadata"]["name"])
        if subresource == "status":
            admitted = admission.admit_status(resource, body)
            new = strategy.prepare_status(resource, admitted, old)
            rules.check_status(resource, new)
            return self.store.update(resource, self._stamped(resource, old, new, subresource))
        admitted = admission.admit(resource, body, scale_to_zero=self.scale_to_zero)
        new = strategy.prepare_update(resource, admitted, old)
        rules.check_unchanged(resource, new, old)
        return self._settle(resource, self._stamped(resource, old, new))

    def patch(
        self, resource: Resource, old: Object, version: str, media_type: str, patch: Any, subresource: str = ""
    ) -> Object:
        """Patches an object, its `status` or its `scale`, in the client's version; raises ApiError."""
        live = self.live(resource, old, version, subresource)
        return self.patched(resource, old, patches.apply(media_type, live, patch), subresource)

    def live(self, resource: Resource, old: Object, version: str, subresource: str = "") -> Object:
        """Returns the object, or its Scale, in the version to which a patch is applied."""
        return scale.read(resource, old) if subresource == "scale" else admission.present(resource, old, version)

    def patched(self, resource: Resource, old: Object, patched: Object, subresource: str = "") -> Object:
        """Stores the result of a patch on `live`; raises ApiError 400, 409 or 422."""
        if subresource == "scale":
            return self.rescale(resource, old, patched)
        _check_same(resource, old, patched)
        return self.update(resource, old, patched, subresource)

    def apply(self, resource: Resource, old: Object, version: str, patch: Object, subresource: str = "") -> Object:
        """Applies a configuration: merges it, and removes fields that the same manager applied before but not now."""
        live = self.live(resource, old, version, subresource)
        if subresource != "scale":
            manager = self.author.manager(resource.api_version, subresource)
            abandoned = ownership.abandoned(manager, live, fieldsets.set_by(patch, subresource))
            live = fieldsets.without(live, abandoned)
        return self.patched(resource, old, patches.apply(patches.APPLY, live, patch), subresource)

    def rescale(self, resource: Resource, old: Object, body: Object) -> Object:
        """Writes a Scale; returns the object, not its Scale. Raises ApiError 400, 404, 409 or 422."""
        new = scale.applied(resource, old, body)
        rules.check_schema(resource, new)
        return self.store.update(resource, self._stamped(resource, old, new, "scale"))

    def set_status(self, resource: Resource, old: Object, status: Object) -> Object:
        """Writes the status for a controller; does nothing if the status is equal. Raises ApiError 404."""
        current = self.store.get(resource, *key_of(old))
        return self.store.update(resource, self._stamped(resource, current, {**current, "status": status}, "status"))

    def _stamped(self, resource: Resource, old: Object | None, new: Object, subresource: str = "") -> Object:
        """Returns the new state with its field managers; raises ApiError 409 for an apply in conflict."""
        author = self.author
        applied = author.applied
        if applied is not None and subresource == "scale" and resource.scale:
            applied = scale.placed(resource, applied)
        writing = ownership.Writing(
            author.manager(resource.api_version, subresource),
            strategy.timestamp(self.clock.now()),
            None if applied is None else fieldsets.set_by(applied, subresource),
            author.is_forced,
            scales_to_zero=applied is None and subresource == ownership.SCALE and not scale.read(resource, new)["spec"],
        )
        return ownership.stamped(writing, old, new, lambda obj, version: _viewed(resource, obj, version))

    def delete(self, resource: Resource, obj: Object, options: DeleteOptions | None = None) -> Object | None:
        """Deletes an object; returns it while it waits for its grace period or finalizers, None once it is removed.

        Raises ApiError 409 when a precondition does not hold.
        """
        options = options or DeleteOptions()
        self._check_preconditions(resource, obj, options)
        grace = self._grace(resource, obj, options)
        metadata = dict(obj["metadata"])
        if options.propagation == "Foreground":
            metadata["finalizers"] = sorted({*(metadata.get("finalizers") or []), FOREGROUND})
        elif options.propagation == "Orphan":
            self._orphan(metadata["uid"])
        if not grace and not metadata.get("finalizers") and resource != NAMESPACES:
            self.store.remove(resource, *key_of(obj))
            return None
        if "deletionTimestamp" not in metadata or grace < metadata.get("deletionGracePeriodSeconds", 0):
            metadata["deletionTimestamp"] = strategy.timestamp(self.clock.now() + timedelta(seconds=grace))
            if resource != NAMESPACES:
                metadata["deletionGracePeriodSeconds"] = grace
        marked = {**obj, "metadata": metadata}
        if resource == NAMESPACES:
            marked["status"] = {"phase": "Terminating"}
        return self.store.update(resource, marked)

    def _settle(self, resource: Resource, new: Object) -> Object:
        """Stores an update; removes an object being deleted whose last finalizer the update removed."""
        updated = self.store.update(resource, new)
        metadata = updated["metadata"]
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not waits and resource != NAMESPACES:
            self.store.remove(resource, *key_of(updated))
        return updated

    def _check_preconditions(self, resource: Resource, obj: Object, options: DeleteOptions) -> None:
        for name, expected in options.preconditions.items():
            actual = obj["metadata"].get(name)
            if expected and expected != actual:
                raise errors.precondition_failed(resource, obj["metadata"]["name"], name, expected, actual)

    def _grace(self, resource: Resource, obj: Object, options: DeleteOptions) -> int:
        """Returns the grace period in seconds; 0 for other kinds, and for pods that no kubelet runs."""
        spec = obj.get("spec") or {}
        if resource != PODS or not spec.get("nodeName"):
            return 0
        if selectors.read_path(obj, ".status.phase") in ("Succeeded", "Failed"):
            return 0
        default = int(spec.get("terminationGracePeriodSeconds", 30))
        return default if options.grace is None else max(0, options.grace)

    def _orphan(self, uid: str) -> None:
        for resource, obj in self.store.owned(uid):
            kept = [ref for ref in obj["metadata"]["ownerReferences"] if ref["uid"] != uid]
            metadata = {**obj["metadata"], "ownerReferences": kept}
            self.store.update(resource, {**obj, "metadata": metadata})


def _viewed(resource: Resource, obj: Object, version: str) -> Object:
    """Converts a stored object to an apiVersion."""
    return admission.present(resource, obj, version if resource == EVENTS else version.rpartition("/")[2])


def _check_same(resource: Resource, old: Object, patched: Object) -> None:
    """Raises ApiError 409 for a patch of another resourceVersion, 422 for a patch with another uid."""
    before, metadata = old["metadata"], patched.get("metadata") or {}
    version = revisions.of_object(metadata.get("resourceVersion"))
    if version and version != int(before["resourceVersion"]):
        raise errors.conflict(resource, before["name"])
    uid = metadata.get("uid", before["uid"])
    if uid != before["uid"]:
        cause = errors.wrong("metadata.uid", uid, "field is immutable")
        raise errors.invalid(resource.kind, resource.group, before["name"], [cause])

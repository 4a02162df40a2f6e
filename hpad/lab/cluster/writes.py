"""Every way an object changes: create, update, patch, delete. Clients and controllers come through here."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from hpad import clock as clocks
from hpad.lab.cluster import admission, errors, patches, rules, scale, selectors, strategy
from hpad.lab.cluster.resources import NAMESPACES, PODS, Object, Resource
from hpad.lab.cluster.store import Rehearsal, Store, key_of

FOREGROUND = "foregroundDeletion"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """What a DELETE may carry. `grace` None: the pod's own terminationGracePeriodSeconds."""

    grace: int | None = None
    propagation: str = "Background"
    preconditions: Mapping[str, str] = field(default_factory=dict)
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes to the store under the API's rules. Bodies are in the version given, results as stored."""

    store: Store
    clock: clocks.Clock
    scale_to_zero: bool = False

    def rehearsing(self) -> "Writer":
        """One that answers alike and changes nothing."""
        return replace(self, store=Rehearsal(self.store))

    def create(self, resource: Resource, namespace: str, body: Object) -> Object:
        """Raises ApiError 400, 404 (no such namespace), 409 or 422."""
        placed = strategy.placed(resource, body, namespace)
        admitted = admission.admit(resource, placed, scale_to_zero=self.scale_to_zero)
        new = strategy.prepare_new(resource, admitted, namespace, self.clock.now())
        if resource.namespaced:
            self.store.get(NAMESPACES, "", namespace)
        return self.store.create(resource, new)

    def update(self, resource: Resource, old: Object, body: Object, subresource: str = "") -> Object:
        """PUT of the object, or of its `status`; raises ApiError 400, 409 or 422."""
        if subresource == "status":
            admitted = admission.admit_status(resource, body)
            return self.store.update(resource, strategy.prepare_status(resource, admitted, old))
        body = strategy.placed(resource, body, key_of(old)[0])
        strategy.check_identity(resource, body["metadata"], old)
        rules.check_version(resource, body["metadata"], old["metadata"]["name"])
        admitted = admission.admit(resource, body, scale_to_zero=self.scale_to_zero)
        return self._settle(resource, strategy.prepare_update(resource, admitted, old))

    def patch(
        self, resource: Resource, old: Object, version: str, media_type: str, patch: Any, subresource: str = ""
    ) -> Object:
        """PATCH of the object, its `status` or its `scale`, against the version the client sees."""
        if subresource == "scale":
            patched = patches.apply(media_type, scale.read(resource, old), patch)
            return self.rescale(resource, old, patched)
        patched = patches.apply(media_type, admission.present(resource, old, version), patch)
        _check_same(resource, old, patched)
        return self.update(resource, old, patched, subresource)

    def apply(self, resource: Resource, old: Object, live: Object, patch: Object, subresource: str = "") -> Object:
        """Server-side apply on `live`, which is the object in the version of the patch."""
        if subresource == "scale":
            return self.rescale(resource, old, patches.apply(patches.APPLY, scale.read(resource, old), patch))
        return self.update(resource, old, patches.apply(patches.APPLY, live, patch), subresource)

    def rescale(self, resource: Resource, old: Object, body: Object) -> Object:
        """PUT of `/scale`; the answer is the object, `scale.read` makes a Scale of it."""
        return self.store.update(resource, scale.applied(resource, old, body))

    def set_status(self, resource: Resource, old: Object, status: Object) -> Object:
        """A controller's write of the status; unchanged content is no write."""
        current = self.store.get(resource, *key_of(old))
        return self.store.update(resource, {**current, "status": status})

    def delete(self, resource: Resource, obj: Object, options: DeleteOptions | None = None) -> Object | None:
        """Delete, or begin to: the object as it stays for now, None when it is gone.

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
            metadata["deletionGracePeriodSeconds"] = grace
        marked = {**obj, "metadata": metadata}
        if resource == NAMESPACES:
            marked["status"] = {"phase": "Terminating"}
        return self.store.update(resource, marked)

    def _settle(self, resource: Resource, new: Object) -> Object:
        """Store an update; an object that only waited for its finalizers goes."""
        held = self.store.update(resource, new)
        metadata = held["metadata"]
        waits = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if "deletionTimestamp" in metadata and not waits and resource != NAMESPACES:
            self.store.remove(resource, *key_of(held))
        return held

    def _check_preconditions(self, resource: Resource, obj: Object, options: DeleteOptions) -> None:
        for name, wanted in options.preconditions.items():
            actual = obj["metadata"].get(name)
            if wanted and wanted != actual:
                label = {"uid": "UID", "resourceVersion": "ResourceVersion"}.get(name, name)
                why = f"the {label} in the precondition ({wanted}) does not match the {label} in record ({actual})"
                raise errors.conflict(resource, obj["metadata"]["name"], f"{why}. The object might have been deleted")

    def _grace(self, resource: Resource, obj: Object, options: DeleteOptions) -> int:
        """Seconds a pod has to stop; none for what no kubelet runs."""
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


def _check_same(resource: Resource, old: Object, patched: Object) -> None:
    """A patch that names an older version is a conflict (409); one that names another uid asks for a new one (422)."""
    held, metadata = old["metadata"], patched.get("metadata") or {}
    if metadata.get("resourceVersion", held["resourceVersion"]) != held["resourceVersion"]:
        raise errors.conflict(resource, held["name"])
    uid = metadata.get("uid", held["uid"])
    if uid != held["uid"]:
        cause = errors.wrong("metadata.uid", uid, "field is immutable")
        raise errors.invalid(resource.kind, resource.group, held["name"], [cause])

"""Applies the manifests of a service: as one author, who also removes what the files no longer contain.

A pod of a service is a process of this machine. What it cannot follow is an error here, never passed over.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hpad.api.quantity import QuantityError
from hpad.lab.cluster import admission, cgroups, decoding, ownership, schemas
from hpad.lab.cluster.resources import NAMESPACES, Object, Registry, Resource
from hpad.lab.cluster.store import Key, key_of
from hpad.lab.cluster.writes import Writer

MANAGER: Final = "hpad-cluster-files"
"""The field manager of the files' server-side apply: an object with fields of it comes from them."""
_OF_POD: Final = ("initContainers", "volumes", "securityContext", "hostAliases")
_OF_CONTAINER: Final = ("envFrom", "volumeMounts", "livenessProbe", "startupProbe", "lifecycle", "securityContext")
_PODS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")


@dataclass(frozen=True, slots=True)
class Files:
    """Writes by `writer` what files contain, of the kinds in `registry`."""

    writer: Writer
    registry: Registry

    def check(self, manifest: Object) -> None:
        """Raises ApiError if `apply` would, and ValueError for a field that a process of this machine cannot follow.

        Creates the namespace if needed, and changes nothing else.
        """
        resource, _ = self._resource(manifest)
        self._key(resource, manifest)
        for path in admission.unknown_fields(resource, manifest):
            raise ValueError(f"unknown field {path}")
        schema = schemas.of_kind(manifest["apiVersion"], manifest["kind"])
        fault = decoding.fault(schema, manifest) if schema is not None else None
        with contextlib.suppress(AttributeError, TypeError):  # fields of a wrong type, which `fault` names
            fault = next(unsupported(manifest), fault)
        if fault:
            raise ValueError(fault)
        self._write(self.writer.dry(), manifest)

    def apply(self, manifests: Sequence[Object]) -> tuple[list[str], list[str]]:
        """Creates and changes objects, and deletes earlier ones that no file contains; returns the names of both.

        A field that its file no longer has goes, too; one that others have set, such as the replicas of an HPA, stays.
        Check the manifests before; raises ApiError.
        """
        changed, applied = [], set()
        for manifest in manifests:
            resource, obj, is_changed = self._write(self.writer, manifest)
            applied.add((resource, key_of(obj)))
            if is_changed:
                changed.append(_name(resource, obj))
        removed = [(resource, obj) for resource, obj in self.earlier() if (resource, key_of(obj)) not in applied]
        for resource, obj in removed:
            self.writer.delete(resource, obj)
        return changed, [_name(*each) for each in removed]

    def earlier(self) -> Iterator[tuple[Resource, Object]]:
        """Yields the objects that come from files and are not being deleted."""
        for resource, obj in self.writer.store.everything():
            entries = map(ownership.Entry.read, obj["metadata"].get(ownership.MANAGED) or [])
            if "deletionTimestamp" not in obj["metadata"] and any(entry.manager.name == MANAGER for entry in entries):
                yield resource, obj

    def _write(self, writer: Writer, manifest: Object) -> tuple[Resource, Object, bool]:
        """Returns the kind, the object, and whether its content has changed."""
        resource, version = self._resource(manifest)
        namespace, name = self._key(resource, manifest)
        manifest = {**manifest, "metadata": {**manifest["metadata"], **({"namespace": namespace} if namespace else {})}}
        if namespace and writer.store.find(NAMESPACES, "", namespace) is None:
            self.writer.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        writer = writer.by(ownership.Author(MANAGER, manifest["apiVersion"], manifest))
        old = writer.store.find(resource, namespace, name)
        if old is None:
            return resource, writer.create(resource, namespace, manifest), True
        new = writer.apply(resource, old, version, manifest)
        return resource, new, any(old.get(part) != new.get(part) for part in ("spec", "data"))

    def _resource(self, manifest: Object) -> tuple[Resource, str]:
        api_version, kind = str(manifest.get("apiVersion") or ""), str(manifest.get("kind") or "")
        found = self.registry.of_kind(api_version, kind)
        if found is None or not found.is_stored:
            raise ValueError(f'there is no kind "{kind}" in version "{api_version}" here')
        return found, api_version.rpartition("/")[2]

    @staticmethod
    def _key(resource: Resource, manifest: Object) -> Key:
        metadata = manifest.get("metadata") or {}
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise ValueError("metadata.name is missing")
        return (metadata.get("namespace") or "default" if resource.namespaced else "", metadata["name"])


def unsupported(manifest: Object) -> Iterator[str]:
    """Yields a sentence for each field of a workload that a process of this machine does not follow.

    Fields that change nothing on one machine, such as ports and nodeSelector, are passed over.
    """
    if manifest["kind"] in ("Job", "CronJob", "DaemonSet"):
        yield f"{manifest['kind']} is not supported: there is no controller for it here"
    elif manifest["kind"] == "Pod":
        yield from _of_pod(manifest.get("spec") or {}, "spec")
    elif manifest["kind"] in _PODS:
        template = (manifest.get("spec") or {}).get("template") or {}
        yield from _of_pod(template.get("spec") or {}, "spec.template.spec")


def _of_pod(spec: dict[str, Any], at: str) -> Iterator[str]:
    yield from (_no_process(f"{at}.{name}") for name in _OF_POD if spec.get(name))
    for index, container in enumerate(spec.get("containers") or []):
        yield from _of_container(container, f"{at}.containers[{index}]")


def _of_container(container: dict[str, Any], at: str) -> Iterator[str]:
    if not container.get("command"):
        yield f"{at}.command is missing: images are not run, so name the program to start"
    yield from (_no_process(f"{at}.{name}") for name in _OF_CONTAINER if container.get(name))
    for index, entry in enumerate(container.get("env") or []):
        if set(entry.get("valueFrom") or {}) - {"fieldRef"}:
            yield (
                f"{at}.env[{index}].valueFrom: only fieldRef is supported; "
                "a command may read a file, such as a credential of the service"
            )
    try:
        cgroups.settings(container.get("resources") or {})
    except QuantityError as error:
        yield f"{at}.resources: {error}"


def _no_process(path: str) -> str:
    return f"{path} is not supported: a pod is a process of this machine"


def _name(resource: Resource, obj: Object) -> str:
    namespace, name = key_of(obj)
    return f"{resource.kind.lower()}/{name}" + (f" in {namespace}" if namespace not in ("", "default") else "")

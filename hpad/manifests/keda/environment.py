"""Environment variables of targets, from which KEDA reads parameters of triggers (`hostFromEnv`).

Source: KEDA 2.21, pkg/scaling/resolver/scale_resolvers.go: ResolveContainerEnv; Kubernetes API, Container v1.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

WORKLOADS: Final = ("Deployment", "StatefulSet", "ReplicaSet", "Rollout")


class Reference(msgspec.Struct, frozen=True, kw_only=True):
    """Where one parameter of a trigger is kept.

    place: for people, such as `key "pass" of Secret shop/rabbit`. file: the path at which hpad reads it, "" where the
    text is written in an object. mounts: a Secret or ConfigMap holds it, so that it can be mounted as that file.
    value: the text itself, where it is no Secret's. variable, container: of the target, still to be looked up.
    """

    place: str
    file: str = ""
    mounts: bool = False
    value: str | None = None
    variable: str = ""
    container: str = ""


class Objects:
    """The workloads and ConfigMaps among documents. `folder`: of the files in which hpad reads secrets."""

    def __init__(self, values: Iterable[Any], folder: str) -> None:
        self._folder = folder
        self._workloads: dict[tuple[str, str, str], list[Any]] = {}
        self._config_maps: dict[tuple[str, str], Mapping[str, Any]] = {}
        for value in values:
            if isinstance(value, dict) and isinstance(value.get("metadata"), dict):
                self._add(value, value["metadata"])

    def _add(self, value: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        kind, name = value.get("kind"), str(metadata.get("name"))
        namespace = str(metadata.get("namespace") or "default")
        if kind in WORKLOADS:
            containers = _within(value, "spec", "template", "spec").get("containers")
            self._workloads[str(kind), namespace, name] = containers if isinstance(containers, list) else []
        elif kind == "ConfigMap" and isinstance(value.get("data"), dict):
            self._config_maps[namespace, name] = value["data"]

    def path(self, *parts: str) -> str:
        """Returns the path of a file in the folder."""
        return posixpath.join(self._folder, *(part for part in parts if part not in ("", ".", "..")))

    def secret(self, namespace: str, name: str, key: str) -> Reference:
        """Returns the reference to a key of a Secret."""
        place = f'key "{key}" of Secret {namespace}/{name}'
        return Reference(place=place, file=self.path(namespace, name, key), mounts=True)

    def config_map(self, namespace: str, name: str, key: str) -> Reference:
        """Returns the reference to a key of a ConfigMap, with its text if the ConfigMap is known."""
        place, found = f'key "{key}" of ConfigMap {namespace}/{name}', self._config_maps.get((namespace, name), {})
        text = ("" if found[key] is None else str(found[key])) if key in found else None
        return Reference(place=place, file=self.path(namespace, name, key), mounts=True, value=text)

    def variable(self, target: tuple[str, str, str], container: str, name: str) -> Reference:
        """Returns the reference to a variable of the target's container: where the workload takes it from, if known.

        `target`: kind, namespace, name. `container` "" is the first one.
        """
        place = f'the variable "{name}" of the target\'s container'
        if target not in self._workloads:
            place += f", of {target[0]} {target[1]}/{target[2]}, which is not among the documents,"
        unknown = Reference(place=place)
        for each in self._workloads.get(target, []):
            if isinstance(each, dict) and (not container or each.get("name") == container):
                return self._of_container(target[1], each, name) or unknown
        return unknown

    def _of_container(self, namespace: str, container: Mapping[str, Any], name: str) -> Reference | None:
        entries = container.get("env")
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return self._of_entry(namespace, entry)
        held = container.get("envFrom")
        whole = [each for each in held if isinstance(each, dict)] if isinstance(held, list) else []
        if len(whole) != 1:
            return None  # which of several holds it is known to the cluster alone
        key = name.removeprefix(str(whole[0].get("prefix") or ""))
        for kind, found in (("secretRef", self.secret), ("configMapRef", self.config_map)):
            if source := _within(whole[0], kind).get("name"):
                return found(namespace, str(source), key)
        return None

    def _of_entry(self, namespace: str, entry: Mapping[str, Any]) -> Reference | None:
        if entry.get("value") is not None:
            place = f'the variable "{entry["name"]}" of the target\'s container'
            return Reference(place=place, value=str(entry["value"]))
        for kind, found in (("secretKeyRef", self.secret), ("configMapKeyRef", self.config_map)):
            source = _within(entry, "valueFrom", kind)
            if source.get("name") and source.get("key"):
                return found(namespace, str(source["name"]), str(source["key"]))
        return None


def _within(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Returns the object at a path, empty where there is none."""
    for name in names:
        found = value.get(name)
        value = found if isinstance(found, dict) else {}
    return value

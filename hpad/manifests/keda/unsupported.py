"""Notes on objects of KEDA that cannot be converted: kinds without a counterpart, and old versions."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.manifests.keda.fields import Note
from hpad.manifests.keda.scaledobject import API_VERSION, KIND

_GROUPS: Final = ("keda.sh", "keda.k8s.io")
_INSTEAD: Final = {
    "ScaledJob": "it starts Jobs, an HPA scales workloads that keep running: scale a Deployment by the same metric",
    "CloudEventSource": "hpad has events and series of its own",
    "ClusterCloudEventSource": "hpad has events and series of its own",
    "HTTPScaledObject": "hpad sees no requests; scale by a request rate from a source such as Prometheus",
}


def is_unsupported(value: Any) -> bool:
    """Returns whether a document is an object of KEDA, of those that are not carried over."""
    version = value.get("apiVersion") if isinstance(value, dict) else None
    group = version.partition("/")[0] if isinstance(version, str) else ""
    return group.endswith(_GROUPS)


def identity(value: Mapping[str, Any]) -> str:
    """Returns the object's kind, namespace and name, for messages."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        metadata = {}
    namespace = "" if str(value.get("kind", "")).startswith("Cluster") else f"{metadata.get('namespace') or 'default'}/"
    return f"{value.get('kind') or 'object'} {namespace}{metadata.get('name') or '?'}"


def notes(value: Mapping[str, Any]) -> Iterator[Note]:
    """Yields a note on the loss of the object."""
    kind = value.get("kind")
    if kind in _INSTEAD:
        yield Note("kind", f"a {kind} is not carried over: {_INSTEAD[kind]}")
    elif kind == KIND:
        yield Note(
            "apiVersion",
            f"{value['apiVersion']} is not carried over: only {API_VERSION}, of KEDA 2, is read; migrate the object "
            "first, as KEDA's documentation says (scaleTargetRef.deploymentName is scaleTargetRef.name there)",
        )
    else:
        yield Note("kind", f"{kind or 'an object without a kind'} is not carried over: there is no counterpart")

"""Notes on objects of KEDA that cannot be converted: kinds without a counterpart, and old versions."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.manifests.keda.conversion import Note
from hpad.manifests.keda.fields import ConversionError, Fields
from hpad.manifests.keda.scaledobject import API_VERSION, KIND

_GROUPS: Final = ("keda.sh", "keda.k8s.io")
_AUTHENTICATION: Final = ("TriggerAuthentication", "ClusterTriggerAuthentication")
_INSTEAD: Final = {
    "ScaledJob": "it starts Jobs, and an HPA scales workloads that keep running: scale a Deployment by the same metric",
    "CloudEventSource": "hpad has events and series of its own",
    "ClusterCloudEventSource": "hpad has events and series of its own",
    "HTTPScaledObject": "hpad sees no requests; scale by a request rate from a source such as Prometheus",
}


def is_unsupported(value: Any) -> bool:
    """Returns whether a document is an object of KEDA. Call it for any document but a ScaledObject of API_VERSION."""
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
    """Yields a note on the loss of the object, and on each parameter of a TriggerAuthentication."""
    kind = value.get("kind")
    if kind in _AUTHENTICATION:
        yield from _authentication(value)
    elif kind in _INSTEAD:
        yield Note("kind", f"a {kind} is not carried over: {_INSTEAD[kind]}")
    elif kind == KIND:
        yield Note(
            "apiVersion",
            f"{value['apiVersion']} is not carried over: only {API_VERSION}, of KEDA 2, is read; migrate the object "
            "first, as KEDA's documentation says (scaleTargetRef.deploymentName is scaleTargetRef.name there)",
        )
    else:
        yield Note("kind", f"{kind or 'an object without a kind'} is not carried over: there is no counterpart")


def _authentication(value: Mapping[str, Any]) -> Iterator[Note]:
    advice = "mount its secrets into hpad, and write them into the sources of the triggers that refer to it"
    yield Note("kind", f"a {value['kind']} is not carried over: {advice}")
    try:
        spec = Fields(value).object("spec")
        for name in spec:
            references = spec.objects(name) if name in ("secretTargetRef", "env", "configMapTargetRef") else []
            if not references:
                yield Note(spec.at(name), "is not carried over")
            for reference in references:
                yield Note(reference.at("parameter"), f"{_parameter(reference)} is not carried over")
    except ConversionError as error:
        yield Note("spec", f"is not carried over: {error.error}")


def _parameter(reference: Fields) -> str:
    place = " and ".join(f'{name} "{reference.text(name)}"' for name in ("name", "key") if name in reference)
    return f'"{reference.text("parameter") or "?"}"' + (f" ({place})" if place else "")

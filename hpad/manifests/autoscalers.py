"""Rewrites HPAs as Autoscalers, the kind of hpad that the built-in controller does not see, and back.

The annotations under `hpad.io/` become options. What belongs to the one object alone is left out: its status, what the
API server writes into its metadata, and its owners and finalizers, whose controllers do not know the other object.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.autoscaler import PREFIX
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.engine.controls import IN_SHADOW, MODE, PAUSED
from hpad.manifests.keda.fields import Note

_MODE: Final = MODE.removeprefix(PREFIX)
OF_THE_SERVER: Final = frozenset(
    {
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    }
)
_OF_OTHERS: Final = ("ownerReferences", "finalizers")
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_QUERY_LOST: Final = (
    'is lost: an HPA has no queries; give the source "{source}" in hpad\'s configuration a metric "{name}" with these '
    "parameters"
)


def to_document(hpa: HorizontalPodAutoscaler, metadata: Mapping[str, Any], *, shadow: bool = False) -> dict[str, Any]:
    """Returns the Autoscaler for an HPA, or an Autoscaler itself, as a document without a status.

    `metadata` is its whole metadata, with the options among the annotations. `shadow`: the Autoscaler gets the mode
    shadow, unless it is paused, which leaves the target alone as well.
    """
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    options = {name.removeprefix(PREFIX): text for name, text in annotations.items() if name.startswith(PREFIX)}
    if shadow and options.get(_MODE) != PAUSED:
        options[_MODE] = IN_SHADOW
    spec = {**_spec(hpa), **({"options": options} if options else {})}
    if hpa.spec.queries:
        spec["queries"] = v2.to_builtins(hpa.spec.queries)
    kept = {name: text for name, text in annotations.items() if not name.startswith(PREFIX)}
    moved = moved_metadata({**metadata, "annotations": kept})
    return {"apiVersion": v2.AUTOSCALER_VERSION, "kind": v2.AUTOSCALER, "metadata": moved, "spec": spec}


def to_hpa(autoscaler: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the HPA for an Autoscaler, without a status and without what an HPA cannot have."""
    return HorizontalPodAutoscaler(
        metadata=autoscaler.metadata, spec=msgspec.structs.replace(autoscaler.spec, queries=())
    )


def moved_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata for an object of another kind and the same name."""
    kept = {name: value for name, value in metadata.items() if name not in OF_THE_SERVER and name not in _OF_OTHERS}
    annotations = {name: text for name, text in (kept.pop("annotations", None) or {}).items() if name != LAST_APPLIED}
    return {**kept, "annotations": annotations} if annotations else kept


def notes(hpa: HorizontalPodAutoscaler, metadata: Mapping[str, Any], kind: str) -> Iterator[Note]:
    """Yields what the object of the other kind lacks: queries, and what other clients wrote into the metadata."""
    for index, query in enumerate(hpa.spec.queries if kind == v2.KIND else ()):
        yield Note(f"spec.queries[{index}]", _QUERY_LOST.format(source=query.source, name=query.name))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        named = f"{owner['kind']} {owner['name']}"
        text = f"is left out: {named} owns this object alone, and may create it again after it is deleted"
        if owner["kind"] == "ScaledObject":
            text += "; convert the ScaledObject instead"
        yield Note(f"metadata.ownerReferences[{index}]", text, lost=False)
    for index, name in enumerate(metadata.get("finalizers") or ()):
        text = f'is left out: what removes "{name}" before a deletion does not know the new object'
        yield Note(f"metadata.finalizers[{index}]", text, lost=False)


def _spec(hpa: HorizontalPodAutoscaler) -> dict[str, Any]:
    spec: dict[str, Any] = v2.to_builtins(msgspec.structs.replace(hpa.spec, queries=()))
    return spec

"""Rewrites HPAs as Autoscalers, the kind of hpad that the built-in controller does not see.

The annotations under `hpad.io/` become options. What belongs to the one object alone is left out: its status, what the
API server writes into its metadata, and its owners and finalizers, whose controllers do not know the other object.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.api.autoscaler import PREFIX
from hpad.engine.controls import IN_SHADOW, MODE, PAUSED
from hpad.manifests.keda.fields import Note

KIND: Final = "Autoscaler"
API_VERSION: Final = "hpad.io/v1"

_MODE: Final = MODE.removeprefix(PREFIX)
_OF_THE_SERVER: Final = frozenset(
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
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


def from_hpa(hpa: Mapping[str, Any], *, shadow: bool = False) -> dict[str, Any]:
    """Returns the Autoscaler for a whole HPA in autoscaling/v2, as a document.

    `shadow`: it gets the mode shadow, unless it is paused, which leaves the target alone as well.
    """
    metadata = moved_metadata(hpa["metadata"])
    annotations: dict[str, str] = metadata.pop("annotations", {})
    options = {name.removeprefix(PREFIX): text for name, text in annotations.items() if name.startswith(PREFIX)}
    if shadow and options.get(_MODE) != PAUSED:
        options[_MODE] = IN_SHADOW
    if kept := {name: text for name, text in annotations.items() if not name.startswith(PREFIX)}:
        metadata["annotations"] = kept
    spec = {**hpa["spec"], **({"options": options} if options else {})}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def moved_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata for an object of another kind and the same name."""
    kept = {name: value for name, value in metadata.items() if name not in _OF_THE_SERVER and name not in _OF_OTHERS}
    annotations = {name: text for name, text in (kept.pop("annotations", None) or {}).items() if name != _LAST_APPLIED}
    return {**kept, "annotations": annotations} if annotations else kept


def notes(metadata: Mapping[str, Any]) -> Iterator[Note]:
    """Yields what of the metadata is left out because other clients have written it."""
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        named = f"{owner['kind']} {owner['name']}"
        text = f"is left out: {named} owns this object alone, and may create it again after it is deleted"
        if owner["kind"] == "ScaledObject":
            text += "; convert the ScaledObject instead"
        yield Note(f"metadata.ownerReferences[{index}]", text, lost=False)
    for index, name in enumerate(metadata.get("finalizers") or ()):
        text = f'is left out: what removes "{name}" before a deletion does not know the new object'
        yield Note(f"metadata.finalizers[{index}]", text, lost=False)

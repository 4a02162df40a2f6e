"""Carries over the annotations and labels of a ScaledObject: pauses, switches, and those of others.

Source: KEDA 2.21, "Scaling Deployments, StatefulSets & Custom Resources"; scaledobject_types.go: getBoolAnnotation.
"""

from typing import Any, Final

from hpad.api.problem import Invalid, invalid
from hpad.engine import controls
from hpad.manifests.autoscalers import LAST_APPLIED, OF_THE_SERVER
from hpad.manifests.keda.conversion import Conversion
from hpad.manifests.keda.fields import FALSE, Fields

_PREFIX: Final = "autoscaling.keda.sh/"
_PAUSED, _PAUSED_REPLICAS = f"{_PREFIX}paused", f"{_PREFIX}paused-replicas"
_EXCLUDED_LABELS: Final = "scaledobject.keda.sh/hpa-excluded-labels"
_TRANSFER: Final = "scaledobject.keda.sh/transfer-hpa-ownership"
_SWITCHES: Final = {
    "paused-scale-in": "is carried over as spec.behavior.scaleDown.selectPolicy Disabled",
    "paused-scale-out": "is carried over as spec.behavior.scaleUp.selectPolicy Disabled",
    "force-activation": "is carried over as minReplicas of 1 or more",
}
_HANDLED: Final = (_PAUSED, _PAUSED_REPLICAS, _EXCLUDED_LABELS, *(_PREFIX + switch for switch in _SWITCHES))
_NEEDLESS: Final = {
    _TRANSFER: "is left out: the HPA keeps its name; in the API server it is the ScaledObject's, and goes with it: "
    "apply the new one once the ScaledObject is gone",
    "validations.keda.sh/hpa-ownership": "is left out: it has no effect without KEDA",
}


def pause(annotations: Fields, conversion: Conversion) -> None:
    """Sets the mode of an HPA whose ScaledObject is paused. Raises Invalid."""
    kept = f"is carried over as {controls.MODE}: {controls.PAUSED}"
    if _PAUSED_REPLICAS in annotations:
        count, field = annotations.text(_PAUSED_REPLICAS), annotations.at(_PAUSED_REPLICAS)
        if not count.removeprefix("-").isdigit():
            raise Invalid(invalid(field, count, "must be a whole number"))
        conversion.own[controls.MODE] = controls.PAUSED
        text = f"{kept}: hpad leaves the replicas as they are, which KEDA has set to {count}"
        conversion.note_change(field, text)
    if _PAUSED in annotations and annotations.text(_PAUSED) not in FALSE:
        conversion.own[controls.MODE] = controls.PAUSED
        conversion.note_change(annotations.at(_PAUSED), kept)


def switches(annotations: Fields, conversion: Conversion) -> set[str]:
    """Returns the names, without prefix, of KEDA's other switches that are on."""
    on = set()
    for name, instead in _SWITCHES.items():
        if (_PREFIX + name) in annotations and annotations.text(_PREFIX + name) not in FALSE:
            conversion.note_change(annotations.at(_PREFIX + name), instead)
            on.add(name)
    return on


def metadata_of(fields: Fields, name: Any, own: dict[str, str], conversion: Conversion) -> dict[str, Any]:
    """Returns the HPA's metadata: name, namespace, labels and annotations. `own`: the annotations for hpad."""
    for each in OF_THE_SERVER:
        fields.get(each)
    finalizers = fields.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(str(each).endswith(".keda.sh") for each in finalizers):
        conversion.note_loss(fields.at("finalizers"), "is not carried over")
    annotations = fields.object("annotations")
    metadata: dict[str, Any] = {"name": name}
    metadata |= {key: fields.get(key) for key in ("namespace",) if fields.get(key)}
    if labels := _labels(fields.get("labels"), annotations, conversion):
        metadata["labels"] = labels
    kept = _annotations(annotations, own, conversion)
    return {**metadata, "annotations": kept} if kept else metadata


def _labels(labels: Any, annotations: Fields, conversion: Conversion) -> Any:
    """Returns the labels without those that an annotation keeps from the HPA."""
    excluded = [each.strip() for each in annotations.text(_EXCLUDED_LABELS).split(",")]
    if not isinstance(labels, dict):
        return labels
    labels = {name: "" if value is None else value for name, value in labels.items()}
    if _EXCLUDED_LABELS in annotations:
        conversion.note_change(annotations.at(_EXCLUDED_LABELS), "is left out: the HPA has the other labels")
        conversion.note_change("metadata.labels", f"are carried over without {', '.join(excluded)}")
    return {name: value for name, value in labels.items() if name not in excluded}


def _annotations(fields: Fields, own: dict[str, str], conversion: Conversion) -> dict[str, Any]:
    """Returns the annotations without those of KEDA, with those for hpad."""
    kept: dict[str, Any] = {}
    for name in fields:
        text, field = fields.get(name), fields.at(name)
        if name in own:
            conversion.note_loss(field, f"is not carried over: KEDA's fields set this annotation to {own[name]}")
        elif name in _NEEDLESS:
            conversion.note_change(field, _NEEDLESS[name])
        elif name == LAST_APPLIED:
            continue
        elif name in _HANDLED:
            if name not in (_EXCLUDED_LABELS, _PAUSED_REPLICAS) and str(text) in FALSE:
                conversion.note_change(field, "is left out: it is off")
        elif "keda.sh/" in name:
            conversion.note_loss(field, "is not carried over")
        else:
            kept[name] = text
    return kept | own

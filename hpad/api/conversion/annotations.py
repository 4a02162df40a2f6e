"""The annotations in which autoscaling/v1 and v2beta1 carry fields of later versions.

They are read as Go's encoding/json reads them: the case of field names is ignored, and so are unknown fields. They are
written as Go writes them: no spaces, sorted maps, `<`, `>` and `&` escaped. The behavior is in Kubernetes' internal
form, with Go's field names (`StabilizationWindowSeconds`) and null for missing fields.
Source: Kubernetes 1.36, pkg/apis/autoscaling/annotations.go, helpers.go and v1/conversion.go.
"""

import typing
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api import strict
from hpad.api.conversion import flat
from hpad.api.metadata import ObjectMeta
from hpad.api.quantity import Quantity

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
METRICS: Final = f"{_PREFIX}metrics"
BEHAVIOR: Final = f"{_PREFIX}behavior"
CURRENT_METRICS: Final = f"{_PREFIX}current-metrics"
CONDITIONS: Final = f"{_PREFIX}conditions"


class _Wire(msgspec.Struct, frozen=True, rename="pascal"):
    """The base of the structs of this file. Their attributes have the names of those in `hpad.api.hpa`."""


class ScalingPolicy(_Wire, frozen=True):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(_Wire, frozen=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: Quantity | None = None


class BehaviorAnnotation(_Wire, frozen=True):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


_TYPES: Final[Mapping[str, Any]] = {
    METRICS: tuple[flat.FlatMetricSpec, ...],
    BEHAVIOR: BehaviorAnnotation,
    CURRENT_METRICS: tuple[flat.FlatMetricStatus, ...],
    CONDITIONS: tuple[v2.HorizontalPodAutoscalerCondition, ...],
}
"""The types of the annotations that carry fields."""

# The API server removes these two as well, although no version reads or writes them.
_REMOVED: Final = {*_TYPES, f"{_PREFIX}scale-down-tolerance", f"{_PREFIX}scale-up-tolerance"}


def without_fields(metadata: ObjectMeta) -> ObjectMeta:
    """Returns the metadata without the annotations that carry fields.

    They have no meaning in autoscaling/v2. Source: helpers.go: DropRoundTripHorizontalPodAutoscalerAnnotations.
    """
    kept = {name: text for name, text in (metadata.annotations or {}).items() if name not in _REMOVED}
    return msgspec.structs.replace(metadata, annotations=kept or None)


def read(metadata: ObjectMeta, name: str) -> Any:
    """Returns the value of an annotation, of its type in _TYPES; None where it is missing or cannot be read.

    Never raises. An annotation that is empty, not JSON, or of another shape is ignored, as in Kubernetes
    (v1/conversion.go: Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler).
    """
    text = (metadata.annotations or {}).get(name)
    return None if text is None else _read(text, _TYPES[name])


def ignored(present: Mapping[str, Any]) -> list[str]:
    """Returns the names of the annotations that carry fields and cannot be read; empty ones are left out."""
    texts = {name: present.get(name) for name in _TYPES}
    filled = {name: text for name, text in texts.items() if isinstance(text, str) and text.strip()}
    return [name for name, text in filled.items() if _read(text, _TYPES[name]) is None]


def _read(text: str, kind: Any) -> Any:
    try:
        value = msgspec.json.decode(text)
        if value is None:  # Go reads null as an empty list, or as a struct without any field
            value = [] if typing.get_origin(kind) is tuple else {}
        return msgspec.convert(strict.folded(value, kind), kind, dec_hook=v2.dec_hook)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def write(value: Any) -> str:
    """Returns the annotation's text for a struct, or a tuple of structs."""
    text = msgspec.json.encode(value, enc_hook=v2.enc_hook, order="deterministic").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def read_behavior(metadata: ObjectMeta) -> v2.HorizontalPodAutoscalerBehavior | None:
    """Returns the behavior of the annotation; None where it has no rules for any direction."""
    behavior = read(metadata, BEHAVIOR)
    if behavior is None or behavior == BehaviorAnnotation():
        return None
    return msgspec.convert(behavior, v2.HorizontalPodAutoscalerBehavior, from_attributes=True)

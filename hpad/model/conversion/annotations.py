"""The annotations in which older versions of an HPA carry what their own fields have no room for.

They are read as Go's encoding/json reads them: the case of a field's name is not looked at, and unknown fields are
left out. They are written as Go writes them: no spaces, sorted maps, `<`, `>` and `&` escaped.
"""

import typing
from typing import Any, Final, TypeVar

import msgspec

from hpad.model import hpa as v2
from hpad.model import strict
from hpad.model.meta import ObjectMeta

METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR: Final = "autoscaling.alpha.kubernetes.io/behavior"
CURRENT_METRICS: Final = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS: Final = "autoscaling.alpha.kubernetes.io/conditions"

ROUND_TRIP: Final = frozenset(
    {METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS, "autoscaling.alpha.kubernetes.io/update-policy"}
)
"""The annotations that stand for fields; in autoscaling/v2 they mean nothing, and the API server drops them."""

T = TypeVar("T")


def without_fields(metadata: ObjectMeta) -> ObjectMeta:
    """The metadata without the annotations that stand for fields."""
    kept = {name: text for name, text in (metadata.annotations or {}).items() if name not in ROUND_TRIP}
    return msgspec.structs.replace(metadata, annotations=kept or None)


def read(metadata: ObjectMeta, name: str, kind: type[T]) -> T | None:
    """What the annotation of that name says; None where it is absent, or says nothing that can be read. Never raises.

    An annotation that is empty, no JSON, or of another shape is ignored, as by Kubernetes (autoscaling/v1,
    conversion.go: Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler).
    """
    text = (metadata.annotations or {}).get(name)
    return None if text is None else _read(text, kind)


def ignored(text: str, kind: Any) -> bool:
    """Whether an annotation says something that `read` cannot read; an empty one says nothing."""
    return bool(text.strip()) and _read(text, kind) is None


def _read(text: str, kind: type[T]) -> T | None:
    try:
        value = strict.folded(_or_zero(msgspec.json.decode(text), kind), kind)
        return msgspec.convert(value, kind, dec_hook=v2.dec_hook)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _or_zero(value: Any, kind: Any) -> Any:
    """What Go makes of null: an empty list, or a struct without any field."""
    if value is not None:
        return value
    return [] if typing.get_origin(kind) is tuple else {}


def write(value: Any) -> str:
    """The annotation's text for a struct, or a tuple of them."""
    text = msgspec.json.encode(value, enc_hook=v2.enc_hook, order="deterministic").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

"""The annotations in which autoscaling/v1 and v2beta1 carry fields of later versions.

They are read as Go's encoding/json reads them: the case of field names is ignored, and so are unknown fields. They are
written as Go writes them: no spaces, sorted maps, `<`, `>` and `&` escaped. `spec.behavior` is in Kubernetes' internal
form, with Go's field names (`StabilizationWindowSeconds`) and null for missing fields.
"""

import typing
from typing import Any, Final, TypeVar

import msgspec

from hpad.api import hpa as v2
from hpad.api import strict
from hpad.api.metadata import ObjectMeta
from hpad.api.quantity import Quantity

METRICS: Final = "autoscaling.alpha.kubernetes.io/metrics"
BEHAVIOR: Final = "autoscaling.alpha.kubernetes.io/behavior"
CURRENT_METRICS: Final = "autoscaling.alpha.kubernetes.io/current-metrics"
CONDITIONS: Final = "autoscaling.alpha.kubernetes.io/conditions"

ROUND_TRIP: Final = frozenset(
    {METRICS, BEHAVIOR, CURRENT_METRICS, CONDITIONS, "autoscaling.alpha.kubernetes.io/update-policy"}
)
"""The annotations that carry fields. In autoscaling/v2 they have no meaning, and the API server drops them."""

T = TypeVar("T")


def without_fields(metadata: ObjectMeta) -> ObjectMeta:
    """Returns the metadata without the annotations that carry fields."""
    kept = {name: text for name, text in (metadata.annotations or {}).items() if name not in ROUND_TRIP}
    return msgspec.structs.replace(metadata, annotations=kept or None)


def read(metadata: ObjectMeta, name: str, kind: type[T]) -> T | None:
    """Returns the value of an annotation; None where it is missing or cannot be read. Never raises.

    An annotation that is empty, not JSON, or of another shape is ignored, as in Kubernetes (autoscaling/v1,
    conversion.go: Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler).
    """
    text = (metadata.annotations or {}).get(name)
    return None if text is None else _read(text, kind)


def ignored(text: str, kind: Any) -> bool:
    """Whether an annotation has a value that `read` cannot read."""
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


class _Wire(msgspec.Struct, frozen=True, rename="pascal"):
    """How every struct of this file meets JSON."""


class ScalingPolicy(_Wire, frozen=True):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class ScalingRules(_Wire, frozen=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[ScalingPolicy, ...] | None = None
    tolerance: Quantity | None = None


class Behavior(_Wire, frozen=True):
    scale_up: ScalingRules | None = None
    scale_down: ScalingRules | None = None


def to_v2(behavior: Behavior | None) -> v2.HorizontalPodAutoscalerBehavior | None:
    """The same rules under the names of the API; without rules for a direction there is no behavior at all."""
    if behavior is None or behavior == Behavior():
        return None
    return v2.HorizontalPodAutoscalerBehavior(_rules_to_v2(behavior.scale_up), _rules_to_v2(behavior.scale_down))


def from_v2(behavior: v2.HorizontalPodAutoscalerBehavior) -> Behavior:
    """The same rules under Go's names."""
    return Behavior(_rules_from_v2(behavior.scale_up), _rules_from_v2(behavior.scale_down))


def _rules_to_v2(rules: ScalingRules | None) -> v2.HPAScalingRules | None:
    if rules is None:
        return None
    policies = None
    if rules.policies is not None:
        policies = tuple(v2.HPAScalingPolicy(each.type, each.value, each.period_seconds) for each in rules.policies)
    return v2.HPAScalingRules(rules.stabilization_window_seconds, rules.select_policy, policies, rules.tolerance)


def _rules_from_v2(rules: v2.HPAScalingRules | None) -> ScalingRules | None:
    if rules is None:
        return None
    policies = None
    if rules.policies is not None:
        policies = tuple(ScalingPolicy(each.type, each.value, each.period_seconds) for each in rules.policies)
    return ScalingRules(rules.stabilization_window_seconds, rules.select_policy, policies, rules.tolerance)

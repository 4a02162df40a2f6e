"""HPAs in autoscaling/v1 (one CPU target, everything else in annotations) and v2beta1 (metrics in the flat form).

Both are converted to autoscaling/v2, and v2 to v1. Source of v1: Kubernetes 1.36, pkg/apis/autoscaling/annotations.go,
helpers.go and v1/conversion.go. Kubernetes removed v2beta1 in 1.25 (Deprecated API Migration Guide); its metrics have
the form of the annotations of v1. v2beta2 has the fields of v2 without `tolerance` and needs no conversion. A
conversion sets no default but the CPU target that autoscaling/v1 implies.

The annotations are read as Go's encoding/json reads them: the case of field names is ignored, and so are unknown
fields. They are written as Go writes them: no spaces, sorted maps, `<`, `>` and `&` escaped. The behavior is in
Kubernetes' internal form, with Go's field names (`StabilizationWindowSeconds`) and null for missing fields.
"""

import typing
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api import flat, strict
from hpad.api import hpa as v2
from hpad.api.hpa import DEFAULT_METRIC, CrossVersionObjectReference, HorizontalPodAutoscalerCondition
from hpad.api.metadata import ObjectMeta
from hpad.api.quantity import Quantity

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
METRICS: Final = f"{_PREFIX}metrics"
BEHAVIOR: Final = f"{_PREFIX}behavior"
CURRENT_METRICS: Final = f"{_PREFIX}current-metrics"
CONDITIONS: Final = f"{_PREFIX}conditions"


class _Internal(msgspec.Struct, frozen=True, rename="pascal"):
    """The base of the structs of the annotations. Their attributes have the names of those in `hpad.api.hpa`."""


class _ScalingPolicy(_Internal, frozen=True):
    type: str = ""
    value: int = 0
    period_seconds: int = 0


class _ScalingRules(_Internal, frozen=True):
    stabilization_window_seconds: int | None = None
    select_policy: str | None = None
    policies: tuple[_ScalingPolicy, ...] | None = None
    tolerance: Quantity | None = None


class _BehaviorAnnotation(_Internal, frozen=True):
    scale_up: _ScalingRules | None = None
    scale_down: _ScalingRules | None = None


_TYPES: Final[Mapping[str, Any]] = {
    METRICS: tuple[flat.FlatMetricSpec, ...],
    BEHAVIOR: _BehaviorAnnotation,
    CURRENT_METRICS: tuple[flat.FlatMetricStatus, ...],
    CONDITIONS: tuple[v2.HorizontalPodAutoscalerCondition, ...],
}
"""The types of the annotations that carry fields."""

# The API server removes these two as well, although no version reads or writes them.
_REMOVED: Final = {*_TYPES, f"{_PREFIX}scale-down-tolerance", f"{_PREFIX}scale-up-tolerance"}


def without_annotations(metadata: ObjectMeta) -> ObjectMeta:
    """Returns the metadata without the annotations that carry fields.

    They have no meaning in autoscaling/v2. Source: helpers.go: DropRoundTripHorizontalPodAutoscalerAnnotations.
    """
    kept = {name: text for name, text in (metadata.annotations or {}).items() if name not in _REMOVED}
    return msgspec.structs.replace(metadata, annotations=kept or None)


def _annotation(metadata: ObjectMeta, name: str) -> Any:
    """Returns the value of an annotation, of its type in _TYPES; None where it is missing or cannot be read.

    Never raises. An annotation that is empty, not JSON, or of another shape is ignored, as in Kubernetes
    (v1/conversion.go: Convert_v1_HorizontalPodAutoscaler_To_autoscaling_HorizontalPodAutoscaler).
    """
    text = (metadata.annotations or {}).get(name)
    return None if text is None else _decoded(text, _TYPES[name])


def ignored_annotations(present: Mapping[str, Any]) -> list[str]:
    """Returns the names of the annotations that carry fields and cannot be read; empty ones are left out."""
    texts = {name: present.get(name) for name in _TYPES}
    filled = {name: text for name, text in texts.items() if isinstance(text, str) and text.strip()}
    return [name for name, text in filled.items() if _decoded(text, _TYPES[name]) is None]


def _decoded(text: str, kind: Any) -> Any:
    try:
        value = msgspec.json.decode(text)
        if value is None:  # Go reads null as an empty list, or as a struct without any field
            value = [] if typing.get_origin(kind) is tuple else {}
        return msgspec.convert(strict.folded(value, kind), kind, dec_hook=v2.dec_hook)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _annotation_text(value: Any) -> str:
    """Returns the annotation's text for a struct, or a tuple of structs."""
    text = msgspec.json.encode(value, enc_hook=v2.enc_hook, order="deterministic").decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _behavior(metadata: ObjectMeta) -> v2.HorizontalPodAutoscalerBehavior | None:
    """Returns the behavior of the annotation; None where it has no rules for any direction."""
    behavior = _annotation(metadata, BEHAVIOR)
    if behavior is None or behavior == _BehaviorAnnotation():
        return None
    return msgspec.convert(behavior, v2.HorizontalPodAutoscalerBehavior, from_attributes=True)


V1_VERSION = "autoscaling/v1"


class _Spec(flat.FlatWire, frozen=True):
    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: int | None = None
    max_replicas: int = msgspec.field(default_factory=int)
    sync_period_seconds: int | None = None


class _Status(flat.FlatWire, frozen=True):
    observed_generation: int | None = None
    last_scale_time: datetime | None = None
    current_replicas: int = msgspec.field(default_factory=int)
    desired_replicas: int = msgspec.field(default_factory=int)


class _HPA(flat.FlatWire, frozen=True):
    kind: str = msgspec.field(default_factory=lambda: v2.KIND)
    api_version: str = msgspec.field(default_factory=lambda: V1_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class V1Spec(_Spec, frozen=True):
    target_cpu_utilization_percentage: int | None = msgspec.field(default=None, name="targetCPUUtilizationPercentage")


class V1Status(_Status, frozen=True):
    current_cpu_utilization_percentage: int | None = msgspec.field(default=None, name="currentCPUUtilizationPercentage")


class V1(_HPA, frozen=True):
    """autoscaling/v1 HorizontalPodAutoscaler."""

    spec: V1Spec = msgspec.field(default_factory=V1Spec)
    status: V1Status = msgspec.field(default_factory=V1Status)


class V2beta1Spec(_Spec, frozen=True):
    metrics: tuple[flat.FlatMetricSpec, ...] = ()


class V2beta1Status(_Status, frozen=True):
    current_metrics: tuple[flat.FlatMetricStatus, ...] | None = None
    conditions: tuple[HorizontalPodAutoscalerCondition, ...] = ()


class V2beta1(_HPA, frozen=True):
    """autoscaling/v2beta1 HorizontalPodAutoscaler. It is only read, so it needs no `api_version` of its own."""

    spec: V2beta1Spec = msgspec.field(default_factory=V2beta1Spec)
    status: V2beta1Status = msgspec.field(default_factory=V2beta1Status)


def from_v1(hpa: V1) -> v2.HorizontalPodAutoscaler:
    """Returns the HPA in autoscaling/v2.

    The metrics of the annotation come first, then the CPU target of the spec; without either, CPU at 80 %.
    """
    listed = _annotation(hpa.metadata, METRICS)
    metrics = (*map(flat.to_v2, listed or ()), *_cpu_target(hpa.spec))
    readings = _annotation(hpa.metadata, CURRENT_METRICS)
    current = _cpu_status(hpa.status) if readings is None else tuple(map(flat.to_v2, readings))
    conditions = _annotation(hpa.metadata, CONDITIONS)
    return _to_v2(hpa, metrics or (DEFAULT_METRIC,), current, conditions or ())


def from_v2beta1(hpa: V2beta1) -> v2.HorizontalPodAutoscaler:
    """Returns the HPA in autoscaling/v2."""
    readings = hpa.status.current_metrics
    current = None if readings is None else tuple(map(flat.to_v2, readings))
    return _to_v2(hpa, tuple(map(flat.to_v2, hpa.spec.metrics)), current, hpa.status.conditions)


def _to_v2(
    hpa: V1 | V2beta1,
    metrics: tuple[v2.MetricSpec, ...],
    current_metrics: tuple[v2.MetricStatus, ...] | None,
    conditions: tuple[HorizontalPodAutoscalerCondition, ...],
) -> v2.HorizontalPodAutoscaler:
    return v2.HorizontalPodAutoscaler(
        metadata=without_annotations(hpa.metadata),
        spec=v2.HorizontalPodAutoscalerSpec(
            **_common(hpa.spec, _Spec),
            metrics=metrics,
            behavior=_behavior(hpa.metadata),
        ),
        status=v2.HorizontalPodAutoscalerStatus(
            **_common(hpa.status, _Status),
            current_metrics=current_metrics,
            conditions=conditions,
        ),
    )


def to_v1(hpa: v2.HorizontalPodAutoscaler) -> V1:
    """Returns the HPA in autoscaling/v1, annotations written as Kubernetes writes them.

    The first CPU target in percent becomes the field of the spec; conversion back puts it after the other metrics.
    """
    cpu = next((metric for metric in hpa.spec.metrics if _cpu_percent(metric) is not None), None)
    # Kubernetes drops a second CPU target; here it stays in the annotation, so that the round trip loses nothing.
    others = tuple(flat.from_v2(metric) for metric in hpa.spec.metrics if metric is not cpu)
    behavior, status = hpa.spec.behavior, hpa.status
    fields = {
        BEHAVIOR: behavior and msgspec.convert(behavior, _BehaviorAnnotation, from_attributes=True),
        METRICS: others,
        CURRENT_METRICS: tuple(map(flat.from_v2, status.current_metrics or ())),
        CONDITIONS: status.conditions,
    }
    texts = {name: _annotation_text(value) for name, value in fields.items() if value}
    metadata = without_annotations(hpa.metadata)
    return V1(
        metadata=msgspec.structs.replace(metadata, annotations={**(metadata.annotations or {}), **texts} or None),
        spec=V1Spec(
            **_common(hpa.spec, _Spec),
            target_cpu_utilization_percentage=None if cpu is None else _cpu_percent(cpu),
        ),
        status=V1Status(
            **_common(status, _Status),
            current_cpu_utilization_percentage=_current_cpu_percent(status.current_metrics or ()),
        ),
    )


def _common(part: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the fields that a spec or status has in every version: those of `kind`."""
    return {name: getattr(part, name) for name in kind.__struct_fields__}


def _cpu_target(spec: V1Spec) -> Iterable[v2.MetricSpec]:
    percent = spec.target_cpu_utilization_percentage
    if percent is not None:
        target = v2.MetricTarget(type="Utilization", average_utilization=percent)
        yield v2.MetricSpec(type="Resource", resource=v2.ResourceMetricSource("cpu", target))


def _cpu_status(status: V1Status) -> tuple[v2.MetricStatus, ...] | None:
    percent = status.current_cpu_utilization_percentage
    if percent is None:
        return None
    current = v2.MetricValueStatus(average_utilization=percent)
    return (v2.MetricStatus(type="Resource", resource=v2.ResourceMetricStatus("cpu", current)),)


def _cpu_percent(metric: v2.MetricSpec) -> int | None:
    cpu = metric.type == "Resource" and metric.resource is not None and metric.resource.name == "cpu"
    return metric.resource.target.average_utilization if cpu and metric.resource is not None else None


def _current_cpu_percent(metrics: Iterable[v2.MetricStatus]) -> int | None:
    """Returns the utilization of the last CPU metric that has one; None without any."""
    sources = [metric.resource for metric in metrics if metric.type == "Resource" and metric.resource is not None]
    percents = [source.current.average_utilization for source in sources if source.name == "cpu"]
    return next((percent for percent in reversed(percents) if percent is not None), None)

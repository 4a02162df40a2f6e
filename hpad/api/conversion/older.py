"""HPAs in autoscaling/v1 (one CPU target, everything else in annotations) and v2beta1 (metrics in the flat form).

Both are converted to autoscaling/v2. Source of v1: Kubernetes 1.36, pkg/apis/autoscaling/v1/conversion.go. Kubernetes
removed v2beta1 in 1.25 (Deprecated API Migration Guide); its metrics have the form of the annotations of v1.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from hpad.api import hpa as v2
from hpad.api.conversion import annotations, flat
from hpad.api.hpa import DEFAULT_METRIC, CrossVersionObjectReference, HorizontalPodAutoscalerCondition
from hpad.api.metadata import ObjectMeta

V1_VERSION = "autoscaling/v1"


class _Spec(flat.FlatWire, frozen=True):
    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: int | None = None
    max_replicas: int = msgspec.field(default_factory=int)


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
    listed = annotations.read(hpa.metadata, annotations.METRICS)
    metrics = (*map(flat.to_v2, listed or ()), *_cpu_target(hpa.spec))
    readings = annotations.read(hpa.metadata, annotations.CURRENT_METRICS)
    current = _cpu_status(hpa.status) if readings is None else tuple(map(flat.to_v2, readings))
    conditions = annotations.read(hpa.metadata, annotations.CONDITIONS)
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
        metadata=annotations.without_fields(hpa.metadata),
        spec=v2.HorizontalPodAutoscalerSpec(
            **_common(hpa.spec, _Spec),
            metrics=metrics,
            behavior=annotations.read_behavior(hpa.metadata),
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
        annotations.BEHAVIOR: behavior
        and msgspec.convert(behavior, annotations.BehaviorAnnotation, from_attributes=True),
        annotations.METRICS: others,
        annotations.CURRENT_METRICS: tuple(map(flat.from_v2, status.current_metrics or ())),
        annotations.CONDITIONS: status.conditions,
    }
    texts = {name: annotations.write(value) for name, value in fields.items() if value}
    metadata = annotations.without_fields(hpa.metadata)
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

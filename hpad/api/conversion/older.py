"""HPAs in autoscaling/v1 (one CPU target, everything else in annotations) and v2beta1 (metrics in the flat form).

Both are converted to autoscaling/v2. Source: Kubernetes 1.36, pkg/apis/autoscaling/v1/conversion.go and v2beta1.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.conversion import annotations, flat
from hpad.api.hpa import DEFAULT_METRIC, CrossVersionObjectReference, HorizontalPodAutoscalerCondition
from hpad.api.metadata import ObjectMeta

V1_VERSION = "autoscaling/v1"


class HorizontalPodAutoscalerSpec(flat.Wire, frozen=True):
    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: int | None = None
    max_replicas: int = msgspec.field(default_factory=int)
    target_cpu_utilization_percentage: int | None = msgspec.field(default=None, name="targetCPUUtilizationPercentage")


class HorizontalPodAutoscalerStatus(flat.Wire, frozen=True):
    observed_generation: int | None = None
    last_scale_time: datetime | None = None
    current_replicas: int = msgspec.field(default_factory=int)
    desired_replicas: int = msgspec.field(default_factory=int)
    current_cpu_utilization_percentage: int | None = msgspec.field(default=None, name="currentCPUUtilizationPercentage")


class HorizontalPodAutoscaler(flat.Wire, frozen=True):
    """autoscaling/v1 HorizontalPodAutoscaler."""

    kind: str = msgspec.field(default_factory=lambda: v2.KIND)
    api_version: str = msgspec.field(default_factory=lambda: V1_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)
    status: HorizontalPodAutoscalerStatus = msgspec.field(default_factory=HorizontalPodAutoscalerStatus)


_TYPES: Final[Mapping[str, Any]] = {
    annotations.METRICS: tuple[flat.MetricSpec, ...],
    annotations.BEHAVIOR: annotations.Behavior,
    annotations.CURRENT_METRICS: tuple[flat.MetricStatus, ...],
    annotations.CONDITIONS: tuple[HorizontalPodAutoscalerCondition, ...],
}
"""The types of the annotations that carry fields."""


def ignored(present: Mapping[str, Any]) -> list[str]:
    """Returns the annotations that carry fields but cannot be read, so that Kubernetes ignores them."""
    texts = {name: present.get(name) for name in _TYPES}
    return [name for name, text in texts.items() if isinstance(text, str) and annotations.ignored(text, _TYPES[name])]


def from_v1(hpa: HorizontalPodAutoscaler) -> v2.HorizontalPodAutoscaler:
    """The HPA in autoscaling/v2.

    The metrics of the annotation come first, then the CPU target of the spec; without either, CPU at 80 %.
    """
    listed = annotations.read(hpa.metadata, annotations.METRICS, tuple[flat.MetricSpec, ...])
    metrics = (*map(flat.to_v2, listed or ()), *_cpu_target(hpa.spec))
    behavior = annotations.read(hpa.metadata, annotations.BEHAVIOR, annotations.Behavior)
    return v2.HorizontalPodAutoscaler(
        metadata=annotations.without_fields(hpa.metadata),
        spec=v2.HorizontalPodAutoscalerSpec(
            scale_target_ref=hpa.spec.scale_target_ref,
            min_replicas=hpa.spec.min_replicas,
            max_replicas=hpa.spec.max_replicas,
            metrics=metrics or (DEFAULT_METRIC,),
            behavior=annotations.to_v2(behavior),
        ),
        status=_status_to_v2(hpa),
    )


def to_v1(hpa: v2.HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """The HPA in autoscaling/v1, annotations written as Kubernetes writes them.

    The first CPU target in percent becomes the field of the spec; conversion back puts it after the other metrics.
    """
    cpu = next((metric for metric in hpa.spec.metrics if _cpu_percent(metric) is not None), None)
    others = tuple(flat.from_v2(metric) for metric in hpa.spec.metrics if metric is not cpu)
    behavior, status = hpa.spec.behavior, hpa.status
    added = {
        annotations.METRICS: others,
        annotations.BEHAVIOR: None if behavior is None else annotations.from_v2(behavior),
        annotations.CURRENT_METRICS: tuple(map(flat.status_from_v2, status.current_metrics or ())),
        annotations.CONDITIONS: status.conditions,
    }
    return HorizontalPodAutoscaler(
        metadata=_annotated(hpa.metadata, {name: annotations.write(value) for name, value in added.items() if value}),
        spec=HorizontalPodAutoscalerSpec(
            scale_target_ref=hpa.spec.scale_target_ref,
            min_replicas=hpa.spec.min_replicas,
            max_replicas=hpa.spec.max_replicas,
            target_cpu_utilization_percentage=None if cpu is None else _cpu_percent(cpu),
        ),
        status=HorizontalPodAutoscalerStatus(
            observed_generation=status.observed_generation,
            last_scale_time=status.last_scale_time,
            current_replicas=status.current_replicas,
            desired_replicas=status.desired_replicas,
            current_cpu_utilization_percentage=_cpu_reading(status.current_metrics or ()),
        ),
    )


def _annotated(metadata: ObjectMeta, added: dict[str, str]) -> ObjectMeta:
    kept = annotations.without_fields(metadata)
    return msgspec.structs.replace(kept, annotations={**(kept.annotations or {}), **added} or None)


def _cpu_target(spec: HorizontalPodAutoscalerSpec) -> Iterable[v2.MetricSpec]:
    percent = spec.target_cpu_utilization_percentage
    if percent is not None:
        target = v2.MetricTarget(type="Utilization", average_utilization=percent)
        yield v2.MetricSpec(type="Resource", resource=v2.ResourceMetricSource("cpu", target))


def _cpu_percent(metric: v2.MetricSpec) -> int | None:
    cpu = metric.type == "Resource" and metric.resource is not None and metric.resource.name == "cpu"
    return metric.resource.target.average_utilization if cpu and metric.resource is not None else None


def _cpu_reading(metrics: Iterable[v2.MetricStatus]) -> int | None:
    """The last CPU reading in percent, where there is one."""
    found = None
    for metric in metrics:
        if metric.type == "Resource" and metric.resource is not None and metric.resource.name == "cpu":
            percent = metric.resource.current.average_utilization
            found = found if percent is None else percent
    return found


def _status_to_v2(hpa: HorizontalPodAutoscaler) -> v2.HorizontalPodAutoscalerStatus:
    status, percent = hpa.status, hpa.status.current_cpu_utilization_percentage
    statuses = annotations.read(hpa.metadata, annotations.CURRENT_METRICS, tuple[flat.MetricStatus, ...])
    metrics: tuple[v2.MetricStatus, ...] | None = None
    if statuses is not None:
        metrics = tuple(map(flat.status_to_v2, statuses))
    elif percent is not None:
        reading = v2.ResourceMetricStatus("cpu", v2.MetricValueStatus(average_utilization=percent))
        metrics = (v2.MetricStatus(type="Resource", resource=reading),)
    conditions = tuple[HorizontalPodAutoscalerCondition, ...]
    return v2.HorizontalPodAutoscalerStatus(
        observed_generation=status.observed_generation,
        last_scale_time=status.last_scale_time,
        current_replicas=status.current_replicas,
        desired_replicas=status.desired_replicas,
        current_metrics=metrics,
        conditions=annotations.read(hpa.metadata, annotations.CONDITIONS, conditions) or (),
    )


V2BETA1 = "autoscaling/v2beta1"


class V2beta1Spec(flat.Wire, frozen=True):
    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: int | None = None
    max_replicas: int = msgspec.field(default_factory=int)
    metrics: tuple[flat.MetricSpec, ...] = ()


class V2beta1Status(flat.Wire, frozen=True):
    observed_generation: int | None = None
    last_scale_time: datetime | None = None
    current_replicas: int = msgspec.field(default_factory=int)
    desired_replicas: int = msgspec.field(default_factory=int)
    current_metrics: tuple[flat.MetricStatus, ...] | None = None
    conditions: tuple[HorizontalPodAutoscalerCondition, ...] = ()


class V2beta1(flat.Wire, frozen=True):
    """autoscaling/v2beta1 HorizontalPodAutoscaler."""

    kind: str = msgspec.field(default_factory=lambda: v2.KIND)
    api_version: str = msgspec.field(default_factory=lambda: V2BETA1)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: V2beta1Spec = msgspec.field(default_factory=V2beta1Spec)
    status: V2beta1Status = msgspec.field(default_factory=V2beta1Status)


def from_v2beta1(hpa: V2beta1) -> v2.HorizontalPodAutoscaler:
    """Returns the HPA in autoscaling/v2."""
    behavior = annotations.read(hpa.metadata, annotations.BEHAVIOR, annotations.Behavior)
    status, readings = hpa.status, hpa.status.current_metrics
    return v2.HorizontalPodAutoscaler(
        metadata=annotations.without_fields(hpa.metadata),
        spec=v2.HorizontalPodAutoscalerSpec(
            scale_target_ref=hpa.spec.scale_target_ref,
            min_replicas=hpa.spec.min_replicas,
            max_replicas=hpa.spec.max_replicas,
            metrics=tuple(map(flat.to_v2, hpa.spec.metrics)),
            behavior=annotations.to_v2(behavior),
        ),
        status=v2.HorizontalPodAutoscalerStatus(
            observed_generation=status.observed_generation,
            last_scale_time=status.last_scale_time,
            current_replicas=status.current_replicas,
            desired_replicas=status.desired_replicas,
            current_metrics=None if readings is None else tuple(map(flat.status_to_v2, readings)),
            conditions=status.conditions,
        ),
    )

"""autoscaling/v2beta1: metrics in the flat form, `behavior` in an annotation."""

from datetime import datetime

import msgspec

from hpad.api import hpa as v2
from hpad.api.conversion import annotations, flat
from hpad.api.hpa import CrossVersionObjectReference, HorizontalPodAutoscalerCondition
from hpad.api.metadata import ObjectMeta

API_VERSION = "autoscaling/v2beta1"


class HorizontalPodAutoscalerSpec(flat.Wire, frozen=True):
    scale_target_ref: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    min_replicas: int | None = None
    max_replicas: int = msgspec.field(default_factory=int)
    metrics: tuple[flat.MetricSpec, ...] = ()


class HorizontalPodAutoscalerStatus(flat.Wire, frozen=True):
    observed_generation: int | None = None
    last_scale_time: datetime | None = None
    current_replicas: int = msgspec.field(default_factory=int)
    desired_replicas: int = msgspec.field(default_factory=int)
    current_metrics: tuple[flat.MetricStatus, ...] | None = None
    conditions: tuple[HorizontalPodAutoscalerCondition, ...] = ()


class HorizontalPodAutoscaler(flat.Wire, frozen=True):
    """autoscaling/v2beta1 HorizontalPodAutoscaler."""

    kind: str = msgspec.field(default_factory=lambda: v2.KIND)
    api_version: str = msgspec.field(default_factory=lambda: API_VERSION)
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: HorizontalPodAutoscalerSpec = msgspec.field(default_factory=HorizontalPodAutoscalerSpec)
    status: HorizontalPodAutoscalerStatus = msgspec.field(default_factory=HorizontalPodAutoscalerStatus)


def from_v2beta1(hpa: HorizontalPodAutoscaler) -> v2.HorizontalPodAutoscaler:
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

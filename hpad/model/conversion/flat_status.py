"""The flat form of metric readings: v2beta1's status, and the annotation of v1 that carries them."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hpad.model import hpa as v2
from hpad.model.conversion.flat import ZERO, Wire, each, zero
from hpad.model.hpa import CrossVersionObjectReference, MetricIdentifier, MetricValueStatus
from hpad.model.quantity import Quantity
from hpad.model.selector import LabelSelector


class ObjectMetricStatus(Wire, frozen=True):
    target: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    metric_name: str = msgspec.field(default_factory=str)
    current_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None
    average_value: Quantity | None = None


class PodsMetricStatus(Wire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    current_average_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None


class ResourceMetricStatus(Wire, frozen=True):
    name: str = msgspec.field(default_factory=str)
    current_average_utilization: int | None = None
    current_average_value: Quantity = msgspec.field(default_factory=zero)


class ContainerResourceMetricStatus(Wire, frozen=True):
    name: str = msgspec.field(default_factory=str)
    current_average_utilization: int | None = None
    current_average_value: Quantity = msgspec.field(default_factory=zero)
    container: str = msgspec.field(default_factory=str)


class ExternalMetricStatus(Wire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    metric_selector: LabelSelector | None = None
    current_value: Quantity = msgspec.field(default_factory=zero)
    current_average_value: Quantity | None = None


class MetricStatus(Wire, frozen=True):
    """The last reading of one entry of spec.metrics."""

    type: str = msgspec.field(default_factory=str)
    object: ObjectMetricStatus | None = None
    pods: PodsMetricStatus | None = None
    resource: ResourceMetricStatus | None = None
    container_resource: ContainerResourceMetricStatus | None = None
    external: ExternalMetricStatus | None = None


def to_v2(metric: MetricStatus) -> v2.MetricStatus:
    """The reading with its values in a `current` object; a value that the flat form cannot leave out stays, as 0."""
    return v2.MetricStatus(type=metric.type, **each(metric, _TO_V2))


def from_v2(metric: v2.MetricStatus) -> MetricStatus:
    """The reading in the flat form."""
    return MetricStatus(type=metric.type, **each(metric, _FROM_V2))


_TO_V2: Final[dict[str, Callable[[Any], Any]]] = {
    "object": lambda held: v2.ObjectMetricStatus(
        MetricIdentifier(held.metric_name, held.selector),
        MetricValueStatus(held.current_value, held.average_value),
        held.target,
    ),
    "pods": lambda held: v2.PodsMetricStatus(
        MetricIdentifier(held.metric_name, held.selector), MetricValueStatus(None, held.current_average_value)
    ),
    "resource": lambda held: v2.ResourceMetricStatus(
        held.name, MetricValueStatus(None, held.current_average_value, held.current_average_utilization)
    ),
    "container_resource": lambda held: v2.ContainerResourceMetricStatus(
        held.name,
        MetricValueStatus(None, held.current_average_value, held.current_average_utilization),
        held.container,
    ),
    "external": lambda held: v2.ExternalMetricStatus(
        MetricIdentifier(held.metric_name, held.metric_selector),
        MetricValueStatus(held.current_value, held.current_average_value),
    ),
}
_FROM_V2: Final[dict[str, Callable[[Any], Any]]] = {
    "object": lambda held: ObjectMetricStatus(
        held.described_object,
        held.metric.name,
        held.current.value or ZERO,
        held.metric.selector,
        held.current.average_value,
    ),
    "pods": lambda held: PodsMetricStatus(held.metric.name, held.current.average_value or ZERO, held.metric.selector),
    "resource": lambda held: ResourceMetricStatus(
        held.name, held.current.average_utilization, held.current.average_value or ZERO
    ),
    "container_resource": lambda held: ContainerResourceMetricStatus(
        held.name, held.current.average_utilization, held.current.average_value or ZERO, held.container
    ),
    "external": lambda held: ExternalMetricStatus(
        held.metric.name, held.metric.selector, held.current.value or ZERO, held.current.average_value
    ),
}

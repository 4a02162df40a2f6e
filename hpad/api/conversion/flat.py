"""The metrics of v2beta1 and of the annotations of v1, which have no `target` and `metric` objects.

Fields are in the order of Kubernetes, so that an annotation written here equals one written there. The statuses of
metrics have the same form.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.hpa import CrossVersionObjectReference, MetricIdentifier, MetricTarget, MetricValueStatus
from hpad.api.quantity import Quantity
from hpad.api.selector import LabelSelector

ZERO: Final = Quantity.from_value(0)


def zero() -> Quantity:
    """The default of quantities that are never omitted (a function, since msgspec always writes those)."""
    return ZERO


class Wire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The base of the structs of older versions, as in `hpad.api.hpa`."""


class ObjectMetricSource(Wire, frozen=True):
    target: CrossVersionObjectReference = CrossVersionObjectReference()
    metric_name: str = msgspec.field(default_factory=str)
    target_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None
    average_value: Quantity | None = None


class PodsMetricSource(Wire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    target_average_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None


class ResourceMetricSource(Wire, frozen=True):
    name: str = msgspec.field(default_factory=str)
    target_average_utilization: int | None = None
    target_average_value: Quantity | None = None


class ContainerResourceMetricSource(Wire, frozen=True):
    name: str = msgspec.field(default_factory=str)
    target_average_utilization: int | None = None
    target_average_value: Quantity | None = None
    container: str = msgspec.field(default_factory=str)


class ExternalMetricSource(Wire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    metric_selector: LabelSelector | None = None
    target_value: Quantity | None = None
    target_average_value: Quantity | None = None


class MetricSpec(Wire, frozen=True):
    """One entry of spec.metrics: `type` names the one source that is set."""

    type: str = msgspec.field(default_factory=str)
    object: ObjectMetricSource | None = None
    pods: PodsMetricSource | None = None
    resource: ResourceMetricSource | None = None
    container_resource: ContainerResourceMetricSource | None = None
    external: ExternalMetricSource | None = None


def to_v2(metric: MetricSpec) -> v2.MetricSpec:
    """Returns the metric in v2; the type of its metric target follows from the field that is set."""
    return v2.MetricSpec(type=metric.type, **each(metric, _TO_V2))


def from_v2(metric: v2.MetricSpec) -> MetricSpec:
    """The metric in the flat form, which has no room for the target's type."""
    return MetricSpec(type=metric.type, **each(metric, _FROM_V2))


def each(metric: Any, conversions: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """The sources that are set, each converted by the function of its field."""
    return {
        field: convert(source)
        for field, convert in conversions.items()
        if (source := getattr(metric, field)) is not None
    }


def _object_to_v2(source: ObjectMetricSource) -> v2.ObjectMetricSource:
    value: Quantity | None = source.target_value
    if source.average_value is None:
        kind = "Value"
    else:
        kind = "AverageValue"
        value = None if source.target_value.is_zero else value  # the field cannot be absent: 0 is how "none" reads
    return v2.ObjectMetricSource(
        described_object=source.target,
        target=MetricTarget(type=kind, value=value, average_value=source.average_value),
        metric=MetricIdentifier(source.metric_name, source.selector),
    )


def _object_from_v2(source: v2.ObjectMetricSource) -> ObjectMetricSource:
    return ObjectMetricSource(
        target=source.described_object,
        metric_name=source.metric.name,
        target_value=source.target.value or ZERO,
        selector=source.metric.selector,
        average_value=source.target.average_value,
    )


def _pods_to_v2(source: PodsMetricSource) -> v2.PodsMetricSource:
    target = MetricTarget(type="AverageValue", average_value=source.target_average_value)
    return v2.PodsMetricSource(MetricIdentifier(source.metric_name, source.selector), target)


def _pods_from_v2(source: v2.PodsMetricSource) -> PodsMetricSource:
    return PodsMetricSource(source.metric.name, source.target.average_value or ZERO, source.metric.selector)


def _resource_target(source: ResourceMetricSource | ContainerResourceMetricSource) -> MetricTarget:
    kind = "AverageValue" if source.target_average_utilization is None else "Utilization"
    return MetricTarget(
        type=kind, average_value=source.target_average_value, average_utilization=source.target_average_utilization
    )


def _resource_to_v2(source: ResourceMetricSource) -> v2.ResourceMetricSource:
    return v2.ResourceMetricSource(source.name, _resource_target(source))


def _resource_from_v2(source: v2.ResourceMetricSource) -> ResourceMetricSource:
    return ResourceMetricSource(source.name, source.target.average_utilization, source.target.average_value)


def _container_to_v2(source: ContainerResourceMetricSource) -> v2.ContainerResourceMetricSource:
    return v2.ContainerResourceMetricSource(source.name, _resource_target(source), source.container)


def _container_from_v2(source: v2.ContainerResourceMetricSource) -> ContainerResourceMetricSource:
    target = source.target
    return ContainerResourceMetricSource(
        source.name, target.average_utilization, target.average_value, source.container
    )


def _external_to_v2(source: ExternalMetricSource) -> v2.ExternalMetricSource:
    kind = "AverageValue" if source.target_value is None else "Value"
    target = MetricTarget(type=kind, value=source.target_value, average_value=source.target_average_value)
    return v2.ExternalMetricSource(MetricIdentifier(source.metric_name, source.metric_selector), target)


def _external_from_v2(source: v2.ExternalMetricSource) -> ExternalMetricSource:
    metric, target = source.metric, source.target
    return ExternalMetricSource(metric.name, metric.selector, target.value, target.average_value)


_TO_V2: Final[dict[str, Callable[[Any], Any]]] = {
    "object": _object_to_v2,
    "pods": _pods_to_v2,
    "resource": _resource_to_v2,
    "container_resource": _container_to_v2,
    "external": _external_to_v2,
}
_FROM_V2: Final[dict[str, Callable[[Any], Any]]] = {
    "object": _object_from_v2,
    "pods": _pods_from_v2,
    "resource": _resource_from_v2,
    "container_resource": _container_from_v2,
    "external": _external_from_v2,
}


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


def status_to_v2(metric: MetricStatus) -> v2.MetricStatus:
    """The reading with its values in a `current` object; a value that the flat form cannot leave out stays, as 0."""
    return v2.MetricStatus(type=metric.type, **each(metric, _STATUS_TO_V2))


def status_from_v2(metric: v2.MetricStatus) -> MetricStatus:
    """The reading in the flat form."""
    return MetricStatus(type=metric.type, **each(metric, _STATUS_FROM_V2))


_STATUS_TO_V2: Final[dict[str, Callable[[Any], Any]]] = {
    "object": lambda status: v2.ObjectMetricStatus(
        MetricIdentifier(status.metric_name, status.selector),
        MetricValueStatus(status.current_value, status.average_value),
        status.target,
    ),
    "pods": lambda status: v2.PodsMetricStatus(
        MetricIdentifier(status.metric_name, status.selector), MetricValueStatus(None, status.current_average_value)
    ),
    "resource": lambda status: v2.ResourceMetricStatus(
        status.name, MetricValueStatus(None, status.current_average_value, status.current_average_utilization)
    ),
    "container_resource": lambda status: v2.ContainerResourceMetricStatus(
        status.name,
        MetricValueStatus(None, status.current_average_value, status.current_average_utilization),
        status.container,
    ),
    "external": lambda status: v2.ExternalMetricStatus(
        MetricIdentifier(status.metric_name, status.metric_selector),
        MetricValueStatus(status.current_value, status.current_average_value),
    ),
}
_STATUS_FROM_V2: Final[dict[str, Callable[[Any], Any]]] = {
    "object": lambda status: ObjectMetricStatus(
        status.described_object,
        status.metric.name,
        status.current.value or ZERO,
        status.metric.selector,
        status.current.average_value,
    ),
    "pods": lambda status: PodsMetricStatus(
        status.metric.name, status.current.average_value or ZERO, status.metric.selector
    ),
    "resource": lambda status: ResourceMetricStatus(
        status.name, status.current.average_utilization, status.current.average_value or ZERO
    ),
    "container_resource": lambda status: ContainerResourceMetricStatus(
        status.name, status.current.average_utilization, status.current.average_value or ZERO, status.container
    ),
    "external": lambda status: ExternalMetricStatus(
        status.metric.name, status.metric.selector, status.current.value or ZERO, status.current.average_value
    ),
}

"""The metrics of autoscaling/v1 annotations and of v2beta1, which have no `target`, `current` and `metric` objects.

A struct has the name of its counterpart in `hpad.api.hpa`, by which conversion finds it. Its fields are in the order of
Kubernetes, so that an annotation written here has the same text as one written by the API server. Source: Kubernetes
1.36, pkg/apis/autoscaling/v1/conversion.go.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec

from hpad.api import hpa as v2
from hpad.api.hpa import CrossVersionObjectReference, MetricIdentifier, MetricTarget, MetricValueStatus
from hpad.api.quantity import Quantity
from hpad.api.selector import LabelSelector


def zero() -> Quantity:
    """Returns the default of quantities that are always written. A function, because msgspec omits other defaults."""
    return Quantity.from_value(0)


class FlatWire(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The base of the structs of older versions, as in `hpad.api.hpa`."""


class FlatObjectMetricSource(FlatWire, frozen=True):
    target: CrossVersionObjectReference = CrossVersionObjectReference()
    metric_name: str = msgspec.field(default_factory=str)
    target_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None
    target_average_value: Quantity | None = msgspec.field(default=None, name="averageValue")


class FlatPodsMetricSource(FlatWire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    target_average_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None


class FlatResourceMetricSource(FlatWire, frozen=True):
    name: str = msgspec.field(default_factory=str)
    target_average_utilization: int | None = None
    target_average_value: Quantity | None = None


class FlatContainerResourceMetricSource(FlatResourceMetricSource, frozen=True):
    container: str = msgspec.field(default_factory=str)


class FlatExternalMetricSource(FlatWire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    metric_selector: LabelSelector | None = None
    target_value: Quantity | None = None
    target_average_value: Quantity | None = None


class FlatMetricSpec(FlatWire, frozen=True):
    """One entry of spec.metrics: `type` names the one source that is set."""

    type: str = msgspec.field(default_factory=str)
    object: FlatObjectMetricSource | None = None
    pods: FlatPodsMetricSource | None = None
    resource: FlatResourceMetricSource | None = None
    container_resource: FlatContainerResourceMetricSource | None = None
    external: FlatExternalMetricSource | None = None


class FlatObjectMetricStatus(FlatWire, frozen=True):
    target: CrossVersionObjectReference = msgspec.field(default_factory=CrossVersionObjectReference)
    metric_name: str = msgspec.field(default_factory=str)
    current_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None
    current_average_value: Quantity | None = msgspec.field(default=None, name="averageValue")


class FlatPodsMetricStatus(FlatWire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    current_average_value: Quantity = msgspec.field(default_factory=zero)
    selector: LabelSelector | None = None


class FlatResourceMetricStatus(FlatWire, frozen=True):
    name: str = msgspec.field(default_factory=str)
    current_average_utilization: int | None = None
    current_average_value: Quantity = msgspec.field(default_factory=zero)


class FlatContainerResourceMetricStatus(FlatResourceMetricStatus, frozen=True):
    container: str = msgspec.field(default_factory=str)


class FlatExternalMetricStatus(FlatWire, frozen=True):
    metric_name: str = msgspec.field(default_factory=str)
    metric_selector: LabelSelector | None = None
    current_value: Quantity = msgspec.field(default_factory=zero)
    current_average_value: Quantity | None = None


class FlatMetricStatus(FlatWire, frozen=True):
    """The last values of one entry of spec.metrics."""

    type: str = msgspec.field(default_factory=str)
    object: FlatObjectMetricStatus | None = None
    pods: FlatPodsMetricStatus | None = None
    resource: FlatResourceMetricStatus | None = None
    container_resource: FlatContainerResourceMetricStatus | None = None
    external: FlatExternalMetricStatus | None = None


_PLACES: Final = {
    "name": "name",
    "container": "container",
    "target": "described_object",
    "metric_name": "metric.name",
    "selector": "metric.selector",
    "metric_selector": "metric.selector",
    "target_value": "target.value",
    "target_average_value": "target.average_value",
    "target_average_utilization": "target.average_utilization",
    "current_value": "current.value",
    "current_average_value": "current.average_value",
    "current_average_utilization": "current.average_utilization",
}
"""Where autoscaling/v2 has the field of a flat source or status."""
_IN_V2: Final[Mapping[type, Any]] = {
    FlatObjectMetricSource: v2.ObjectMetricSource,
    FlatPodsMetricSource: v2.PodsMetricSource,
    FlatResourceMetricSource: v2.ResourceMetricSource,
    FlatContainerResourceMetricSource: v2.ContainerResourceMetricSource,
    FlatExternalMetricSource: v2.ExternalMetricSource,
    FlatMetricSpec: v2.MetricSpec,
    FlatObjectMetricStatus: v2.ObjectMetricStatus,
    FlatPodsMetricStatus: v2.PodsMetricStatus,
    FlatResourceMetricStatus: v2.ResourceMetricStatus,
    FlatContainerResourceMetricStatus: v2.ContainerResourceMetricStatus,
    FlatExternalMetricStatus: v2.ExternalMetricStatus,
    FlatMetricStatus: v2.MetricStatus,
}
_OTHER: Final[Mapping[type, Any]] = {**_IN_V2, **{kind: flat for flat, kind in _IN_V2.items()}}
"""The struct of the same part in the other form."""


def to_v2(metric: FlatMetricSpec | FlatMetricStatus) -> Any:
    """Returns the v2.MetricSpec of a MetricSpec, or the v2.MetricStatus of a MetricStatus.

    The type of a metric target follows from the fields that are set.
    """
    return _converted(metric, _source_to_v2)


def from_v2(metric: v2.MetricSpec | v2.MetricStatus) -> Any:
    """Returns the MetricSpec or MetricStatus of one in v2. The flat form has no field for the type of the target."""
    return _converted(metric, _source_from_v2)


def _converted(metric: Any, convert: Callable[[Any], Any]) -> Any:
    fields = {name: getattr(metric, name) for name in metric.__struct_fields__ if name != "type"}
    sources = {name: convert(source) for name, source in fields.items() if source is not None}
    return _OTHER[type(metric)](metric.type, **sources)


def _source_to_v2(source: Any) -> Any:
    parts: dict[str, dict[str, Any]] = {"": {}}
    for name in source.__struct_fields__:
        part, _, field = _PLACES[name].rpartition(".")
        parts.setdefault(part, {})[field] = getattr(source, name)
    fields = parts[""]
    if "metric" in parts:
        fields["metric"] = MetricIdentifier(**parts["metric"])
    if "current" in parts:
        fields["current"] = MetricValueStatus(**parts["current"])
    if "target" in parts:
        fields["target"] = _target(source, **parts["target"])
    return _OTHER[type(source)](**fields)


def _target(
    source: Any,
    value: Quantity | None = None,
    average_value: Quantity | None = None,
    average_utilization: int | None = None,
) -> MetricTarget:
    kind = "AverageValue" if value is None else "Value"
    if average_utilization is not None:
        kind = "Utilization"
    elif isinstance(source, FlatObjectMetricSource) and average_value is not None and value is not None:
        kind = "AverageValue"
        # The flat field cannot be absent: without this, an average alone would fail validation as "value: 0".
        value = None if value.is_zero else value
    return MetricTarget(kind, value, average_value, average_utilization)


def _source_from_v2(source: Any) -> Any:
    kind = _OTHER[type(source)]
    values = {name: attrgetter(_PLACES[name])(source) for name in kind.__struct_fields__}
    # A value that the flat form cannot leave out takes its default, 0.
    return kind(**{name: value for name, value in values.items() if value is not None})

"""The three metrics lists of Kubernetes, as they come over the wire.

metrics.k8s.io/v1beta1 PodMetricsList, custom.metrics.k8s.io/v1beta2 (and v1beta1) MetricValueList and
external.metrics.k8s.io/v1beta1 ExternalMetricValueList. Quantities stay text until a decision needs them. Lists may be
null: that is how Go writes an empty one.
"""

import msgspec

from hpad.model.meta import ObjectMeta
from hpad.model.moment import Moment


class ContainerMetrics(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    usage: dict[str, str | int | float] | None = None


class PodMetrics(msgspec.Struct, frozen=True, gc=False):
    """`window` is a Go duration such as "30s" or "1m0s"."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: Moment | None = None
    window: str = "0s"
    containers: tuple[ContainerMetrics, ...] | None = ()


class PodMetricsList(msgspec.Struct, frozen=True):
    items: tuple[PodMetrics, ...] | None = ()


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    api_version: str = ""


class MetricValue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One custom metric value; v1beta1 calls its window `window`, v1beta2 `windowSeconds`."""

    described_object: ObjectReference = ObjectReference()
    timestamp: Moment | None = None
    window_seconds: int | None = None
    value: str | int | float = "0"


class MetricValueList(msgspec.Struct, frozen=True):
    items: tuple[MetricValue, ...] | None = ()


class ExternalMetricValue(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    metric_name: str = ""
    metric_labels: dict[str, str] | None = None
    timestamp: Moment | None = None
    window: int | None = msgspec.field(default=None, name="window")
    value: str | int | float = "0"


class ExternalMetricValueList(msgspec.Struct, frozen=True):
    items: tuple[ExternalMetricValue, ...] | None = ()

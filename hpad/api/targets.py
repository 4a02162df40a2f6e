"""The TARGETS column of HPAs: current values and targets of the metrics, as kubectl prints them.

Source: Kubernetes 1.36, pkg/printers/internalversion/printers.go: formatHPAMetrics.
"""

from collections.abc import Iterator
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus
from hpad.api.sample import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE

SHOWN: Final = 2
"""Number of metrics that kubectl shows; it only counts further ones."""

_UNKNOWN: Final = "<unknown>"


def targets(hpa: HorizontalPodAutoscaler, shown: int = SHOWN) -> str:
    """Formats the first metrics of an HPA: "cpu: 305%/50%", "80/15 (avg)", "<unknown>/10, 1200/1k + 1 more..."."""
    cells = list(_cells(hpa))
    if not cells:
        return "<none>"
    more = f" + {len(cells) - shown} more..." if len(cells) > shown else ""
    return ", ".join(cells[:shown]) + more


def _cells(hpa: HorizontalPodAutoscaler) -> Iterator[str]:
    statuses = hpa.status.current_metrics or ()
    for index, spec in enumerate(hpa.spec.metrics):
        status = statuses[index] if index < len(statuses) else MetricStatus()
        yield _cell(spec, status)


def _cell(spec: MetricSpec, status: MetricStatus) -> str:
    if spec.type == EXTERNAL and spec.external is not None:
        return _shared(spec.external.target, status.external.current if status.external else None)
    if spec.type == OBJECT and spec.object is not None:
        return _shared(spec.object.target, status.object.current if status.object else None)
    if spec.type == PODS and spec.pods is not None:
        current = status.pods.current.average_value if status.pods else None
        return _pair(current, spec.pods.target.average_value)
    if spec.type == RESOURCE and spec.resource is not None:
        source = spec.resource
        return f"{source.name}: {_of_resource(source.target, status.resource.current if status.resource else None)}"
    if spec.type == CONTAINER_RESOURCE and spec.container_resource is not None:
        container, reading = spec.container_resource, status.container_resource
        return f"{container.name}: {_of_resource(container.target, reading.current if reading else None)}"
    return "<unknown type>"


def _shared(target: MetricTarget, current: MetricValueStatus | None) -> str:
    """Formats a value, or an average over the replicas."""
    if target.average_value is not None:
        return f"{_pair(current and current.average_value, target.average_value)} (avg)"
    return _pair(current and current.value, target.value)


def _of_resource(target: MetricTarget, current: MetricValueStatus | None) -> str:
    if target.average_value is not None:
        return _pair(current and current.average_value, target.average_value)
    percent = None if current is None else current.average_utilization
    target_text = "<auto>" if target.average_utilization is None else f"{target.average_utilization}%"
    return _pair(None if percent is None else f"{percent}%", target_text)


def _pair(current: object, target_text: object) -> str:
    return f"{_UNKNOWN if current is None else current}/{_UNKNOWN if target_text is None else target_text}"

"""The table of HPAs, with the columns of `kubectl get hpa`."""

from collections.abc import Sequence
from datetime import datetime

from hpad.api.hpa import HorizontalPodAutoscaler, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus
from hpad.lab.cluster.columns import duration
from hpad.lab.demo.style import Style

HEADINGS = ("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE")
UNKNOWN = "<unknown>"
GAP = "   "


def targets(hpa: HorizontalPodAutoscaler) -> str:
    """Formats each metric as value/target: `305%/50%`, `80/15`, `20/15 (avg)`, or `<unknown>/50%` without a value."""
    statuses = hpa.status.current_metrics or ()
    shown = [
        _target(spec, statuses[index] if index < len(statuses) else None) for index, spec in enumerate(hpa.spec.metrics)
    ]
    return ", ".join(shown) or "<none>"


def reading(hpa: HorizontalPodAutoscaler) -> float | None:
    """Returns the value of the first metric: percent, or the total of all replicas; None without a value.

    The total of an average is the average times status.currentReplicas.
    """
    statuses = hpa.status.current_metrics or ()
    current = _current(statuses[0]) if statuses else None
    if current is None:
        return None
    if current.average_utilization is None and current.value is None and current.average_value is not None:
        return float(round(float(current.average_value) * hpa.status.current_replicas))
    value = current.average_utilization, current.value
    return next((float(each) for each in value if each is not None), None)


def row(hpa: HorizontalPodAutoscaler, now: datetime) -> tuple[str, ...]:
    """Returns the cells of one HPA, in the order of HEADINGS."""
    ref, created = hpa.spec.scale_target_ref, hpa.metadata.creation_timestamp
    return (
        hpa.metadata.name,
        f"{ref.kind}/{ref.name}",
        targets(hpa),
        str(hpa.spec.min_replicas if hpa.spec.min_replicas is not None else 1),
        str(hpa.spec.max_replicas),
        str(hpa.status.current_replicas),
        duration((now - created).total_seconds()) if created else UNKNOWN,
    )


def render(rows: Sequence[Sequence[str]], style: Style, *, width: int | None = None) -> list[str]:
    """Returns the headings and one line per row, aligned; narrows gaps and cuts lines to fit into `width`."""
    widths = [max(len(line[column]) for line in (HEADINGS, *rows)) for column in range(len(HEADINGS))]
    available = (width - sum(widths)) // (len(HEADINGS) - 1) if width is not None else len(GAP)
    gap = GAP[: max(1, available)]
    lines = [gap.join(cell.ljust(size) for cell, size in zip(each, widths, strict=True)) for each in (HEADINGS, *rows)]
    cut = [line.rstrip()[:width] for line in lines]
    return [style.dim(cut[0]), *map(style.bold, cut[1:])]


def _target(spec: MetricSpec, status: MetricStatus | None) -> str:
    source = spec.resource or spec.container_resource or spec.pods or spec.object or spec.external
    metric_target = source.target if source else MetricTarget()
    current = _current(status) or MetricValueStatus()
    if metric_target.average_utilization is not None:
        have = f"{current.average_utilization}%" if current.average_utilization is not None else UNKNOWN
        return f"{have}/{metric_target.average_utilization}%"
    if metric_target.average_value is not None:
        shown = current.average_value if current.average_value is not None else UNKNOWN
        return (
            f"{shown}/{metric_target.average_value} (avg)"
            if spec.external or spec.object
            else f"{shown}/{metric_target.average_value}"
        )
    return f"{current.value if current.value is not None else UNKNOWN}/{metric_target.value}"


def _current(status: MetricStatus | None) -> MetricValueStatus | None:
    if status is None:
        return None
    source = status.resource or status.container_resource or status.pods or status.object or status.external
    return source.current if source else None

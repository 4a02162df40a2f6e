"""KEDA's triggers `cpu`, `memory` and `cron`: no server is asked for these."""

from typing import Any

from hpad.manifests.keda.found import Found, Source, Trigger, Wrong
from hpad.model.fields import invalid

_UTILIZATION, _AVERAGE = "Utilization", "AverageValue"


def resource(trigger: Trigger, found: Found) -> None:
    """Add a Resource metric, or with `containerName` a ContainerResource metric; raises Wrong."""
    kind = trigger.metric_type or trigger.metadata.get("type", "")
    value = trigger.needed("value")
    target: dict[str, Any]
    if kind == _UTILIZATION:
        if not (value.isascii() and value.isdigit()):
            raise Wrong(invalid(trigger.field("value"), value, "must be a whole number of percent"))
        target = {"type": kind, "averageUtilization": int(value)}
    elif kind == _AVERAGE:
        target = {"type": kind, "averageValue": trigger.number("value", value)}
    else:
        raise Wrong(invalid(f"{trigger.path}.metricType", kind, f"must be {_UTILIZATION} or {_AVERAGE}"))
    container = trigger.metadata.get("containerName")
    if container:
        measured = {"name": trigger.type, "container": container, "target": target}
        found.metrics.append({"type": "ContainerResource", "containerResource": measured})
    else:
        found.metrics.append({"type": "Resource", "resource": {"name": trigger.type, "target": target}})
    trigger.leftover(found, frozenset({"type", "value", "containerName"}))


def cron(trigger: Trigger, found: Found) -> None:
    """Add a metric that wants a number of replicas between two points of a schedule; raises Wrong."""
    replicas = trigger.needed("desiredReplicas")
    if not (replicas.isascii() and replicas.isdigit()):
        raise Wrong(invalid(trigger.field("desiredReplicas"), replicas, "must be a whole number"))
    window = {name: trigger.needed(name) for name in ("timezone", "start", "end")}
    found.sources.append(Source("cron", "", {}, trigger.metric, {**window, "replicas": int(replicas)}))
    trigger.external(found, "1", None)
    trigger.leftover(found, frozenset({*window, "desiredReplicas"}))

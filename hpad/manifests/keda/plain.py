"""KEDA's triggers `cpu`, `memory` and `cron`: no server is asked for these."""

from typing import Any

from hpad.api.fields import invalid
from hpad.manifests.keda.fields import Wrong
from hpad.manifests.keda.found import Found, Source, Trigger

_UTILIZATION, _AVERAGE = "Utilization", "AverageValue"


def resource(trigger: Trigger, found: Found) -> None:
    """Add a Resource metric, or with `containerName` a ContainerResource metric; raises Wrong."""
    older = trigger.metadata.text("type")
    kind = trigger.metric_type or older
    value = trigger.needed("value")
    target: dict[str, Any]
    if kind == _UTILIZATION:
        if not (value.isascii() and value.isdigit()):
            raise Wrong(invalid(trigger.field("value"), value, "must be a whole number of percent"))
        target = {"type": kind, "averageUtilization": int(value)}
    elif kind == _AVERAGE:
        target = {"type": kind, "averageValue": trigger.number("value")}
    else:
        raise Wrong(invalid(f"{trigger.path}.metricType", kind, f"must be {_UTILIZATION} or {_AVERAGE}"))
    container = trigger.metadata.text("containerName")
    if container:
        measured = {"name": trigger.type, "container": container, "target": target}
        found.metrics.append({"type": "ContainerResource", "containerResource": measured})
    else:
        found.metrics.append({"type": "Resource", "resource": {"name": trigger.type, "target": target}})
    if older and older != kind:
        found.note(trigger.field("type"), "is left out: metricType says otherwise, and counts")


def cron(trigger: Trigger, found: Found) -> None:
    """Add a metric that wants a number of replicas between two points of a schedule; raises Wrong."""
    replicas = trigger.needed("desiredReplicas")
    if not (replicas.isascii() and replicas.isdigit()):
        raise Wrong(invalid(trigger.field("desiredReplicas"), replicas, "must be a whole number"))
    window = {name: trigger.needed(name) for name in ("timezone", "start", "end")}
    query = {**window, "replicas": int(replicas)}
    source = Source(path=trigger.path, adapter="cron", entry=trigger.metric, query=query, metric=trigger.metric)
    trigger.external(found, source, "1")

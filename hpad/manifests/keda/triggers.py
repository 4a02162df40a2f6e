"""Converts KEDA's triggers `cpu`, `memory` and `cron`.

Source: KEDA 2.21, "CPU", "Memory" and "Cron".
"""

from typing import Any, Final

from hpad.api.problem import Invalid, invalid
from hpad.manifests.keda.trigger import Trigger

_UTILIZATION: Final = "Utilization"
_AVERAGE: Final = "AverageValue"


def resource(trigger: Trigger) -> None:
    """Adds a Resource metric, or with `containerName` a ContainerResource metric; raises Invalid."""
    older = trigger.metadata.text("type")
    kind = trigger.metric_type or older
    value = trigger.needed("value")
    target: dict[str, Any]
    if kind == _UTILIZATION:
        target = {"type": kind, "averageUtilization": trigger.whole_number("value", value)}
    elif kind == _AVERAGE:
        target = {"type": kind, "averageValue": trigger.number("value")}
    else:
        raise Invalid(invalid(f"{trigger.path}.metricType", kind, f"must be {_UTILIZATION} or {_AVERAGE}"))
    measured = {"name": trigger.type, "target": target}
    container = trigger.metadata.text("containerName")
    if container:
        metric = {"type": "ContainerResource", "containerResource": {**measured, "container": container}}
    else:
        metric = {"type": "Resource", "resource": measured}
    trigger.conversion.add_spec(metric)
    if older and older != kind:
        trigger.note_change("type", "is left out: metricType differs, and has precedence")


def cron(trigger: Trigger) -> None:
    """Adds a metric that equals `desiredReplicas` between `start` and `end`; raises Invalid."""
    replicas = trigger.whole_number("desiredReplicas", trigger.needed("desiredReplicas"))
    window = {name: trigger.needed(name) for name in ("timezone", "start", "end")}
    trigger.external(trigger.source("cron", {**window, "replicas": replicas}), "1")

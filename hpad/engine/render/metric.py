"""What a metric of a trace is: its type of target, and the unit in which its amounts are shown."""

from typing import Final

from hpad.api.amounts import Unit
from hpad.api.quantity import parse_milli
from hpad.api.sample import CONTAINER_RESOURCE, PODS, RESOURCE
from hpad.engine import trace
from hpad.engine.spec import UTILIZATION

_OF_PODS: Final = (RESOURCE, CONTAINER_RESOURCE, PODS)
_UNITS: Final = {"cores": Unit.CORES, "bytes": Unit.BYTES}


def of_pods(metric: trace.MetricTrace) -> bool:
    """Whether the metric has one value per pod."""
    return metric.type in _OF_PODS


def is_utilization(metric: trace.MetricTrace) -> bool:
    """Whether the metric target is a percentage of the requests."""
    return metric.target is not None and metric.target.type == UTILIZATION


def amount(metric: trace.MetricTrace) -> int:
    """Returns the metric target in percent or milli-units; 0 without one."""
    if metric.target is None:
        return 0
    return int(metric.target.amount) if is_utilization(metric) else parse_milli(metric.target.amount)


def unit(metric: trace.MetricTrace) -> Unit:
    """Returns the unit in which amounts of the metric are shown."""
    return _UNITS.get(metric.unit, Unit.COUNT)

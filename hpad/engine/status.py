"""The metrics of a status, the comparison of two statuses, and the history after a decision."""

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from hpad.api.hpa import (
    ContainerResourceMetricStatus,
    ExternalMetricStatus,
    HorizontalPodAutoscalerStatus,
    MetricStatus,
    MetricValueStatus,
    ObjectMetricStatus,
    PodsMetricStatus,
    ResourceMetricStatus,
)
from hpad.api.quantity import Quantity
from hpad.api.sample import CONTAINER_RESOURCE, EXTERNAL, OBJECT, PODS, RESOURCE
from hpad.engine.conditions import FALLBACK_ACTIVE, FALSE, SCALING_ACTIVE, TRUE, Condition
from hpad.engine.decide import Decision
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.propose import Proposal
from hpad.engine.recommend import last_samples
from hpad.engine.spec import UTILIZATION, VALUE, CompiledMetric
from hpad.engine.view import View

_QUOTING: Final = {(SCALING_ACTIVE, FALSE), (FALLBACK_ACTIVE, TRUE)}
"""Types and statuses of the conditions whose message quotes the error of a metric, which may hold a measured value."""
_NUMBER: Final = re.compile(r"(?<![\w.:/=-])-?\d+(\.\d+)?(e[+-]?\d+)?(?![\w:/=-]|\.\w)")
"""A number that stands alone, and is no part of a name, an address, a version or a time."""


_ZERO: Final = Quantity.from_milli(0)


def is_to_write(view: View, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether a new status has to be written; measured values alone may be held back (`View.values_held`)."""
    old = view.hpa.status
    return not same(old, status) and not (view.values_held and differs_in_values_alone(old, status))


def differs_in_values_alone(old: HorizontalPodAutoscalerStatus, new: HorizontalPodAutoscalerStatus) -> bool:
    """Whether two statuses are equal, except for measured values.

    These are the values in currentMetrics of metrics that both list, and numbers in the error of a metric that a
    condition quotes.
    """
    before, after = old.current_metrics or (), new.current_metrics or ()
    return (
        len(before) == len(after)
        and all(map(_alike, before, after))
        and len(old.conditions) == len(new.conditions)
        and all(map(_say_the_same, old.conditions, new.conditions))
        and same(msgspec.structs.replace(old, conditions=new.conditions, current_metrics=new.current_metrics), new)
    )


def _alike(old: MetricStatus, new: MetricStatus) -> bool:
    """Whether two entries of currentMetrics have the same metric, and values in the same fields."""
    return old == new or _without_values(old) == _without_values(new)


def _without_values(entry: MetricStatus) -> MetricStatus:
    """Returns the entry with each of its values set to zero."""
    source = entry.resource or entry.container_resource or entry.pods or entry.object or entry.external
    if source is None:
        return entry
    value, average, percent = source.current.value, source.current.average_value, source.current.average_utilization
    current = MetricValueStatus(
        value=None if value is None else _ZERO,
        average_value=None if average is None else _ZERO,
        average_utilization=None if percent is None else 0,
    )
    (field,) = (name for name in MetricStatus.__struct_fields__ if getattr(entry, name) is source)
    return msgspec.structs.replace(entry, **{field: msgspec.structs.replace(source, current=current)})


def _say_the_same(old: Condition, new: Condition) -> bool:
    """Whether two conditions are equal, except for measured values in their messages."""
    if old == new:
        return True
    if (old.type, old.status) not in _QUOTING:
        return False
    return msgspec.structs.replace(old, message=new.message) == new and _words(old.message) == _words(new.message)


def _words(message: str) -> str:
    return _NUMBER.sub("0", message)


def same(old: HorizontalPodAutoscalerStatus, new: HorizontalPodAutoscalerStatus) -> bool:
    """Whether two statuses are equal for the API server: a missing list equals an empty one."""
    return (
        old.conditions == new.conditions
        and old.current_replicas == new.current_replicas
        and old.desired_replicas == new.desired_replicas
        and old.last_scale_time == new.last_scale_time
        and old.observed_generation == new.observed_generation
        and (old.current_metrics or ()) == (new.current_metrics or ())
    )


def metric_status(proposal: Proposal) -> MetricStatus:
    """Returns the entry of currentMetrics of one metric; all fields are empty without a usage."""
    metric, usage = proposal.metric, proposal.usage
    if usage is None:
        return MetricStatus()
    quantity = None if usage.value is None else Quantity.from_milli(usage.value, metric.format)
    if metric.kind == VALUE:
        return _placed(metric, MetricValueStatus(value=quantity))
    if metric.kind == UTILIZATION:
        return _placed(metric, MetricValueStatus(average_value=quantity, average_utilization=usage.percent))
    return _placed(metric, MetricValueStatus(average_value=quantity))


def _placed(metric: CompiledMetric, current: MetricValueStatus) -> MetricStatus:
    """Puts a value into the field of the metric's type."""
    kind, spec = metric.type, metric.spec
    if kind == RESOURCE:
        return MetricStatus(kind, resource=ResourceMetricStatus(metric.name, current))
    if kind == CONTAINER_RESOURCE:
        container = ContainerResourceMetricStatus(metric.name, current, metric.query.container)
        return MetricStatus(kind, container_resource=container)
    if kind == PODS and spec.pods is not None:
        return MetricStatus(kind, pods=PodsMetricStatus(spec.pods.metric, current))
    if kind == OBJECT and spec.object is not None:
        described = spec.object.described_object
        return MetricStatus(kind, object=ObjectMetricStatus(spec.object.metric, current, described))
    if kind == EXTERNAL and spec.external is not None:
        return MetricStatus(kind, external=ExternalMetricStatus(spec.external.metric, current))
    return MetricStatus()


def next_history(view: View, decision: Decision, *, rescaled: bool) -> History:
    """Returns the history with the recommendation of this decision, and with the rescale if one was written."""
    history, now = view.history, view.now
    # A turn without a decision adds no recommendation, but starts the history of a new HPA
    # (horizontal.go: recordInitialRecommendation).
    if decision.restrained is not None:
        recommendations: Sequence[PastRecommendation] = decision.restrained.recommendations
    else:
        recommendations = history.recommendations or (PastRecommendation(now, decision.current),)
    ups, downs, behavior = history.scale_ups, history.scale_downs, view.spec.behavior
    if rescaled and behavior is not None:  # without spec.behavior there are no policies
        if decision.desired > decision.current:
            ups = _stored(ups, Rescale(now, decision.desired - decision.current), now - behavior.up.longest)
        else:
            downs = _stored(downs, Rescale(now, decision.current - decision.desired), now - behavior.down.longest)
    samples = history.last_samples if view.fallback_policies else ()  # only fallback policies need them
    if view.fallback_policies and decision.proposals:
        samples = last_samples(view, decision.proposals)
    return History(recommendations, ups, downs, samples)


def _stored(past: tuple[Rescale, ...], latest: Rescale, cutoff: datetime) -> tuple[Rescale, ...]:
    """Marks entries that no policy counts any more, then replaces the last marked entry by the latest or appends it.

    Source: Kubernetes 1.36, horizontal.go: storeScaleEvent and markScaleEventsOutdated.
    """
    marked = [
        msgspec.structs.replace(entry, outdated=True) if entry.timestamp < cutoff and not entry.outdated else entry
        for entry in past
    ]
    for index in reversed(range(len(marked))):
        if marked[index].outdated:
            marked[index] = latest
            return tuple(marked)
    return (*marked, latest)

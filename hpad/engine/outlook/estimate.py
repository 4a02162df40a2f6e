"""What a metric per pod would propose if its pods used something else, computed from the trace.

`hpad.engine.pods` measures real pods; this computes with sums over them, so that thresholds can be searched.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from hpad.api.quantity import parse_milli, quotient, truncated
from hpad.api.sample import CONTAINER_RESOURCE, PODS, RESOURCE
from hpad.engine import trace
from hpad.engine.pods import Usage
from hpad.engine.propose import Tolerances, by_pods
from hpad.engine.spec import UTILIZATION

_OF_PODS: Final = (RESOURCE, CONTAINER_RESOURCE, PODS)


class Pods(NamedTuple):
    """The pods of a metric: values that count (those of unlisted pods as well), ready pods, and their requests.

    `unready` and `missing` hold the request of each such pod, 0 where the metric target is no Utilization. `lacking` is
    the number of pods without the container of the metric.
    """

    counted: int
    ready: int
    requested: int
    unready: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    lacking: int = 0

    def used_at(self, reading: int, *, percent: bool) -> int:
        """Returns the least usage of all counted pods together, in milli-units, that has this reading."""
        return -(-reading * self.requested // 100) if percent else reading * self.counted


class Proposed(NamedTuple):
    """The replicas that a metric proposes, and whether its reading is above the metric target."""

    replicas: int
    above: bool


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


def tolerances(metric: trace.MetricTrace) -> Tolerances:
    """Returns the tolerances of the metric; none where it was not measured."""
    allowed = metric.tolerance
    return Tolerances(0.0, 0.0) if allowed is None else Tolerances(allowed.down, allowed.up)


def request(pod: trace.PodTrace) -> int:
    """Returns the request of a pod in milli-units; 0 where it is unknown or not needed."""
    return 0 if pod.request is None else parse_milli(pod.request)


def grouped(metric: trace.MetricTrace) -> Pods:
    """Returns the pods of the trace."""
    found: dict[str, list[int]] = {}
    for pod in metric.pods:
        found.setdefault(pod.group, []).append(request(pod))
    ready, unlisted = found.get(trace.READY, []), found.get(trace.UNLISTED, [])
    return Pods(
        counted=len(ready) + len(unlisted),
        ready=len(ready),
        requested=sum(ready),
        unready=tuple(found.get(trace.UNREADY, ())),
        missing=tuple(found.get(trace.MISSING, ())),
        lacking=len(found.get(trace.LACKING, ())),
    )


def used(metric: trace.MetricTrace) -> int:
    """Returns the usage of the counted pods of the trace together, in milli-units."""
    groups = (trace.READY,) if is_utilization(metric) else (trace.READY, trace.UNLISTED)
    return sum(parse_milli(pod.value) for pod in metric.pods if pod.group in groups and pod.value is not None)


def proposed(metric: trace.MetricTrace, pods: Pods, usage: int, current: int, *, huge: bool) -> Proposed:
    """Returns the proposal if the counted pods used `usage` milli-units together. `huge`: see `propose.by_pods`."""
    found = _measured(metric, pods, usage)
    return Proposed(by_pods(found, current, tolerances(metric), huge=huge), found.ratio > 1.0)


def _measured(metric: trace.MetricTrace, pods: Pods, usage: int) -> Usage:
    """Returns the usage of the metric (`hpad.engine.pods`: per_pod, guessed)."""
    ratio = _ratio(metric, usage, pods.requested, pods.counted)
    grows = ratio > 1.0
    filled = (*pods.missing, *(pods.unready if grows else ()))
    count, cautious = pods.ready, None
    if filled and ratio != 1.0:  # at the target nothing changes
        count = pods.counted + len(filled)
        total = usage if grows else usage + _busy(metric, pods.missing)
        cautious = _ratio(metric, total, pods.requested + sum(filled), count)
    if pods.lacking and grows:
        cautious = quotient((ratio if cautious is None else cautious) * count, count + pods.lacking)
    return Usage(ratio=ratio, value=None, pods=count + pods.lacking, cautious=cautious)


def _ratio(metric: trace.MetricTrace, usage: int, requested: int, count: int) -> float:
    reading = truncated(usage * 100, requested) if is_utilization(metric) else truncated(usage, count)
    return quotient(reading, amount(metric))


def _busy(metric: trace.MetricTrace, missing: Iterable[int]) -> int:
    """Returns the usage that stands for pods without a value on a scale-down."""
    goal = amount(metric)
    if not is_utilization(metric):
        return sum(goal for _ in missing)
    return sum(truncated(each * max(100, goal), 100) for each in missing)

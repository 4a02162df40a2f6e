"""The readings of a metric at which its proposal starts to differ from a count, computed from the trace.

A reading is what a person watches: percent of the requests (Utilization), the average per pod in milli-units (a metric
per pod), or the total in milli-units (Object and External metrics). Proposals are those of `hpad.engine.propose`, so
the thresholds include tolerance, rounding, pods that do not count yet, and activation. Other readings, and all pods,
stay as they are.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from hpad.api.quantity import MAX_INT32, Quantity, parse_milli, quotient
from hpad.api.sample import EXTERNAL, OBJECT
from hpad.engine import trace
from hpad.engine.outlook.estimate import Pods, Proposed, amount, grouped, is_utilization, of_pods, proposed, tolerances
from hpad.engine.outlook.types import ABOVE, AT_LEAST, AT_MOST, BELOW, Threshold
from hpad.engine.pods import Usage
from hpad.engine.propose import by_ratio, by_share
from hpad.engine.spec import AVERAGE_VALUE

_LARGEST: Final = 2**62


class Situation(NamedTuple):
    """The replicas to differ from, the count that the target reports, and the feature gates.

    `settled`: the count has just changed, so all of its pods are taken to be ready.
    """

    replicas: int
    observed: int
    gates: tuple[str, ...]
    settled: bool = False


def reading(metric: trace.MetricTrace) -> int | None:
    """Returns the present reading; None where there is none."""
    usage = metric.usage
    if usage is None or is_utilization(metric):
        return None if usage is None else usage.percent
    text = usage.value if usage.total is None else usage.total
    return None if text is None else parse_milli(text)


def growth(metric: trace.MetricTrace, situation: Situation) -> Threshold | None:
    """Returns the threshold above which the metric proposes more than the count; None where there is none."""
    proposal = _proposals(metric, situation)
    if proposal is None:
        return None
    first = first_where(lambda value: proposal(value).replicas > situation.replicas, _most(metric))
    if not first:
        return None
    return _threshold(metric, situation, (ABOVE, first - 1), (AT_LEAST, first))


def shrinking(metric: trace.MetricTrace, situation: Situation) -> Threshold | None:
    """Returns the threshold below which the metric proposes less than the count; None where there is none."""
    proposal = _proposals(metric, situation)
    if proposal is None:
        return None
    first = first_where(lambda value: not _shrinks(proposal(value), situation.replicas), _most(metric))
    if not first:
        return None
    return _threshold(metric, situation, (BELOW, first), (AT_MOST, first - 1))


def _shrinks(proposed: Proposed, count: int) -> bool:
    # With fewer ready pods than replicas, a reading little above the target proposes fewer, too: not a threshold.
    return proposed.replicas < count and (proposed.replicas == 0 or not proposed.above)


def _most(metric: trace.MetricTrace) -> int:
    return MAX_INT32 if is_utilization(metric) else _LARGEST


def first_where(holds: Callable[[int], bool], most: int) -> int | None:
    """Returns the smallest number from 0 to `most` for which `holds`, which stays true for larger ones."""
    if holds(0):
        return 0
    if most < 1:
        return None
    high = 1
    while not holds(high):
        if high >= most:
            return None
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _threshold(metric: trace.MetricTrace, situation: Situation, *forms: tuple[str, int]) -> Threshold:
    """Returns the form of a threshold whose number is the rounder one."""
    relation, value = min(forms, key=lambda form: _roundness(form[1]))
    text = str(value) if is_utilization(metric) else str(Quantity.from_milli(value))
    shared = not of_pods(metric) and metric.target is not None and metric.target.type == AVERAGE_VALUE
    return Threshold(metric=metric.address, relation=relation, amount=text, pods=situation.observed if shared else None)


def _roundness(value: int) -> tuple[int, bool]:
    """Orders numbers: fewer digits before the trailing zeros are rounder, then multiples of 5."""
    return len(str(value).rstrip("0")), value % 5 != 0


def _proposals(metric: trace.MetricTrace, situation: Situation) -> Callable[[int], Proposed] | None:
    """Returns the function from readings to proposals; None where the trace does not determine it."""
    if metric.tolerance is None or metric.error:
        return None
    if of_pods(metric):
        return _by_pods(metric, situation)
    return _by_total(metric, situation)


def _by_total(metric: trace.MetricTrace, situation: Situation) -> Callable[[int], Proposed] | None:
    if metric.type not in (OBJECT, EXTERNAL) or metric.usage is None or metric.target is None:
        return None
    goal, allowed, (replicas, observed, *_) = amount(metric), tolerances(metric), situation
    ready = replicas if situation.settled else metric.usage.pods
    if metric.target.type != AVERAGE_VALUE and ready is None and replicas:
        return None
    threshold = None if metric.activation is None else parse_milli(metric.activation.threshold)

    def proposal(total: int) -> Proposed:
        above = False
        if metric.target is not None and metric.target.type == AVERAGE_VALUE:
            ratio = quotient(float(total), float(goal) * float(observed))
            found = by_share(Usage(ratio=ratio, value=None, pods=observed, total=total), goal, observed, allowed)
        else:
            ratio = quotient(float(total), float(goal))
            found, above = by_ratio(Usage(ratio=ratio, value=total, pods=ready), replicas, allowed), ratio > 1.0
        return Proposed(found if threshold is None else _activated(found, total > threshold), above)

    return proposal


def _activated(proposal: int, active: bool) -> int:
    """Applies the activation threshold (`hpad.engine.recommend`)."""
    return (proposal or 1) if active else 0


def _by_pods(metric: trace.MetricTrace, situation: Situation) -> Callable[[int], Proposed] | None:
    if not situation.replicas:
        return None
    if situation.settled:
        pods = Pods(counted=situation.replicas, ready=situation.replicas, requested=100 * situation.replicas)
    elif metric.pods_omitted:
        return None
    else:
        pods = grouped(metric)
    huge = "HPAHugeProposals" in situation.gates

    def proposal(value: int) -> Proposed:
        return proposed(
            metric, pods, pods.used_at(value, percent=is_utilization(metric)), situation.replicas, huge=huge
        )

    return proposal

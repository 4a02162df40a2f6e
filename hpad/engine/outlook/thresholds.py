"""The readings of a metric at which its proposal starts to differ from the count.

Proposals are those of the engine (`hpad.engine.outlook.readings`), so the thresholds include tolerance, rounding, pods
that do not count yet, and activation.
"""

from fractions import Fraction
from typing import Final

from hpad.api import amounts
from hpad.api.quantity import MAX_INT32, Quantity, parse_milli
from hpad.engine.addresses import addresses
from hpad.engine.outlook import readings
from hpad.engine.outlook.after import Next
from hpad.engine.outlook.types import ABOVE, AT_LEAST, AT_MOST, BELOW, Threshold
from hpad.engine.propose import Proposal
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, CompiledMetric

_LARGEST: Final = 2**62
_RELATIONS: Final = {ABOVE: "above", AT_LEAST: "at least", BELOW: "below", AT_MOST: "at most"}


def growth(state: Next, index: int) -> Threshold | None:
    """Returns the threshold above which the metric asks for so much that the count grows; None where it has none."""
    proposal = readings.proposals(state, index)
    if proposal is None:
        return None
    first = readings.first_where(lambda value: proposal(value).replicas >= state.more, *_range(state, index))
    if not first:
        return None
    return _threshold(state, index, (ABOVE, first - 1), (AT_LEAST, first))


def shrinking(state: Next, index: int) -> Threshold | None:
    """Returns the threshold below which the metric asks for so little that it shrinks; None where it has none."""
    proposal = readings.proposals(state, index)
    if proposal is None:
        return None
    first = readings.first_where(lambda value: not _shrinks(proposal(value), state.fewer), *_range(state, index))
    if not first:
        return None
    return _threshold(state, index, (BELOW, first), (AT_MOST, first - 1))


def _shrinks(proposal: Proposal, fewer: int) -> bool:
    # With fewer ready pods than replicas, a reading little above the target proposes fewer, too: not a threshold.
    usage = proposal.usage
    above = usage is not None and usage.ratio > 1.0 and not _is_shared(proposal.metric)
    return proposal.replicas <= fewer and (proposal.replicas == 0 or not above)


def _is_shared(metric: CompiledMetric) -> bool:
    """Whether the replicas share the reading."""
    return not metric.of_pods and metric.kind == AVERAGE_VALUE


def _metric(state: Next, index: int) -> CompiledMetric:
    return state.record.decision.proposals[index].metric


def _range(state: Next, index: int) -> tuple[int, int]:
    """Returns the largest reading that is tried, and one that is near to thresholds: what the target allows in all."""
    metric, scale = _metric(state, index), state.own.scale
    sharing = scale.status.replicas if scale is not None and _is_shared(metric) else 1
    return MAX_INT32 if metric.kind == UTILIZATION else _LARGEST, metric.amount * max(1, sharing)


def _threshold(state: Next, index: int, *forms: tuple[str, int]) -> Threshold:
    """Returns the form of a threshold whose number is the rounder one."""
    metric, scale = _metric(state, index), state.own.scale
    relation, value = min(forms, key=lambda form: _roundness(form[1]))
    text = str(value) if metric.kind == UTILIZATION else str(Quantity.from_milli(value))
    observed = 0 if scale is None else scale.status.replicas
    name = addresses(state.view.spec.metrics)[index]
    return Threshold(metric=name, relation=relation, amount=text, pods=observed if _is_shared(metric) else None)


def _roundness(value: int) -> tuple[int, bool]:
    """Orders numbers: fewer digits before the trailing zeros are rounder, then multiples of 5."""
    return len(str(value).rstrip("0")), value % 5 != 0


def crossing(proposal: Proposal, threshold: Threshold, *, settled: bool) -> str:
    """Returns a threshold with the present reading: "cpu is above 55% (now 53%)".

    `settled`: the count has just changed, so the reading per pod or per replica is no longer the present one.
    """
    metric = proposal.metric
    text = f"{threshold.metric} is {_RELATIONS[threshold.relation]} {_amount(metric, threshold)}"
    notes = [*_share(metric, threshold), *_now(proposal, threshold, settled=settled)]
    return f"{text} ({'; '.join(notes)})" if notes else text


def _amount(metric: CompiledMetric, threshold: Threshold) -> str:
    if metric.kind == UTILIZATION:
        return f"{threshold.amount}%"
    text = amounts.exact(parse_milli(threshold.amount), metric.unit)
    return f"{text} per pod" if metric.of_pods else text


def _share(metric: CompiledMetric, threshold: Threshold) -> list[str]:
    """Returns the share of one replica in the total of a threshold."""
    if threshold.pods is None or threshold.pods < 2:
        return []
    share = Fraction(parse_milli(threshold.amount), threshold.pods)
    return [f"{amounts.rounded(share, 0, metric.unit)} per replica"]


def _now(proposal: Proposal, threshold: Threshold, *, settled: bool) -> list[str]:
    value, metric = readings.reading(proposal), proposal.metric
    if value is None or (settled and metric.of_pods):
        return []
    if metric.kind == UTILIZATION:
        return [f"now {value}%"]
    return [f"now {amounts.rounded(value, parse_milli(threshold.amount), metric.unit)}"]

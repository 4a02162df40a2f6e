"""The outlook of one direction: the readings at which the count grows or shrinks, or what blocks the direction.

A threshold is the reading at which the proposal of a metric starts to differ from the count. Proposals are those of the
engine (`hpad.engine.outlook.readings`), so thresholds include tolerance, rounding, pods that do not count yet, and
activation.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from hpad.api import amounts
from hpad.api.behavior import DISABLED
from hpad.api.quantity import MAX_INT32, Quantity, parse_milli
from hpad.api.sample import PodSample
from hpad.engine.addresses import addresses
from hpad.engine.outlook import after, readings
from hpad.engine.outlook.after import Next, Step
from hpad.engine.outlook.types import ABOVE, AT_LEAST, AT_MOST, BELOW, BLOCKED, GROWTH, SHRINKING, Outlook, Threshold
from hpad.engine.propose import Proposal
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, CompiledMetric
from hpad.engine.stage import DOWN_LIMIT, LAST_REPLICA, MAXIMUM, MINIMUM, UP_LIMIT
from hpad.engine.words import WITHOUT_ZERO, clock, names, span

_MOST: Final = 4
"""Metrics in one sentence."""
_Crossings = Sequence[tuple[Proposal, Threshold]]


def growing(state: Next) -> Iterator[Outlook]:
    """Yields the readings above which the count grows, unless the metrics ask for more already."""
    if state.recommended is not None and state.total(state.recommended) > state.count:
        return
    step = after.next_step(state, state.more)
    if step is None:
        yield Outlook(kind=BLOCKED, text=f"cannot grow: {_block(state, state.more)}")
        return
    if has_policy(state):  # one metric beyond a threshold need not change the value of the policy
        return
    proposals = state.record.decision.proposals
    found = [(each, _crossed(state, index, up=True)) for index, each in enumerate(proposals)]
    crossings = [(proposal, threshold) for proposal, threshold in found if threshold is not None]
    if not crossings:
        return
    room = f", if {room_in_budget(state)}" if state.view.controls.budget else ""
    wait, ready = _wait(step, state, up=True), _ready(crossings, state)
    yield Outlook(
        kind=GROWTH,
        text=f"grows once {_joined(crossings, 'or', state)}{wait}{ready}{room}",
        thresholds=tuple(threshold for _, threshold in crossings),
    )


def shrinking(state: Next) -> Iterator[Outlook]:
    """Yields the readings below which the count shrinks, unless the metrics ask for less already."""
    if state.recommended is None or state.total(state.recommended) < state.count or state.count == 0:
        return
    step = after.next_step(state, state.fewer)
    if step is None:
        yield Outlook(kind=BLOCKED, text=f"cannot shrink: {_block(state, state.fewer)}")
        return
    if step.replicas > state.count:  # without spec.behavior, a past recommendation makes the count grow first
        return
    if has_policy(state):
        return
    obstacle = _obstacle(state)
    if obstacle:
        yield Outlook(kind=BLOCKED, text=f"cannot shrink while {obstacle}")
        return
    crossings = []
    for index, proposal in enumerate(state.record.decision.proposals):
        if proposal.error is not None or proposal.replicas <= state.fewer:
            continue
        threshold = _crossed(state, index, up=False)
        if threshold is None:
            yield from _without_threshold(state, index)
            return
        crossings.append((proposal, threshold))
    if crossings:
        wait = _wait(step, state, up=False)
        yield Outlook(
            kind=SHRINKING,
            text=f"shrinks once {_joined(crossings, 'and', state)}{wait}{_ready(crossings, state)}",
            thresholds=tuple(threshold for _, threshold in crossings),
        )


def stuck(state: Next, recommended: int) -> Outlook:
    """Returns why the count never follows what the metrics ask for."""
    metric = "the metric policy" if has_policy(state) else leader(state)
    return Outlook(
        kind=BLOCKED, text=f"{state.amount(recommended)} wanted by {metric}, but {_block(state, recommended)}"
    )


def room_in_budget(state: Next) -> str:
    """Returns the condition under which the budget of the HPA lets it grow: others change what they want."""
    return f"the budget {state.view.controls.budget} has room"


def has_policy(state: Next) -> bool:
    """Whether a metric policy decides."""
    recommendation = state.record.decision.recommendation
    return recommendation is not None and recommendation.policy is not None


def leader(state: Next) -> str:
    """Returns the address of the metric that leads."""
    decision, names_of_metrics = state.record.decision, addresses(state.view.spec.metrics)
    found = None if decision.recommendation is None else decision.recommendation.leader
    return next(name for name, each in zip(names_of_metrics, decision.proposals, strict=True) if each is found)


def named(state: Next, proposals: Sequence[Proposal]) -> list[str]:
    """Returns the addresses of the metrics of these proposals."""
    found = zip(addresses(state.view.spec.metrics), state.record.decision.proposals, strict=True)
    return [name for name, each in found if any(each is other for other in proposals)]


def failing(state: Next) -> list[Proposal]:
    """Returns the proposals of the metrics that fail and have no fallback in force."""
    return [each for each in state.record.decision.proposals if each.error is not None and not each.fallback]


def _block(state: Next, recommended: int) -> str:
    spec, holder, up = state.view.spec, after.holder(state, recommended), state.total(recommended) > state.count
    low, high = state.bounded.limits
    if holder == MAXIMUM:
        return f"maxReplicas is {high}" if high == spec.max_replicas else f"the maximum is {high} by its schedule"
    if holder == MINIMUM:
        if state.bounded.scale_to_zero_disabled and low == 1:
            return WITHOUT_ZERO
        return f"minReplicas is {low}" if low == spec.min_replicas else f"the minimum is {low} by its schedule"
    if holder == LAST_REPLICA:
        return "the last replica stays until all metrics can be read"
    rules = state.rules(up=up)
    is_disabled = rules is not None and rules.select == DISABLED
    field = f"spec.behavior.{'scaleUp' if up else 'scaleDown'}"
    return f"{field}.selectPolicy is Disabled" if is_disabled else f"{field} allows nothing"


def _obstacle(state: Next) -> str:
    """Returns the failing metrics that keep the count from shrinking."""
    failed = failing(state)
    if failed:
        return f"{names(named(state, failed))} cannot be read"
    replaced = [
        each
        for each in state.record.decision.proposals
        if each.error is not None and (0 if each.ignored else each.replicas) > state.fewer
    ]
    return f"the fallback of {names(named(state, replaced))} is in force" if replaced else ""


def _without_threshold(state: Next, index: int) -> Iterator[Outlook]:
    proposal, sample = state.record.decision.proposals[index], state.answers[index]
    if not isinstance(sample, PodSample):
        return
    missing = readings.counted(state.own, proposal.metric, sample).groups.missing
    if missing:
        values = "has no value" if len(missing) == 1 else "have no values"
        [metric] = named(state, [proposal])
        yield Outlook(kind=BLOCKED, text=f"cannot shrink while {names(missing)} {values} for {metric}")


def _joined(crossings: _Crossings, last: str, state: Next) -> str:
    found = [_crossing(proposal, threshold, settled=state.settled) for proposal, threshold in crossings]
    if len(found) > _MOST:
        found = [*found[: _MOST - 1], f"{len(found) - _MOST + 1} more metrics cross theirs"]
    return f" {last} ".join(found)


def _ready(crossings: _Crossings, state: Next) -> str:
    """Returns on which pods thresholds per pod rely where the count has just changed."""
    if not state.settled or not any(proposal.metric.of_pods for proposal, _ in crossings):
        return ""
    pods = {1: "its pod", 2: "both pods"}.get(state.count, f"all {state.count} pods")
    return f", with {pods} ready"


def _wait(step: Step, state: Next, *, up: bool) -> str:
    """Returns for how long a reading has to stay, and from when on policies allow the step."""
    last = state.view.controls.zero_after if step.held_by == LAST_REPLICA else None
    window, since = (last or state.view.window(up=up)).total_seconds(), ""
    if step.at is not None and step.held_by in (UP_LIMIT, DOWN_LIMIT):
        since = f", from {clock(step.at, state.view.now)} on"
    return f" for {span(window)}{since}" if window else since


_LARGEST: Final = 2**62
_RELATIONS: Final = {ABOVE: "above", AT_LEAST: "at least", BELOW: "below", AT_MOST: "at most"}


def _crossed(state: Next, index: int, *, up: bool) -> Threshold | None:
    """Returns the threshold beyond which the metric asks for so much, or so little, that the count changes.

    None where it has none.
    """
    proposal = readings.proposals(state, index)
    if proposal is None:
        return None

    def is_above(value: int) -> bool:
        made = proposal(value)
        return made.replicas >= state.more if up else not _shrinks(made, state.fewer)

    first = readings.first_where(is_above, *_range(state, index))
    if not first:
        return None
    forms = ((ABOVE, first - 1), (AT_LEAST, first)) if up else ((BELOW, first), (AT_MOST, first - 1))
    return _threshold(state, index, *forms)


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


def _crossing(proposal: Proposal, threshold: Threshold, *, settled: bool) -> str:
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

"""The outlook of one direction: the readings at which the count grows or shrinks, or what blocks the direction."""

from collections.abc import Iterator, Sequence
from typing import Final

from hpad.api.sample import PodSample
from hpad.engine.addresses import addresses
from hpad.engine.behavior import DISABLED
from hpad.engine.outlook import after, thresholds
from hpad.engine.outlook.after import Next, Step
from hpad.engine.outlook.readings import counted
from hpad.engine.outlook.types import BLOCKED, GROWTH, SHRINKING, Outlook, Threshold
from hpad.engine.propose import Proposal
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
    found = [(each, thresholds.growth(state, index)) for index, each in enumerate(proposals)]
    crossings = [(proposal, threshold) for proposal, threshold in found if threshold is not None]
    if not crossings:
        return
    yield Outlook(
        kind=GROWTH,
        text=f"grows once {_joined(crossings, 'or', state)}{_wait(step, state, up=True)}{_ready(crossings, state)}",
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
        threshold = thresholds.shrinking(state, index)
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
    holder, up = after.holder(state, recommended), state.total(recommended) > state.count
    low, high = state.bounded.limits
    if holder == MAXIMUM:
        return f"maxReplicas is {high}"
    if holder == MINIMUM:
        by_gate = state.bounded.scale_to_zero_disabled and low == 1
        return WITHOUT_ZERO if by_gate else f"minReplicas is {low}"
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
    missing = counted(state.own, proposal.metric, sample).groups.missing
    if missing:
        values = "has no value" if len(missing) == 1 else "have no values"
        [metric] = named(state, [proposal])
        yield Outlook(kind=BLOCKED, text=f"cannot shrink while {names(missing)} {values} for {metric}")


def _joined(crossings: _Crossings, last: str, state: Next) -> str:
    found = [thresholds.crossing(proposal, threshold, settled=state.settled) for proposal, threshold in crossings]
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
    window, since = (last or state.window(up=up)).total_seconds(), ""
    if step.at is not None and step.held_by in (UP_LIMIT, DOWN_LIMIT):
        since = f", from {clock(step.at, state.view.now)} on"
    return f" for {span(window)}{since}" if window else since

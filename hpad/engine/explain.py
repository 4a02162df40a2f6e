"""Explains a decision: the stages that changed the replica count, in order, from the metric to the final count."""

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import msgspec

from hpad.api import amounts
from hpad.engine.metric_policy import Policy
from hpad.engine.propose import Proposal
from hpad.engine.recommend import Recommendation, policy_name
from hpad.engine.restrain import Restrained
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION

METRIC: Final = "metric"
POLICY: Final = "policy"
FALLBACK: Final = "fallback"
ACTIVATION: Final = "activation"
NEGATIVE: Final = "negative"
STABILIZATION: Final = "stabilization"
LIMIT: Final = "limit"
MINIMUM: Final = "minimum"
BUSY: Final = "busy"


class Stage(msgspec.Struct, frozen=True):
    """One stage that determined the count: its name, the count after it, and a clause that says why."""

    name: str
    replicas: int
    text: str


def stages(
    proposals: Sequence[Proposal], recommendation: Recommendation, restrained: Restrained, current: int, desired: int
) -> tuple[Stage, ...]:
    """Returns the leading metric's proposal and each later stage that changed the count; () without a leader.

    The count of the last stage is `desired`, the count before busy pods are kept.
    """
    leader = recommendation.leader
    if leader is None:
        return ()
    found = [_first(proposals, recommendation, leader, current)]
    if recommendation.policy is None and leader.measured is not None:
        found.append(Stage(ACTIVATION, leader.replicas, _activation(leader)))
    if recommendation.replicas < 0:
        found.append(Stage(NEGATIVE, 0, "less than 0 counts as 0"))
    if restrained.deciding is not None:
        found.append(Stage(STABILIZATION, restrained.stabilized, restrained.stabilization))
    if restrained.limit:
        found.append(Stage(LIMIT, restrained.replicas, restrained.limit))
    if desired != restrained.replicas:
        found.append(Stage(MINIMUM, desired, f"the minimum is {desired}"))
    return tuple(found)


def joined(found: Sequence[Stage]) -> str:
    """Returns the stages as a clause: "queue above target (40 / 1 per replica, …); 40 wanted but the maximum is 10"."""
    first, *later = found
    if not later:
        return first.text
    return f"{first.text}; {first.replicas} wanted but {'; '.join(stage.text for stage in later)}"


def other_metrics(proposals: Sequence[Proposal], recommendation: Recommendation) -> str:
    """Names failures, fallbacks and activation thresholds of the metrics that the first stage does not name."""
    notes = []
    named = () if recommendation.policy is None else recommendation.policy.metrics
    for index, proposal in enumerate(proposals):
        if index in named or (recommendation.policy is None and proposal is recommendation.leader):
            continue
        if proposal.error is not None:
            notes.append(failure(proposal))
        elif proposal.measured is not None:
            notes.append(f"{proposal.metric.label} wants {_activation(proposal)}")
    return "".join(f"; {each}" for each in notes)


def undecided(proposals: Sequence[Proposal], recommendation: Recommendation) -> str:
    """Says why the count stays: the failing metrics with their causes, and the proposals that are not applied."""
    failing = [proposal for proposal in proposals if proposal.error is not None]
    if not failing:
        return recommendation.error or "no metric can be read"
    if recommendation.policy is not None:
        return _uncertain(proposals, recommendation.policy, failing)
    others = [f"{proposal}, but nothing shrinks meanwhile" for proposal in proposals if proposal.error is None]
    return "; ".join([*map(failure, failing), *others])


def _uncertain(proposals: Sequence[Proposal], policy: Policy, failing: Sequence[Proposal]) -> str:
    valid = [str(proposals[index]) for index in policy.metrics if proposals[index].error is None]
    return "; ".join([*map(failure, failing), *valid, f"{policy_name(policy)} asks for no growth without the others"])


def failure(proposal: Proposal) -> str:
    """Names a failed metric, the cause, and its fallback."""
    label = proposal.metric.label
    return (
        f"{label} {proposal.fallback} ({proposal.cause})" if proposal.fallback else f"{label} fails: {proposal.cause}"
    )


def _first(proposals: Sequence[Proposal], recommendation: Recommendation, leader: Proposal, current: int) -> Stage:
    if recommendation.policy is not None:
        operands = ", ".join(str(proposals[index]) for index in recommendation.policy.metrics)
        text = f"{policy_name(recommendation.policy)} asks for {recommendation.replicas}: {operands}"
        return Stage(POLICY, recommendation.replicas, text)
    if leader.fallback:
        return Stage(FALLBACK, leader.replicas, failure(leader))
    count = leader.replicas if leader.measured is None else leader.measured
    return Stage(METRIC, count, _measured(proposals, leader, count, current))


def _measured(proposals: Sequence[Proposal], leader: Proposal, count: int, current: int) -> str:
    label, where = leader.metric.label, _standing(leader)
    reading = f"({leader.reading}{_caution(leader)})"
    if len(proposals) > 1 and all(_shrinks(proposal, current) for proposal in proposals):
        return f"all metrics below target, {label} the closest {reading}"
    return f"{label} {where} {reading}{_why(leader, count, current)}{_unserved(leader)}"


def _unserved(proposal: Proposal) -> str:
    """Says of a queue and the like that nothing is done about it."""
    usage = proposal.usage
    if usage is not None and usage.unserved:
        return ", but none of the pods is ready, so that none consumes it"
    return f", but {usage.note}" if usage is not None and usage.note else ""


def _shrinks(proposal: Proposal, current: int) -> bool:
    """Whether the metric is below its target and proposes fewer replicas."""
    fewer = proposal.error is None and not proposal.tolerated and proposal.replicas < current
    return fewer and _ratio(proposal) < 1.0


def _ratio(proposal: Proposal) -> float:
    """Returns usage / metric target; 0 where there is no usage or the ratio is not a number."""
    usage = proposal.usage
    return 0.0 if usage is None or math.isnan(usage.ratio) else usage.ratio


def _standing(proposal: Proposal) -> str:
    ratio = _ratio(proposal)
    if ratio == 1.0:
        return "at its target"
    if proposal.tolerated and not _caution(proposal):
        return "within the tolerance of its target"
    return "above target" if ratio > 1.0 else "below target"


def _caution(proposal: Proposal) -> str:
    """Returns the usage with unready and missing pods counted in; "" where it makes no difference."""
    usage, metric = proposal.usage, proposal.metric
    if usage is None or usage.cautious is None or usage.cautious == usage.ratio:
        return ""
    exact = Fraction(usage.cautious) * metric.amount
    used = f"{round(exact)}%" if metric.kind == UTILIZATION else amounts.rounded(exact, metric.amount, metric.unit)
    grows = usage.ratio > 1.0
    groups = [(usage.missing, "without a value"), (usage.unready if grows else 0, "not ready")]
    pods = [f"{count} pod{'' if count == 1 else 's'} {state}" for count, state in groups if count]
    return f", {used} counting {' and '.join(pods)} as {'idle' if grows else 'busy'}"


def _why(proposal: Proposal, count: int, current: int) -> str:
    """Shows the calculation where the usage alone does not explain the count."""
    usage, ratio = proposal.usage, _ratio(proposal)
    if usage is None:
        return ""
    if proposal.tolerated:
        return _tolerated(proposal, count, current)
    if (ratio > 1.0 and count > current) or (ratio < 1.0 and count < current):
        return ""
    used = usage.ratio if usage.cautious is None else usage.cautious
    turned = (usage.ratio - 1.0) * (used - 1.0) < 0
    needed = _needed(proposal, used, current)
    # The count also stays where the larger number of pods would reverse the direction (`propose.by_pods`).
    kept = count == current and usage.cautious is not None and needed is not None and math.ceil(needed[1]) != count
    if turned or kept:
        return ": nothing changes, since those pods could reverse the scale direction"
    return "" if needed is None else f": {needed[0]}{_rounding(needed[1], count)}"


def _tolerated(proposal: Proposal, count: int, current: int) -> str:
    if count == current:
        return ", which is within the tolerance" if _caution(proposal) else ""
    return f" with the {count} replicas that are running"


def _needed(proposal: Proposal, ratio: float, current: int) -> tuple[str, float] | None:
    """Returns the calculation of the count before rounding, and that count; None where it is not a number."""
    usage, metric = proposal.usage, proposal.metric
    if usage is None or not math.isfinite(ratio):
        return None
    if not metric.of_pods and metric.kind == AVERAGE_VALUE and usage.total is not None:
        needed = usage.total / metric.amount
        return f"{amounts.rounded(usage.total, 0, metric.unit)} / {proposal.metric_target} is {_number(needed)}", needed
    if not metric.of_pods and current == 0:
        return f"{_number(ratio)} times the target", ratio
    needed = ratio * (usage.pods or 0)
    pods = "pod" if usage.pods == 1 else "pods"
    return f"{_number(ratio)} x {usage.pods or 0} {pods} is {_number(needed)}", needed


def _rounding(needed: float, count: int) -> str:
    if needed == count:
        return ""
    return f", rounded up to {count}" if math.ceil(needed) == count else f", counted as {count}"


def _number(number: float) -> str:
    """Writes at least three digits: enough to tell the number from the nearest integer.

    The float is read as the fraction that it stands for: 4.755 is rounded to 4.76.
    """
    exact, near = Fraction(number), Fraction(number).limit_denominator(10**9)
    return amounts.rounded((exact if near.denominator == 1 else near) * 1000, round(number) * 1000)


def _activation(proposal: Proposal) -> str:
    threshold = amounts.exact(proposal.threshold, proposal.metric.unit)
    where = "above" if proposal.replicas else "not above"
    return f"{proposal.replicas}, {where} its activation threshold {threshold}"

"""The phrases of the sentence about a decision: what the metrics ask for and why, and what fails."""

import math
from collections.abc import Sequence
from fractions import Fraction

from hpad.api import amounts
from hpad.engine.metric_policy import MetricPolicy
from hpad.engine.propose import Proposal
from hpad.engine.recommend import Recommendation, policy_name
from hpad.engine.spec import UTILIZATION


def wanted(proposals: Sequence[Proposal], recommendation: Recommendation, current: int) -> list[str]:
    """Returns what determined the count that the metrics ask for, then what changed it; [] without a leader."""
    leader = recommendation.leader
    if leader is None:
        return []
    found = [_first(proposals, recommendation, leader, current)]
    if recommendation.policy is None and leader.measured is not None:
        found.append(_activation(leader))
    if recommendation.replicas < 0:
        found.append("less than 0 counts as 0")
    return found


def count_of(recommendation: Recommendation) -> int:
    """Returns the count that the first clause explains: the one before an activation threshold."""
    leader = recommendation.leader
    if recommendation.policy is None and leader is not None and leader.measured is not None:
        return leader.measured
    return recommendation.replicas


def other_metrics(proposals: Sequence[Proposal], recommendation: Recommendation) -> list[str]:
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
    return notes


def undecided(proposals: Sequence[Proposal], recommendation: Recommendation) -> str:
    """Says why the count stays: the failing metrics with their causes, and the proposals that are not applied."""
    failing = [proposal for proposal in proposals if proposal.error is not None]
    if not failing:
        return recommendation.error or "no metric can be read"
    if recommendation.policy is not None:
        return _uncertain(proposals, recommendation.policy, failing)
    others = [f"{proposal}, but nothing shrinks meanwhile" for proposal in proposals if proposal.error is None]
    return "; ".join([*map(failure, failing), *others])


def _uncertain(proposals: Sequence[Proposal], policy: MetricPolicy, failing: Sequence[Proposal]) -> str:
    valid = [str(proposals[index]) for index in policy.metrics if proposals[index].error is None]
    return "; ".join([*map(failure, failing), *valid, f"{policy_name(policy)} asks for no growth without the others"])


def failure(proposal: Proposal) -> str:
    """Names a failed metric, the cause, and its fallback."""
    label = proposal.metric.label
    return (
        f"{label} {proposal.fallback} ({proposal.cause})" if proposal.fallback else f"{label} fails: {proposal.cause}"
    )


def _first(proposals: Sequence[Proposal], recommendation: Recommendation, leader: Proposal, current: int) -> str:
    if recommendation.policy is not None:
        operands = ", ".join(str(proposals[index]) for index in recommendation.policy.metrics)
        return f"{policy_name(recommendation.policy)} asks for {recommendation.replicas}: {operands}"
    return failure(leader) if leader.fallback else _measured(proposals, leader, count_of(recommendation), current)


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
        stays = ": the count stays" if proposal.without_ready_pods else ", so that none consumes it"
        return f", but none of the pods is ready{stays}"
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
    needed = calculation(proposal, current) if math.isfinite(used) else None
    # The count also stays where the larger number of pods would reverse the direction (`propose.by_pods`).
    kept = count == current and usage.cautious is not None and needed is not None and math.ceil(needed[1]) != count
    if turned or kept:
        return ": nothing changes, since those pods could reverse the scale direction"
    if needed is None:
        return ""
    text, result = needed
    times = " times the target" if text == number(result) else ""
    return f": {text}{times} is {number(result)}{_rounding(result, count)}"


def _tolerated(proposal: Proposal, count: int, current: int) -> str:
    if count == current:
        return ", which is within the tolerance" if _caution(proposal) else ""
    return f" with the {count} replicas that are running"


def calculation(proposal: Proposal, current: int) -> tuple[str, float] | None:
    """Returns the calculation of the count before rounding, and its result; None where it is not a number."""
    usage, metric = proposal.usage, proposal.metric
    if usage is None:
        return None
    if usage.total is not None:
        return f"{proposal.current} / {proposal.metric_target}", usage.total / metric.amount
    ratio = usage.ratio if usage.cautious is None else usage.cautious
    if not math.isfinite(ratio):
        return None
    if not metric.of_pods and current == 0:
        return number(ratio), ratio
    pods = usage.pods or 0
    return f"{number(ratio)} x {pods} {'pod' if pods == 1 else 'pods'}", ratio * pods


def _rounding(needed: float, count: int) -> str:
    if needed == count:
        return ""
    return f", rounded up to {count}" if math.ceil(needed) == count else f", counted as {count}"


def number(value: float) -> str:
    """Writes at least three digits: enough to tell the number from the nearest integer.

    The float is read as the fraction that it stands for: 4.755 is rounded to 4.76.
    """
    exact, near = Fraction(value), Fraction(value).limit_denominator(10**9)
    return amounts.rounded((exact if near.denominator == 1 else near) * 1000, round(value) * 1000)


def _activation(proposal: Proposal) -> str:
    threshold = amounts.exact(proposal.threshold, proposal.metric.unit)
    where = "above" if proposal.replicas else "not above"
    return f"{proposal.replicas}, {where} its activation threshold {threshold}"

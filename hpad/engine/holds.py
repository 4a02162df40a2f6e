"""The reasons that hold the replica count of an HPA back, from a small fixed set: label values of a series."""

from typing import Final

from hpad.engine.behavior import SCALE_DOWN_LIMIT, SCALE_UP_LIMIT, TOO_FEW, TOO_MANY
from hpad.engine.decide import Decision
from hpad.engine.examine import (
    AMBIGUOUS_SELECTOR,
    DISABLED,
    STALE_CACHE,
    UNREACHABLE,
    ZERO_DISABLED,
    Clamp,
    Halt,
)
from hpad.engine.propose import untolerated
from hpad.engine.recommend import Recommendation, without_tolerance
from hpad.engine.settle import Outcome
from hpad.engine.view import DRY_RUN, PAUSED, SHADOW, View

TARGET_UNREADABLE: Final = "target_unreadable"
STALE: Final = "stale_cache"
STOPPED: Final = "disabled"
INVALID_SELECTOR: Final = "invalid_selector"
SHARED_PODS: Final = "ambiguous_selector"
INVALID_METRICS: Final = "invalid_metrics"
TOLERANCE: Final = "tolerance"
STABILIZATION: Final = "stabilization"
UP_LIMIT: Final = "scale_up_limit"
DOWN_LIMIT: Final = "scale_down_limit"
MAXIMUM: Final = "maximum"
MINIMUM: Final = "minimum"
BUSY_PODS: Final = "busy_pods"
IN_DRY_RUN: Final = "dry_run"
IN_SHADOW: Final = "shadow"
IS_PAUSED: Final = "paused"
COMPETING_HPA: Final = "competing_hpa"
WRITE_FAILED: Final = "write_failed"
REASONS: Final = (
    TARGET_UNREADABLE, STALE, STOPPED, INVALID_SELECTOR, SHARED_PODS, INVALID_METRICS, TOLERANCE, STABILIZATION,
    UP_LIMIT, DOWN_LIMIT, MAXIMUM, MINIMUM, BUSY_PODS, IN_DRY_RUN, IN_SHADOW, IS_PAUSED, COMPETING_HPA, WRITE_FAILED,
)  # fmt: skip
"""In the order of the stages that hold the count."""
_WITHHELD: Final = {DRY_RUN.reason: IN_DRY_RUN, SHADOW.reason: IN_SHADOW, PAUSED: IS_PAUSED}
"""By the reason for which a count was withheld."""
_LIMITS: Final = {
    SCALE_UP_LIMIT: UP_LIMIT,
    SCALE_DOWN_LIMIT: DOWN_LIMIT,
    TOO_MANY: MAXIMUM,
    TOO_FEW: MINIMUM,
    ZERO_DISABLED: MINIMUM,
}
"""By the reason of the condition ScalingLimited."""


def held_by(view: View, decision: Decision, outcome: Outcome | None) -> tuple[str, ...]:
    """Returns the reasons why the target does not get the count that its metrics ask for, in the order of REASONS.

    Several may hold it at once, such as a stabilization window and a dry run. Empty where the target has, or gets, that
    count. O(metrics).
    """
    if isinstance(decision.verdict, Halt):
        return (_halted(decision.verdict),)
    if decision.undecided:
        return (INVALID_METRICS,)
    busy = decision.spared is not None and decision.spared.held
    return (*_restraints(view, decision), *((BUSY_PODS,) if busy else ()), *_unwritten(outcome))


def _halted(verdict: Halt) -> str:
    if verdict.kind == UNREACHABLE:
        return STALE if verdict.reason == STALE_CACHE else TARGET_UNREADABLE
    if verdict.kind == DISABLED:
        return STOPPED
    return SHARED_PODS if verdict.reason == AMBIGUOUS_SELECTOR else INVALID_SELECTOR


def _restraints(view: View, decision: Decision) -> list[str]:
    restrained = decision.restrained
    if isinstance(decision.verdict, Clamp) or restrained is None:  # the metrics were not asked
        return []
    found = [TOLERANCE] if _is_tolerated(view, decision) else []
    if restrained.deciding is not None:
        found.append(STABILIZATION)
    if decision.limited != restrained.replicas:  # from zero the minimum overrules the policies
        found.append(MINIMUM)
    elif restrained.limits_hold:
        found.append(_LIMITS[restrained.limited[0]])
    return found


def _is_tolerated(view: View, decision: Decision) -> bool:
    """Whether the recommendation would be another one without the tolerance."""
    recommendation = decision.recommendation
    if recommendation is None or not any(proposal.tolerated for proposal in decision.proposals):
        return False
    count = _untolerated(view, decision, recommendation)
    # A lower count would not be applied while a metric fails.
    return count > recommendation.replicas or (count < recommendation.replicas and not recommendation.invalid)


def _untolerated(view: View, decision: Decision, recommendation: Recommendation) -> int:
    if recommendation.policy is not None:
        count = without_tolerance(view, decision.proposals, recommendation.policy)
        return recommendation.replicas if count is None else count
    return max(untolerated(view, proposal) for proposal in decision.proposals)  # of failed metrics it is 0


def _unwritten(outcome: Outcome | None) -> list[str]:
    if outcome is None or outcome.written:
        return []
    if outcome.withheld is None:
        return [WRITE_FAILED]
    return [_WITHHELD.get(outcome.withheld.reason, COMPETING_HPA)]

"""The stages of a reconcile with the write of its count, and what holds the count back."""

from typing import assert_never

import msgspec

from hpad.engine import spare
from hpad.engine.decide import Decision
from hpad.engine.examine import Halt
from hpad.engine.propose import untolerated
from hpad.engine.recommend import Recommendation, without_tolerance
from hpad.engine.settle import Outcome
from hpad.engine.stage import (
    COMPETING_HPA,
    IN_DRY_RUN,
    IN_SHADOW,
    IS_PAUSED,
    METRICS,
    NOW,
    TOLERANCE,
    WRITE,
    WRITE_FAILED,
    Stage,
)
from hpad.engine.view import View, Withheld


def stages(view: View, decision: Decision, outcome: Outcome | None) -> list[Stage]:
    """Returns the stages of a reconcile in their order. O(metrics)."""
    now = [] if view.scale is None else [Stage(NOW, decision.current)]
    found = decision.stages
    if isinstance(decision.verdict, Halt):
        return [*now, *found]
    if found[0].name == METRICS and _is_tolerated(view, decision):
        found[0] = msgspec.structs.replace(found[0], holds=TOLERANCE)
    return [*now, *found, _write(view, decision, outcome)]


def held_by(view: View, decision: Decision, outcome: Outcome | None) -> tuple[str, ...]:
    """Returns the reasons why the target does not get the count that its metrics ask for, in the order of HOLDS.

    Several may hold it at once, such as a stabilization window and a dry run. Empty where the target has, or gets, that
    count.
    """
    return tuple([stage.holds for stage in stages(view, decision, outcome) if stage.holds])


def _is_tolerated(view: View, decision: Decision) -> bool:
    """Whether the recommendation would be another one without the tolerance."""
    recommendation = decision.recommendation
    if recommendation is None or decision.undecided or not any(proposal.tolerated for proposal in decision.proposals):
        return False
    count = _untolerated(spare.counting(view), decision, recommendation)
    # A lower count would not be applied while a metric fails.
    return count > recommendation.replicas or (count < recommendation.replicas and not recommendation.invalid)


def _untolerated(view: View, decision: Decision, recommendation: Recommendation) -> int:
    if recommendation.policy is not None:
        count = without_tolerance(view, decision.proposals, recommendation.policy)
        return recommendation.replicas if count is None else count
    return max(untolerated(view, proposal) for proposal in decision.proposals)  # of failed metrics it is 0


def _write(view: View, decision: Decision, outcome: Outcome | None) -> Stage:
    """Returns the write with the count that the target has after it; None where nothing was to be written."""
    if outcome is None:
        return Stage(WRITE, None)
    if outcome.written:
        return Stage(WRITE, decision.desired)
    left = decision.current if view.shadow is None else view.shadow.replicas
    if outcome.withheld is not None:
        return Stage(WRITE, left, holds=_withheld(outcome.withheld))
    return Stage(WRITE, None if outcome.unsure else left, holds=WRITE_FAILED)


def _withheld(why: Withheld) -> str:
    match why.reason:
        case "DryRun":
            return IN_DRY_RUN
        case "Shadow":
            return IN_SHADOW
        case "Paused":
            return IS_PAUSED
        case "CompetingHPA":
            return COMPETING_HPA
        case _:
            assert_never(why.reason)

"""What lists say of a reconcile: its stages with the write of the count, what holds that back, and a few words.

In the words what failed comes first, or what holds the count and until when: a table cuts off the end of a long text.
"""

from typing import Final

import msgspec

from hpad.engine import spare
from hpad.engine.decision import Decision
from hpad.engine.examine import DISABLED, Halt
from hpad.engine.propose import Proposal, untolerated
from hpad.engine.recommend import Recommendation, without_tolerance
from hpad.engine.settle import Outcome
from hpad.engine.stage import (
    COMPETING_HPA,
    IN_DRY_RUN,
    IN_SHADOW,
    IS_PAUSED,
    NOW,
    TOLERANCE,
    WRITE,
    WRITE_FAILED,
    Stage,
)
from hpad.engine.view import DRY_RUN, SHADOW, View

_WITHHELD: Final = {"DryRun": IN_DRY_RUN, "Shadow": IN_SHADOW, "Paused": IS_PAUSED, "CompetingHPA": COMPETING_HPA}
"""What holds a count that was withheld, by the reason."""


def stages(view: View, decision: Decision, outcome: Outcome | None) -> list[Stage]:
    """Returns the stages of a reconcile in their order. O(metrics)."""
    now = [] if view.scale is None else [Stage(NOW, decision.current)]
    found = decision.stages
    if isinstance(decision.verdict, Halt):
        return [*now, *found]
    if _is_tolerated(view, decision):
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
    if recommendation is None or not any(proposal.tolerated for proposal in decision.proposals):
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
        return Stage(WRITE, left, holds=_WITHHELD[outcome.withheld.reason])
    return Stage(WRITE, None if outcome.unsure else left, holds=WRITE_FAILED)


_BY_MODE: Final = (DRY_RUN, SHADOW)
"""Why no count of an HPA is written, which its states say."""


def brief(decision: Decision, outcome: Outcome | None) -> str:
    """Returns the decision: the verb, the causes, then the names of the metrics that failed."""
    if isinstance(decision.verdict, Halt):
        return str(decision.verdict)
    failed = "; ".join(_failure(each, alone=len(decision.proposals) == 1) for each in _failed(decision))
    reasons = "; ".join(filter(None, (failed, decision.held))) or decision.why
    if not reasons:
        return str(decision)
    if outcome is None or outcome.failure is None or outcome.withheld in _BY_MODE:
        return f"{_verb(decision)}: {reasons}"
    return f"{_verb(decision)} not written: {outcome.failure}; {reasons}"


def cause(decision: Decision, outcome: Outcome | None) -> str:
    """Returns what failed first, without the name of the metric; "" if nothing did."""
    if isinstance(decision.verdict, Halt):
        return "" if decision.verdict.kind == DISABLED else decision.verdict.text
    if outcome is not None and outcome.error is not None:
        return outcome.error
    return next((each.cause for each in _failed(decision)), "")


def _failed(decision: Decision) -> list[Proposal]:
    return [each for each in decision.proposals if each.error is not None]


def _failure(proposal: Proposal, *, alone: bool) -> str:
    if proposal.fallback:
        return f"{proposal.cause} ({proposal.metric.label} {proposal.fallback})"
    return proposal.cause if alone else f"{proposal.cause} ({proposal.metric.label})"


def _verb(decision: Decision) -> str:
    if decision.undecided:
        return "cannot decide"
    return f"keep {decision.current}" if decision.scale_to is None else f"{decision.current} to {decision.desired}"

"""A decision in a few words, for a table that has its metrics and counts beside it.

What failed comes first, or what holds the count and until when: a table cuts off the end of a long text.
"""

from typing import Final

from hpad.engine.decide import Decision
from hpad.engine.examine import DISABLED, Halt
from hpad.engine.propose import Proposal
from hpad.engine.settle import Outcome
from hpad.engine.view import DRY_RUN, SHADOW

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

"""What a reconcile tells people: the last decision for page and API, and lines of the log where there is news."""

import re
from collections.abc import Sequence
from typing import Any, Final

from hpad.engine import decide, explain, settle
from hpad.engine.propose import Proposal
from hpad.engine.view import View
from hpad.store.memory import Last

_SPAN: Final = re.compile(r"\b(\d+(\.\d+)?(h|m|s|ms|µs))+\b")


def told(view: View, decision: decide.Decision, outcome: settle.Outcome | None, settlement: settle.Settlement) -> Last:
    """The last decision for people, with the cause of what is wrong; a count that was not written says why."""
    failed = None if outcome is None else outcome.error
    return Last(
        at=view.now,
        sentence=settle.sentence(decision, outcome),
        error=(failed or decision.trouble or settlement.error) if settlement.error else None,
        withheld=decision.scale_to if outcome is not None and outcome.withheld is not None else None,
        relieved=tuple(proposal.goal.label for proposal in decision.proposals if proposal.relief),
    )


def say(log: Any, view: View, decision: decide.Decision, now: Last, before: Last, *, dry_run: bool) -> None:
    """One line for a change of the replica count or of what is wrong; the rest is for debugging.

    A count that is withheld stays decided turn after turn: that is said when it changes. A fallback says when it begins
    and when it ends.
    """
    _say_fallbacks(log, view, decision.proposals, now.relieved, before.relieved)
    moves = decision.scale_to is not None and now.withheld is None
    trouble = _topic(now.error) != _topic(before.error)
    news = trouble or now.withheld != before.withheld
    line = log.warning if now.error and trouble else log.info if news or moves else log.debug
    line(
        now.sentence,
        hpa=str(view.hpa.metadata.key),
        target=f"{view.hpa.spec.scale_target_ref.kind}/{view.hpa.spec.scale_target_ref.name}",
        replicas=view.scale.spec.replicas if view.scale is not None else None,
        scale_to=decision.scale_to,
        **({"dry_run": True} if dry_run else {}),
    )


def _say_fallbacks(
    log: Any, view: View, proposals: Sequence[Proposal], now: Sequence[str], before: Sequence[str]
) -> None:
    key, found = str(view.hpa.metadata.key), {proposal.goal.label: proposal for proposal in proposals}
    for label in now:
        if label not in before:
            begun = f"a fallback begins: {explain.failure(found[label])}"
            log.warning(begun, hpa=key)
    for label in before:
        if label not in now:
            ended = f"a fallback ends: {_ended(label, found.get(label))}"
            log.info(ended, hpa=key)


def _ended(label: str, proposal: Proposal | None) -> str:
    if proposal is None:
        return f"{label} was not asked for"
    return explain.failure(proposal) if proposal.error is not None else f"{label} can be read again"


def _topic(error: str | None) -> str | None:
    """What is wrong, without the durations that change from turn to turn."""
    return None if error is None else _SPAN.sub("…", error)
